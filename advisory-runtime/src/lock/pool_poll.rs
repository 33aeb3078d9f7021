//! The tries of a call that polls and takes a connection from a pool for each try.

use super::begin;
use super::call::{Call, Way, answer_limit};
use super::guard::{ConnAccessor, LockGuard};
use super::poll::Pauses;
use super::way;
use crate::debug::Waiting;
use crate::driver::Driver;
use crate::observe::Telemetry;
use crate::{Error, Request, debug};
use std::pin::pin;
use std::time::Duration;

#[doc(hidden)]
#[derive(Debug)]
pub struct PoolPoll {
    request: Request,
    way: Way,
    pauses: Pauses,
    /// After the last try.
    pause: Duration,
    /// `None` once the lock is held, or the call has failed.
    telemetry: Option<Telemetry>,
    /// From the first try on, if the call waits without a limit; for the checks of debug builds.
    waiting: Option<Waiting>,
    /// True during a try or a pause, and false while the caller takes a connection.
    is_under_way: bool,
}

impl PoolPoll {
    /// For transaction-level locks.
    #[must_use]
    pub fn xact(request: Request) -> Self {
        Self::new(request, Way::Transaction)
    }

    /// For session-level locks.
    #[must_use]
    pub fn session(request: Request) -> Self {
        Self::new(request, Way::Session)
    }

    fn new(request: Request, way: Way) -> Self {
        Self {
            telemetry: Some(request.telemetry(way.scope())),
            pauses: Pauses::new(&request),
            request,
            way,
            pause: Duration::ZERO,
            waiting: None,
            is_under_way: false,
        }
    }

    /// Tries once on this connection. Returns `None` if another session holds the locks, and
    /// another try follows after [`pause`](Self::pause).
    pub(crate) async fn attempt<'o, O: ?Sized, D: Driver>(
        &mut self,
        owner: &'o mut O,
        accessor: ConnAccessor<O, D>,
    ) -> Result<Option<LockGuard<'o, O, D>>, Error> {
        let request = self.next();
        let mut guard = LockGuard::new(owner, accessor, self.way, request);
        let (conn, call) = guard.parts();
        let is_held = self.attempt_call(conn, call).await?;
        Ok(is_held.then_some(guard))
    }

    pub(super) fn next(&mut self) -> Request {
        self.is_under_way = true;
        self.request.queued = self.pauses.waited();
        self.request.attempt()
    }

    /// Returns whether the call holds its locks now; if not, another try follows.
    pub(super) async fn attempt_call<D: Driver>(
        &mut self,
        conn: &mut D,
        call: &mut Call,
    ) -> Result<bool, Error> {
        let limit = answer_limit(&self.request);
        let taken = D::timeout(limit, pin!(self.attempt_inner(conn, call))).await;
        let mut acquired = begin::close_unanswered(conn, call, taken).await;
        if let Err(error) = acquired {
            match self.pauses.after(error) {
                Ok(pause) => {
                    self.pause = pause;
                    return Ok(false);
                }
                Err(error) => acquired = Err(error),
            }
        }
        self.waiting = None;
        call.telemetry = self.telemetry.take();
        call.record_acquisition(&acquired);
        acquired.map(|()| true)
    }

    async fn attempt_inner<D: Driver>(
        &mut self,
        conn: &mut D,
        call: &mut Call,
    ) -> Result<(), Error> {
        begin::choose_way(conn, call)?;
        if debug::is_on() {
            Box::pin(debug::before_begin(conn, &mut call.checks, call.outer)).await?;
            if self.waiting.is_none() {
                let waiting = debug::before_wait(conn, &call.checks, &self.request);
                self.waiting = Box::pin(waiting).await?;
            }
        }
        way::acquire(conn, call).await?;
        begin::mark_held(conn, call).await
    }

    /// Waits until the next try, without a connection.
    pub(crate) async fn pause<D: Driver>(&mut self) {
        D::pause(self.pause).await;
        self.is_under_way = false;
    }
}

/// A poll that ends because the caller gets no connection does not count as a dropped call.
impl Drop for PoolPoll {
    fn drop(&mut self) {
        if let Some(telemetry) = self.telemetry.take()
            && !self.is_under_way
        {
            telemetry.forget();
        }
    }
}
