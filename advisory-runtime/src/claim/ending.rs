//! Ends a claim when its work is over, even if the server is slow to reach.

use super::Error;
use super::claimed::Claimed;
use super::finish::{finish, is_open_on};
use super::sql::How;
use super::table::Claim;
use crate::driver::Queries;
use crate::error::{is_connection_lost, may_pass};
use crate::renewal::{End, UNANSWERED};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
#[cfg(feature = "diesel-async")]
use {
    super::claimed::no_answer,
    crate::Pool,
    crate::renewal::{DedicatedAnswer, RenewalStep, round_trip},
    diesel_async::AsyncPgConnection,
    std::sync::{Mutex, MutexGuard, PoisonError},
    tokio::time::{sleep_until, timeout_at},
};

/// The time between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// The tries to end a claim. They end at the claim's present deadline: renewals could postpone the expiry without end.
pub(crate) struct EndAttempts<'j, T> {
    job: &'j Claimed<T>,
    until: Instant,
    /// What to report if a statement that got no answer may have ended the claim.
    unknown: Option<Error>,
    /// When the server first refused the statement for a reason that may pass, and the next pause.
    refused: Option<(Instant, Duration)>,
}

impl<'j, T: Claim> EndAttempts<'j, T> {
    pub(crate) fn of(job: &'j Claimed<T>) -> Self {
        let mut until = job.deadline();
        if matches!(job.tenure().end(), End::Inside(_)) {
            // How that transaction has ended matters after the deadline too, and nobody can take the row before it has.
            until = until.max(Instant::now() + UNANSWERED);
        }
        Self {
            job,
            until,
            unknown: None,
            refused: None,
        }
    }

    /// The result, or when to try again: after the pool had no connection, the connection was lost, or for some seconds after a refusal
    /// that may pass.
    pub(crate) fn after(
        &mut self,
        outcome: Result<(), Error>,
    ) -> ControlFlow<Result<(), Error>, Instant> {
        let mut pause = PAUSE;
        let error = match outcome {
            Err(Error::Database(source)) if is_connection_lost(&source) => {
                self.unknown = Some(self.job.unknown(source));
                None
            }
            Err(Error::Database(source)) if may_pass(&source) => {
                let first = || (Instant::now(), pause);
                let (refused, next) = self.refused.get_or_insert_with(first);
                self.until = self.until.min(*refused + UNANSWERED);
                pause = std::mem::replace(next, *next * 2);
                Some(Error::Database(source))
            }
            Err(error @ Error::Pool(_)) => Some(error),
            Err(Error::Lost { .. }) => {
                let unknown = self.unknown.take();
                return ControlFlow::Break(Err(unknown.unwrap_or_else(|| self.job.gone())));
            }
            done => return ControlFlow::Break(done),
        };
        let again = Instant::now() + pause;
        if again < self.until {
            return ControlFlow::Continue(again);
        }
        // A statement can be unanswered on a connection that was given up.
        let error = error.filter(|_| !self.job.is_unanswered());
        let error = self.unknown.take().or(error);
        ControlFlow::Break(Err(error.unwrap_or_else(|| self.job.gone())))
    }
}

/// Ends the claim, unless the work has done so itself.
#[cfg(feature = "diesel-async")]
pub(super) async fn end<T: Claim, P: Pool>(
    pool: &P,
    job: &Claimed<T>,
    how: How<'_>,
) -> Result<(), Error> {
    let mut tries = EndAttempts::of(job);
    loop {
        let outcome = attempt(pool, job, how, tries.until).await;
        match tries.after(outcome) {
            ControlFlow::Continue(again) => sleep_until(again.into()).await,
            ControlFlow::Break(result) => return result,
        }
    }
}

#[cfg(feature = "diesel-async")]
async fn attempt<T: Claim, P: Pool>(
    pool: &P,
    job: &Claimed<T>,
    how: How<'_>,
    until: Instant,
) -> Result<(), Error> {
    if job.tenure().end() == End::Done {
        return Ok(());
    }
    let left = until.saturating_duration_since(Instant::now());
    let step = EndStep {
        job,
        how,
        refused: Mutex::default(),
    };
    let sent = round_trip(pool, &step, DedicatedAnswer::Doubted, T::RENEW, left);
    match timeout_at(until.into(), sent).await {
        Ok(Ok(true)) => step.refused().take().map_or(Ok(()), Err),
        Ok(Ok(false)) => Err(job.lost()),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Error::Database(no_answer())),
    }
}

#[cfg(feature = "diesel-async")]
struct EndStep<'s, T> {
    job: &'s Claimed<T>,
    how: How<'s>,
    /// What the server has answered. It would answer the same on a connection beside the pool.
    refused: Mutex<Option<Error>>,
}

#[cfg(feature = "diesel-async")]
impl<T> EndStep<'_, T> {
    fn refused(&self) -> MutexGuard<'_, Option<Error>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "diesel-async")]
impl<T: Claim> RenewalStep for EndStep<'_, T> {
    type Error = Error;

    async fn send(&self, conn: &mut AsyncPgConnection) -> Result<bool, Error> {
        match finish_unless_ended(conn, self.job, self.how).await {
            Ok(()) => Ok(true),
            Err(Error::Lost { .. }) => Ok(false),
            Err(Error::Database(source)) if is_connection_lost(&source) => {
                Err(Error::Database(source))
            }
            Err(refused) => {
                *self.refused() = Some(refused);
                Ok(true)
            }
        }
    }
}

/// Ends the claim if the work has not, or if the transaction in which the work ended it was rolled back.
pub(crate) async fn finish_unless_ended<T: Claim, D: Queries>(
    conn: &mut D,
    job: &Claimed<T>,
    how: How<'_>,
) -> Result<(), Error> {
    if let End::Inside(since) = job.tenure().end() {
        let is_open = is_open_on(conn, job).await?;
        job.tenure().settle(since, !is_open);
    }
    if job.tenure().end() == End::Done {
        return Ok(());
    }
    finish(conn, job, how, None).await
}
