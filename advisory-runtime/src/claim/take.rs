//! How is a row claimed: the first one, or the one with a key?

use super::claimed::{Claimed, Returned};
use super::retry::load;
use super::sql::Statement;
use super::table::{Claim, KeyValue};
use crate::renewal::Sent;
use crate::{Connection, Error};
use diesel::pg::Pg;
use diesel::query_builder::QueryFragment;
use diesel_async::AsyncPgConnection;

/// Claims the first row that is available or expired, in the order of `#[claim(order = …)]`.
///
/// `worker` says who claims, for people who read the table; several workers can share a name. U+0000, which PostgreSQL's texts
/// cannot contain, becomes U+FFFD. To claim a row by its key use [`by_key`].
///
/// # Locking
///
/// One statement. It skips locked rows, so it never waits for one:
///
/// ```sql
/// WITH advisory_claim AS MATERIALIZED (
///     SELECT id … FROM sync_jobs WHERE completed_at IS NULL AND failed_at IS NULL
///         AND (locked_until IS NULL OR locked_until <= clock_timestamp())
///     ORDER BY priority DESC, created_at LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
/// UPDATE sync_jobs SET locked_until = clock_timestamp() + ttl, locked_by = worker || '#' || gen_random_uuid()
/// FROM advisory_claim WHERE (sync_jobs.id) = (advisory_claim.key_0) RETURNING …
/// ```
///
/// Inside a transaction of yours, the row stays locked until the transaction ends, and the claim takes effect then. If the
/// transaction is rolled back, so is the claim: drop the value.
///
/// # Errors
///
/// [`Error::Database`].
///
/// # Cancel safety
///
/// Not cancel safe: a row may stay claimed until the claim expires.
pub async fn next<T, C>(conn: &mut C, worker: &str) -> Result<Option<Claimed<T>>, Error>
where
    T: Claim,
    C: Connection,
{
    let rows = take(conn.pg(), &Statement::next(worker, 1)).await?;
    Ok(rows.into_iter().next())
}

/// Claims the first rows, at most `limit`, in no particular order. For small jobs this is cheaper than [`next`].
///
/// All claims expire at once, so choose a `limit` that is done well within the ttl, or [`renew`](super::renew) them. Each has its
/// own `locked_by`.
///
/// # Locking
///
/// As [`next`], with `LIMIT limit`. Each limit is a statement of its own that is prepared once per connection: use few of them.
///
/// # Errors
///
/// [`Error::Database`].
///
/// # Cancel safety
///
/// As [`next`].
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

/// Claims the row with this key if it is available or expired; `None` if there is no such row, or it is claimed or done.
///
/// `key` is what Diesel takes for the key's columns: `42`, or `(matrix_id, &chunk_hash)`.
///
/// # Locking
///
/// The statement of [`next`], with a condition on the key instead of the order. It waits for a row that an open transaction has
/// locked, at most for the session's `lock_timeout`, and then decides whether the row can be claimed. The ttl begins after the wait.
///
/// # Errors
///
/// [`Error::Database`], also when `lock_timeout` ends the wait (SQLSTATE 55P03).
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

async fn take<T: Claim, K: QueryFragment<Pg> + Send + Sync>(
    conn: &mut AsyncPgConnection,
    statement: &Statement<'_, T, K>,
) -> Result<Vec<Claimed<T>>, Error> {
    let sent = Sent::now();
    let rows: Vec<Returned<T>> = load(conn, statement).await?;
    let claimed = rows.into_iter().map(|row| Claimed::new(row, sent));
    Ok(claimed.collect())
}
