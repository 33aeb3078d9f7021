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
    crate::renewal::Borrowed,
    crate::{Pool, PoolError},
    tokio::time::{sleep_until, timeout},
};

/// The time between two tries; after a refusal it doubles up to a second.
const PAUSE: Duration = Duration::from_millis(100);

/// The tries to end a claim. They end at the claim's present deadline: renewals could postpone the expiry without end.
pub(crate) struct EndAttempts<'j, T> {
    job: &'j Claimed<T>,
    until: Instant,
    /// What to report if a statement that got no answer may have ended the claim.
    unknown: Option<Error>,
    refused: Option<Refused>,
}

/// Of refusals for a reason that may pass, one after the other.
struct Refused {
    since: Instant,
    pause: Duration,
    /// The first says more than its followers in an aborted transaction.
    first: Error,
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
        let (mut until, mut pause) = (self.until, PAUSE);
        let error = match outcome {
            Err(Error::Database(source)) if is_connection_lost(&source) => {
                (self.unknown, self.refused) = (Some(self.job.unknown(source)), None);
                None
            }
            Err(Error::Database(source)) if may_pass(&source) => {
                let refused = self.refused.get_or_insert_with(|| Refused {
                    since: Instant::now(),
                    pause,
                    first: Error::Database(source),
                });
                until = until.min(refused.since + UNANSWERED);
                pause = refused.pause;
                refused.pause = (pause * 2).min(Duration::from_secs(1));
                None
            }
            Err(error @ Error::Pool(_)) => {
                self.refused = None;
                Some(error)
            }
            Err(Error::Lost { .. }) => {
                let unknown = self.unknown.take();
                return ControlFlow::Break(Err(unknown.unwrap_or_else(|| self.job.gone())));
            }
            done => return ControlFlow::Break(done),
        };
        let again = Instant::now() + pause;
        if again < until {
            return ControlFlow::Continue(again);
        }
        // A statement can be unanswered on a connection that was given up.
        let refused = self.refused.take().map(|refused| refused.first);
        let error = error.or(refused).filter(|_| !self.job.is_unanswered());
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
    // So that a connection that hangs does not use up the claim.
    let limit = UNANSWERED.min(left / 2).max(Duration::from_millis(5));
    let conn = timeout(limit, pool.connection()).await;
    let mut borrowed = Borrowed::new(conn.map_err(PoolError::new)??);
    let sent = finish_unless_ended(borrowed.pg(), job, how);
    match timeout(limit, sent).await {
        Ok(ended) => {
            borrowed.record_answer();
            ended
        }
        Err(_) => Err(Error::Database(no_answer())),
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
