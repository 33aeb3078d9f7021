//! Ends a claim when its work is over, even if the server is slow to reach.

use super::Error;
use super::claimed::{Claimed, no_answer};
use super::finish::{finish, is_open_on};
use super::sql::How;
use super::table::Claim;
use crate::error::is_connection_lost;
use crate::renewal::{Borrowed, End, UNANSWERED};
use crate::{Pool, PoolError};
use diesel_async::AsyncPgConnection;
use std::time::{Duration, Instant};
use tokio::time::{sleep_until, timeout_at};

/// The time between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// Ends the claim, unless the work has done so itself. If the pool has no connection or the connection is lost, it tries again until
/// the claim's present deadline: renewals could postpone the expiry without end.
pub(super) async fn end<T: Claim, P: Pool>(
    pool: &P,
    job: &Claimed<T>,
    how: How<'_>,
) -> Result<(), Error> {
    let mut until = job.deadline();
    if is_inside(job) {
        // How that transaction has ended matters after the deadline too, and nobody can take the row before it has.
        until = until.max(Instant::now() + UNANSWERED);
    }
    let mut unknown = None;
    loop {
        let error = match attempt(pool, job, how, until).await {
            Err(Error::Database(source)) if is_connection_lost(&source) => {
                unknown = Some(job.unknown(source));
                None
            }
            Err(error @ Error::Pool(_)) => Some(error),
            Err(Error::Lost { .. }) => return Err(unknown.unwrap_or_else(|| job.gone())),
            done => return done,
        };
        let again = Instant::now() + PAUSE;
        if again >= until {
            return Err(unknown.or(error).unwrap_or_else(|| job.gone()));
        }
        sleep_until(again.into()).await;
    }
}

async fn attempt<T: Claim, P: Pool>(
    pool: &P,
    job: &Claimed<T>,
    how: How<'_>,
    until: Instant,
) -> Result<(), Error> {
    if job.hold().end() == End::Done {
        return Ok(());
    }
    let conn = timeout_at(until.into(), pool.connection()).await;
    let mut borrowed = Borrowed::new(conn.map_err(PoolError::new)??);
    let sent = finish_unless_ended(borrowed.pg(), job, how);
    match timeout_at(until.into(), sent).await {
        Ok(ended) => {
            borrowed.answered();
            ended
        }
        Err(_) => Err(Error::Database(no_answer())),
    }
}

/// Ends the claim if the work has not, or if the transaction in which the work ended it was rolled back.
async fn finish_unless_ended<T: Claim>(
    conn: &mut AsyncPgConnection,
    job: &Claimed<T>,
    how: How<'_>,
) -> Result<(), Error> {
    if is_inside(job) {
        let is_open = is_open_on(conn, job).await?;
        job.hold().settle(!is_open);
    }
    if job.hold().end() == End::Done {
        return Ok(());
    }
    finish(conn, job, how, None).await
}

/// Whether the claim was ended in a transaction of which it is not known how it ended.
fn is_inside<T: Claim>(job: &Claimed<T>) -> bool {
    matches!(job.hold().end(), End::Inside(_))
}
