//! How does a claim end when its work is over, even if the server is slow to reach?

use super::claimed::{Claimed, no_answer};
use super::finish::finish;
use super::sql::How;
use super::table::Claim;
use crate::error::is_connection_lost;
use crate::renewal::Borrowed;
use crate::{Error, Pool};
use std::time::{Duration, Instant};
use tokio::time::{sleep_until, timeout_at};

/// The time between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// Ends the claim. If the pool has no connection or the connection is lost, it tries again until the claim's present deadline:
/// renewals could postpone the expiry without end.
pub(super) async fn end<T: Claim, P: Pool>(
    pool: &P,
    job: &Claimed<T>,
    how: How<'_>,
) -> Result<(), Error> {
    // After a lost answer, a refusal can mean that the claim has ended already.
    let mut unknown = None;
    let until = job.deadline();
    loop {
        let error = match attempt(pool, job, how, until).await {
            Err(Error::Database(source)) if is_connection_lost(&source) => {
                unknown = Some(job.unknown(source));
                None
            }
            Err(error @ Error::Pool(_)) => Some(error),
            Err(error @ Error::LockLost { .. }) => return Err(unknown.unwrap_or(error)),
            done => return done,
        };
        let again = Instant::now() + PAUSE;
        if again >= until {
            return Err(unknown.or(error).unwrap_or_else(|| job.lost()));
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
    let conn = timeout_at(until.into(), pool.connection()).await;
    let mut borrowed = Borrowed::new(conn.map_err(|late| Error::Pool(Box::new(late)))??);
    let sent = finish(borrowed.pg(), job, how, None);
    match timeout_at(until.into(), sent).await {
        Ok(ended) => {
            borrowed.answered();
            ended
        }
        Err(_) => Err(Error::Database(no_answer())),
    }
}
