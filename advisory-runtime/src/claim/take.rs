//! How is a row claimed: the one that comes first, or the one of a key?

use super::claimed::{Claimed, Returned};
use super::retry::Retries;
use super::sql::Statement;
use super::table::{Bound, Claim, KeyValue};
use crate::{Connection, Error};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use std::time::Instant;

/// Claims the row that comes first in the order of `#[claim(order = …)]`, of those that are available or expired.
///
/// `worker` says who claims, for whoever reads the table; several workers may have one name. What no text of the server's can hold,
/// U+0000, is written U+FFFD. For rows that are known by their key use [`by_key`].
///
/// # Locking
///
/// One statement. Rows that somebody has locked are passed over, so it never waits for one:
///
/// ```sql
/// WITH advisory_claim AS MATERIALIZED (
///     SELECT id … FROM sync_jobs WHERE completed_at IS NULL AND failed_at IS NULL
///         AND (locked_until IS NULL OR locked_until <= clock_timestamp())
///     ORDER BY priority DESC, created_at LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
/// UPDATE sync_jobs SET locked_until = clock_timestamp() + ttl, locked_by = worker || '#' || gen_random_uuid()
/// FROM advisory_claim WHERE sync_jobs.id = advisory_claim.id RETURNING …
/// ```
///
/// Inside a transaction of yours, the row stays locked to its end, and is claimed for others only then.
///
/// # Errors
///
/// [`Error::Database`]. No row is no error.
///
/// # Cancel safety
///
/// Cancelling can leave a row claimed that nobody knows of, until it expires.
pub async fn next<T, C>(conn: &mut C, worker: &str) -> Result<Option<Claimed<T>>, Error>
where
    T: Claim,
    C: Connection,
{
    let rows = take(conn.pg(), &Statement::next(worker, 1)).await?;
    Ok(rows.into_iter().next())
}

/// Claims the rows that come first, at most so many: cheaper a row than [`next`], where a row is little work.
///
/// They are claimed at once and expire at once, so `limit` is what is done well within the ttl; or [`renew`](super::renew) them.
/// Each has a `locked_by` of its own. They come in no particular order.
///
/// # Locking
///
/// As [`next`], with `LIMIT limit`. The number is in the statement's text, and each text is prepared once a connection: use few
/// different ones.
///
/// # Errors
///
/// [`Error::Database`].
///
/// # Cancel safety
///
/// As [`next`].
///
/// # Examples
///
/// ```no_run
/// # use advisory_runtime::{Error, claim::{self, Claim, Claimed}};
/// # use diesel_async::AsyncPgConnection;
/// async fn ten<Job: Claim>(conn: &mut AsyncPgConnection) -> Result<Vec<Claimed<Job>>, Error> {
///     claim::next_batch(conn, "worker-7", 10).await
/// }
/// ```
pub async fn next_batch<T, C>(
    conn: &mut C,
    worker: &str,
    limit: u32,
) -> Result<Vec<Claimed<T>>, Error>
where
    T: Claim,
    C: Connection,
{
    if limit == 0 {
        return Ok(Vec::new());
    }
    take(conn.pg(), &Statement::next(worker, limit)).await
}

/// Claims the row of a key, if it is available or expired; `None` when there is no such row, or it is claimed or done.
///
/// `key` is what Diesel takes for the key's columns: `42`, or `(matrix_id, &chunk_hash)`.
///
/// # Locking
///
/// One statement, as that of [`next`], with `WHERE key = $1` in place of the order. A row that somebody's open transaction has
/// locked is waited for, under the session's `lock_timeout`; whether it can be claimed, and until when, is decided after that.
///
/// # Errors
///
/// [`Error::Database`], also where `lock_timeout` (SQLSTATE 55P03) has ended the wait.
///
/// # Cancel safety
///
/// As [`next`].
pub async fn by_key<T, C>(
    conn: &mut C,
    worker: &str,
    key: impl KeyValue<T::Key>,
) -> Result<Option<Claimed<T>>, Error>
where
    T: Claim,
    C: Connection,
{
    let rows = take(conn.pg(), &Statement::by_key(worker, key.bound())).await?;
    Ok(rows.into_iter().next())
}

async fn take<T: Claim, K: Bound>(
    conn: &mut AsyncPgConnection,
    statement: &Statement<'_, T, K>,
) -> Result<Vec<Claimed<T>>, Error> {
    let (sent, mut retries) = (Instant::now(), Retries::on(conn));
    loop {
        let rows: Result<Vec<Returned<T>>, _> = RunQueryDsl::load(statement, conn).await;
        match rows {
            Ok(rows) => {
                return Ok(rows
                    .into_iter()
                    .map(|row| Claimed::new(row, sent))
                    .collect());
            }
            Err(error) if retries.retry(&error) => {}
            Err(error) => return Err(Error::Database(error)),
        }
    }
}
