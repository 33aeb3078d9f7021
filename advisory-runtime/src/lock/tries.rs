//! The tries of a call that polls and takes a connection from a pool for each try.

use super::begin::{self, record_outcome};
use super::guard::{Held, Place, Scope};
use super::pauses::{Pauses, random};
use super::poll::ask;
use crate::debug::Waiting;
use crate::driver::Driver;
use crate::observe::Telemetry;
use crate::{Error, Request, debug};
use std::time::Duration;

/// The tries of a call that takes a connection for each try.
#[doc(hidden)]
#[derive(Debug)]
pub struct Tries {
    request: Request,
    scope: Scope,
    pauses: Pauses,
    /// After the last try.
    pause: Duration,
    /// `None` once the lock is held, or the call has failed.
    telemetry: Option<Telemetry>,
    /// From the first try on, if the call waits without a limit; for the checks of debug builds.
    waiting: Option<Waiting>,
    /// Whether a try or a pause is in progress, as opposed to the caller's code that takes a connection.
    is_under_way: bool,
}

impl Tries {
    /// For transaction-level locks.
    #[must_use]
    pub fn xact(request: Request) -> Self {
        Self::new(request, Scope::Xact)
    }

    /// For session-level locks.
    #[must_use]
    pub fn session(request: Request) -> Self {
        Self::new(request, Scope::Session)
    }

    fn new(request: Request, scope: Scope) -> Self {
        Self {
            telemetry: Some(request.telemetry(scope.name())),
            pauses: Pauses::new(&request),
            request,
            scope,
            pause: Duration::ZERO,
            waiting: None,
            is_under_way: false,
        }
    }

    pub(super) async fn attempt<'o, O: ?Sized, D: Driver>(
        &mut self,
        owner: &'o mut O,
        place: Place<O, D>,
    ) -> Result<Option<Held<'o, O, D>>, Error> {
        self.is_under_way = true;
        self.request.queued = self.pauses.waited();
        let held = match self.attempt_inner(owner, place).await {
            Ok(held) => Ok(held),
            Err(error) => match self.pauses.after(error) {
                Ok(pause) => {
                    self.pause = pause;
                    return Ok(None);
                }
                Err(error) => Err(error),
            },
        };
        self.waiting = None;
        match self.telemetry.take() {
            Some(telemetry) => record_outcome(telemetry, held).map(Some),
            None => held.map(Some),
        }
    }

    async fn attempt_inner<'o, O: ?Sized, D: Driver>(
        &mut self,
        owner: &'o mut O,
        place: Place<O, D>,
    ) -> Result<Held<'o, O, D>, Error> {
        let attempt = self.request.attempt(random());
        let mut held = begin::prepare_guard(owner, place, self.scope, &attempt)?;
        if debug::is_on() {
            Box::pin(begin::check(&mut held)).await?;
            if self.waiting.is_none() {
                let address = held.address();
                let (conn, checks) = held.driver_and_checks();
                let waiting = debug::before_wait(conn, checks, address, &self.request);
                self.waiting = Box::pin(waiting).await?;
            }
        }
        ask(&mut held, &attempt, None).await?;
        begin::mark_held(&mut held).await?;
        Ok(held)
    }

    pub(crate) async fn pause<D: Driver>(&mut self) {
        D::pause(self.pause).await;
        self.is_under_way = false;
    }
}

/// If the caller finds no connection, that is the caller's error, and no call was dropped.
impl Drop for Tries {
    fn drop(&mut self) {
        if let Some(telemetry) = self.telemetry.take()
            && !self.is_under_way
        {
            telemetry.forget();
        }
    }
}

/// One try on a connection: `None` if the locks are held, and another try follows after [`pause`].
#[doc(hidden)]
#[cfg(feature = "diesel-async")]
pub async fn try_at<'o, O: ?Sized>(
    tries: &mut Tries,
    owner: &'o mut O,
    place: Place<O, diesel_async::AsyncPgConnection>,
) -> Result<Option<crate::xact::Held<'o, O>>, Error> {
    tries.attempt(owner, place).await
}

/// Waits until the next try, without a connection.
#[doc(hidden)]
#[cfg(feature = "diesel-async")]
pub async fn pause(tries: &mut Tries) {
    tries.pause::<diesel_async::AsyncPgConnection>().await;
}

/// [`try_at`] on a blocking connection.
#[doc(hidden)]
#[cfg(feature = "postgres")]
pub fn try_blocking_at<'o, O: ?Sized>(
    tries: &mut Tries,
    owner: &'o mut O,
    place: Place<O, diesel::pg::PgConnection>,
) -> Result<Option<crate::blocking::Held<'o, O>>, Error> {
    crate::driver::answered(tries.attempt(owner, place))
}

/// [`pause`] for a thread.
#[doc(hidden)]
#[cfg(feature = "postgres")]
pub fn pause_blocking(tries: &mut Tries) {
    crate::driver::answered(tries.pause::<diesel::pg::PgConnection>());
}
