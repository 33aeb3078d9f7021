//! Ends a claim when its work is over, even if the server is slow to reach.

use super::Error;
use super::claimed::Claimed;
use super::finish::{finish, is_open_on};
use super::sql::How;
use super::table::Claim;
use crate::driver::Queries;
use crate::error::is_connection_lost;
use crate::renewal::{End, UNANSWERED};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
#[cfg(feature = "diesel-async")]
use {
    super::claimed::no_answer,
    crate::renewal::Borrowed,
    crate::{Pool, PoolError},
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
}

impl<'j, T: Claim> EndAttempts<'j, T> {
    pub(crate) fn of(job: &'j Claimed<T>) -> Self {
        let mut until = job.deadline();
        if is_inside(job) {
            // How that transaction has ended matters after the deadline too, and nobody can take the row before it has.
            until = until.max(Instant::now() + UNANSWERED);
        }
        Self {
            job,
            until,
            unknown: None,
        }
    }

    /// The result, or when to try again: after the pool had no connection, or the connection was lost.
    pub(crate) fn after(
        &mut self,
        outcome: Result<(), Error>,
    ) -> ControlFlow<Result<(), Error>, Instant> {
        let error = match outcome {
            Err(Error::Database(source)) if is_connection_lost(&source) => {
                self.unknown = Some(self.job.unknown(source));
                None
            }
            Err(error @ Error::Pool(_)) => Some(error),
            Err(Error::Lost { .. }) => {
                let unknown = self.unknown.take();
                return ControlFlow::Break(Err(unknown.unwrap_or_else(|| self.job.gone())));
            }
            done => return ControlFlow::Break(done),
        };
        let again = Instant::now() + PAUSE;
        if again < self.until {
            return ControlFlow::Continue(again);
        }
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
    let conn = timeout_at(until.into(), pool.connection()).await;
    let mut borrowed = Borrowed::new(conn.map_err(PoolError::new)??);
    let sent = finish_unless_ended(borrowed.pg(), job, how);
    match timeout_at(until.into(), sent).await {
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
    if is_inside(job) {
        let is_open = is_open_on(conn, job).await?;
        job.tenure().settle(!is_open);
    }
    if job.tenure().end() == End::Done {
        return Ok(());
    }
    finish(conn, job, how, None).await
}

/// Whether the claim was ended in a transaction of which it is not known how it ended.
fn is_inside<T: Claim>(job: &Claimed<T>) -> bool {
    matches!(job.tenure().end(), End::Inside(_))
}
