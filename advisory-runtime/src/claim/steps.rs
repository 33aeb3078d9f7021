//! The steps of a claim on diesel-async's connections.

use super::count::{Counts, counts_on};
use super::finish::{finish, renew_or_lose};
use super::sql::{How, Wanted, text};
use super::table::{Claim, Fails, KeepsCompleted, KeyValue, Retries};
use super::take::{Condition, take_batch, take_by_key, take_first};
use super::{Claimed, Error};
use crate::Connection;
use diesel::AsChangeset;
use diesel::pg::Pg;
use diesel::query_builder::QueryFragment;
use std::pin::Pin;
use std::time::Duration;

type Boxed<'f, R> = Pin<Box<dyn Future<Output = Result<R, Error>> + Send + 'f>>;

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
/// With `#[claim(per = …, limit = …)]` it is a transaction of two statements, sent at once: the first locks the value of the first row
/// that can be claimed by `pg_try_advisory_xact_lock(hashtextextended(value, oid of the table))`, and the second counts and claims. If
/// other sessions have locked all values that have room, it tries again for up to 255 ms. The locks last until the commit, in a
/// transaction of yours until its end.
///
/// # Errors
///
/// [`Error::Database`]. [`Error::StaleSnapshot`] with `per`, in a transaction of yours that is REPEATABLE READ or SERIALIZABLE.
///
/// # Cancel safety
///
/// Not cancel safe: a row may stay claimed until the claim expires.
///
/// # Examples
///
/// ```no_run
#[doc = example_of_claims!()]
/// if let Some(job) = claim::next::<Job, _>(conn, "worker-7").await? {
///     println!("job {}", job.id);
///     claim::complete(conn, &job).await?;
/// }
/// # Ok(())
/// # }
/// ```
pub async fn next<T, C>(conn: &mut C, worker: &str) -> Result<Option<Claimed<T>>, Error>
where
    T: Claim,
    C: Connection,
{
    take_first(conn.pg(), worker, Wanted::default()).await
}

/// Claims the first rows, at most `limit`, in no particular order. For small jobs this is cheaper than [`next`].
///
/// All claims expire at once, so choose a `limit` that is done well within the ttl, or [`renew`] them. Each has its
/// own `locked_by`. A row that cannot be read as a `T` is left out, and stays claimed until its claim expires; if it is the only one, it is
/// the error.
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
///
/// # Examples
///
/// ```no_run
#[doc = example_of_claims!()]
/// for job in claim::next_batch::<Job, _>(conn, "worker-7", 20).await? {
///     println!("job {}", job.id);
///     claim::complete(conn, &job).await?;
/// }
/// # Ok(())
/// # }
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
    take_batch(conn.pg(), worker, limit, Wanted::default()).await
}

/// Claims the first row of which a condition is true, such as one of the kinds that this worker can do.
///
/// The rows are read in the order of the claims until one fits. If few fit, create an index of your own that begins with the columns
/// of the condition.
///
/// # Locking
///
/// As [`next`], with the condition in the `WHERE`.
///
/// # Errors
///
/// As [`next`].
///
/// # Cancel safety
///
/// As [`next`].
///
/// # Examples
///
/// ```no_run
/// # diesel::table! {
/// #     jobs (id) { id -> BigInt, kind -> Text, locked_until -> Nullable<Timestamptz>, locked_by -> Nullable<Text> }
/// # }
/// # #[derive(diesel::Queryable, diesel::Selectable, advisory_runtime::claim::Claim)]
/// # #[diesel(table_name = jobs)]
/// # struct Job { id: i64 }
/// use advisory_runtime::claim::{self, Claimed, Error};
/// use diesel::ExpressionMethods;
/// use diesel_async::AsyncPgConnection;
///
/// async fn mail(conn: &mut AsyncPgConnection) -> Result<Option<Claimed<Job>>, Error> {
///     claim::next_where(conn, "worker-7", jobs::kind.eq_any(["mail", "sms"])).await
/// }
/// ```
// As `fail`.
pub fn next_where<'f, T, C>(
    conn: &'f mut C,
    worker: &'f str,
    condition: impl Condition<T::Table> + 'f,
) -> Boxed<'f, Option<Claimed<T>>>
where
    T: Claim,
    C: Connection,
{
    Box::pin(async move {
        let wanted = Wanted {
            condition: Some(&condition),
            changes: None,
        };
        take_first(conn.pg(), worker, wanted).await
    })
}

/// Claims the first rows of which a condition is true, at most `limit`: [`next_batch`] with the condition of [`next_where`].
///
/// # Locking
///
/// As [`next_batch`], with the condition in the `WHERE`.
///
/// # Errors
///
/// As [`next`].
///
/// # Cancel safety
///
/// As [`next`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_claims!()]
/// let mails = claim::next_batch_where::<Job, _>(conn, "worker-7", 20, jobs::kind.eq("mail")).await?;
/// # let _ = mails;
/// # Ok(())
/// # }
/// ```
// As `fail`.
pub fn next_batch_where<'f, T, C>(
    conn: &'f mut C,
    worker: &'f str,
    limit: u32,
    condition: impl Condition<T::Table> + 'f,
) -> Boxed<'f, Vec<Claimed<T>>>
where
    T: Claim,
    C: Connection,
{
    Box::pin(async move {
        let wanted = Wanted {
            condition: Some(&condition),
            changes: None,
        };
        take_batch(conn.pg(), worker, limit, wanted).await
    })
}

/// Claims the first row, and sets columns of yours in the same statement, such as a status.
///
/// `changes` is what Diesel's `set` takes. The returned row has the new values. A row that fails here, because its last attempt is
/// over, gets them too.
///
/// # Locking
///
/// As [`next`], with the changes in the `SET`.
///
/// # Errors
///
/// As [`next`], and [`Error::Database`] if `changes` sets a column of the claim.
///
/// # Cancel safety
///
/// As [`next`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_claims!()]
/// let job = claim::next_with::<Job, _, _>(conn, "worker-7", jobs::status.eq("running")).await?;
/// # let _ = job;
/// # Ok(())
/// # }
/// ```
pub async fn next_with<T, C, S>(
    conn: &mut C,
    worker: &str,
    changes: S,
) -> Result<Option<Claimed<T>>, Error>
where
    T: Claim,
    C: Connection,
    S: AsChangeset<Target = T::Table, Changeset: QueryFragment<Pg> + Send + Sync>,
{
    let changes = changes.as_changeset();
    let wanted = Wanted {
        condition: None,
        changes: Some(&changes),
    };
    take_first(conn.pg(), worker, wanted).await
}

/// Claims the first rows, at most `limit`, and sets columns of yours: [`next_batch`] with the changes of [`next_with`].
///
/// # Locking
///
/// As [`next_batch`], with the changes in the `SET`.
///
/// # Errors
///
/// As [`next_with`].
///
/// # Cancel safety
///
/// As [`next`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_claims!()]
/// let running = jobs::status.eq("running");
/// let some = claim::next_batch_with::<Job, _, _>(conn, "worker-7", 20, running).await?;
/// # let _ = some;
/// # Ok(())
/// # }
/// ```
pub async fn next_batch_with<T, C, S>(
    conn: &mut C,
    worker: &str,
    limit: u32,
    changes: S,
) -> Result<Vec<Claimed<T>>, Error>
where
    T: Claim,
    C: Connection,
    S: AsChangeset<Target = T::Table, Changeset: QueryFragment<Pg> + Send + Sync>,
{
    let changes = changes.as_changeset();
    let wanted = Wanted {
        condition: None,
        changes: Some(&changes),
    };
    take_batch(conn.pg(), worker, limit, wanted).await
}

/// Claims the row with this key. Returns `None` if no such row exists, or if it is claimed or done.
///
/// `key` is what Diesel takes for the key's columns: `42`, or `(matrix_id, &chunk_hash)`.
///
/// # Locking
///
/// The statement of [`next`], with a condition on the key instead of the order. It waits for a row that an open transaction has
/// locked, at most for the session's `lock_timeout`, and then decides whether the row can be claimed. The ttl begins after the wait.
/// With `#[claim(per = …)]` it waits for the lock of the row's value too, and `None` can mean that the value is at its limit.
///
/// # Errors
///
/// [`Error::Database`], also when `lock_timeout` ends the wait (SQLSTATE 55P03).
///
/// # Cancel safety
///
/// As [`next`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_claims!()]
/// let Some(job) = claim::by_key::<Job, _>(conn, "import of Tuesday", 42).await? else {
///     return Ok(()); // somebody else has it, or it is done
/// };
/// # let _ = job;
/// # Ok(())
/// # }
/// ```
pub async fn by_key<T, C>(
    conn: &mut C,
    worker: &str,
    key: impl KeyValue<T::Key>,
) -> Result<Option<Claimed<T>>, Error>
where
    T: Claim,
    C: Connection,
{
    take_by_key(conn.pg(), worker, key).await
}

/// Renews the claim: it lasts for its whole ttl from now, or for less if a trigger has shortened it.
///
/// [`renew_while`](super::renew_while) and [`run`](super::run) do so in the background.
///
/// # Locking
///
/// `UPDATE … SET locked_until = clock_timestamp() + ttl`, if the claim is held and has not expired. It waits for a row that an open
/// transaction has locked, and the claim can expire during the wait: keep transactions that change jobs shorter than the ttl.
///
/// # Errors
///
/// [`Error::InTransaction`] inside a transaction of Diesel's, which could undo it, and [`Error::BrokenConnection`]: nothing was
/// sent. [`Error::Lost`] if the claim has expired or was finished. [`Error::Database`]: the claim may have been renewed.
///
/// # Cancel safety
///
/// Cancel safe: the claim is renewed or not, and [`Claimed::deadline`] is the earlier of the two, unless a trigger has shortened it.
///
/// # Examples
///
/// ```no_run
#[doc = example_of_claims!()]
/// for part in 0..10 {
///     println!("job {}: part {part}", job.id);
///     claim::renew(conn, job).await?; // an error if another worker has the row by now
/// }
/// # Ok(())
/// # }
/// ```
pub async fn renew<T, C>(conn: &mut C, job: &Claimed<T>) -> Result<(), Error>
where
    T: Claim,
    C: Connection,
{
    renew_or_lose(conn.pg(), job).await
}

/// Completes the job: ends the claim, and sets `completed_at` if the table has such a column.
///
/// Call it in the transaction that writes the job's results, and both happen or neither does.
///
/// # Locking
///
/// `UPDATE … SET locked_until = NULL, locked_by = NULL, completed_at = clock_timestamp()`, if the claim is held and has not expired.
///
/// In a transaction of yours the row stays locked until its end. The statement sets `idle_in_transaction_session_timeout` for the rest
/// of the transaction to the ttl, at least 10 s, unless it is shorter: the server then ends a session whose process has stopped.
///
/// # Errors
///
/// [`Error::Lost`] if the claim has expired or was finished: nothing was changed, and another worker may have the job.
/// [`Error::Database`]: if the connection was lost, the job may be completed. Complete it again to find out: [`Error::Lost`] then
/// can mean that the first call did it.
///
/// # Cancel safety
///
/// Not cancel safe: the job may be completed or not; if not, the claim expires.
///
/// # Examples
///
/// ```no_run
/// # use advisory_runtime::claim::{self, Claim, Claimed, Error};
/// # use diesel_async::{AsyncConnection, AsyncPgConnection};
/// async fn store<Job: Claim>(conn: &mut AsyncPgConnection, job: &Claimed<Job>) -> Result<(), Error> {
///     conn.transaction(async |conn| {
///         // … the job's results …
///         claim::complete(conn, job).await
///     })
///     .await
/// }
/// ```
pub async fn complete<T, C>(conn: &mut C, job: &Claimed<T>) -> Result<(), Error>
where
    T: Claim,
    C: Connection,
{
    finish(conn.pg(), job, How::Complete, None).await
}

/// Completes the job as [`complete`] does, and sets columns of yours in the same statement.
///
/// `changes` is what Diesel's `set` takes: `row_count.eq(rows)`, a tuple of such, or a struct that is `AsChangeset`.
///
/// # Locking
///
/// As [`complete`].
///
/// # Errors
///
/// As [`complete`], and [`Error::Database`] if `changes` sets a column of the claim.
///
/// # Cancel safety
///
/// As [`complete`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_claims!()]
/// claim::complete_with(conn, job, jobs::status.eq("sent")).await?;
/// # Ok(())
/// # }
/// ```
// As `fail`.
pub fn complete_with<'f, T, C, S>(conn: &'f mut C, job: &'f Claimed<T>, changes: S) -> Boxed<'f, ()>
where
    T: KeepsCompleted,
    C: Connection,
    S: AsChangeset<Target = T::Table, Changeset: QueryFragment<Pg> + Send + Sync + 'f>,
{
    let changes = changes.as_changeset();
    Box::pin(async move { finish(conn.pg(), job, How::Complete, Some(&changes)).await })
}

/// Fails the job for good: sets `failed_at`, and `error_message` if the table has such a column.
///
/// To let another worker try it use [`release`]. It does not compile for a table without `failed_at`.
///
/// # Locking
///
/// `UPDATE … SET locked_until = NULL, locked_by = NULL, failed_at = clock_timestamp(), error_message = $1`, if the claim is held and
/// has not expired; in a transaction as [`complete`]. U+0000 in the message becomes U+FFFD.
///
/// # Errors
///
/// As [`complete`].
///
/// # Cancel safety
///
/// As [`complete`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_claims!()]
/// claim::fail(conn, job, "the address does not exist").await?;
/// # Ok(())
/// # }
/// ```
// An async fn, whose future has the types in its own, would report a missing column three times.
pub fn fail<'f, T, C>(conn: &'f mut C, job: &'f Claimed<T>, message: &'f str) -> Boxed<'f, ()>
where
    T: Fails,
    C: Connection,
{
    Box::pin(async move { finish(conn.pg(), job, How::Fail(&text(message)), None).await })
}

/// Ends a failed attempt: the row can be claimed again after a pause, and goes behind the rows that are due.
///
/// With `after` the pause is this long, otherwise as long as `#[claim(backoff = "10s..10m")]` says: the first time after the first
/// attempt, twice as long after each further one, up to the second time, and less a random part of up to a half. The attempt that
/// `#[claim(max_attempts = …)]` makes the last fails the row for good instead. The message is stored if the table has
/// `error_message`. It does not compile for a table without `run_at`.
///
/// # Locking
///
/// `UPDATE … SET locked_until = NULL, locked_by = NULL, run_at = clock_timestamp() + pause, error_message = $1`, if the claim is held
/// and has not expired; at the last attempt `failed_at` instead of `run_at`. In a transaction as [`complete`].
///
/// # Errors
///
/// As [`complete`].
///
/// # Cancel safety
///
/// As [`complete`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_claims!()]
/// // After the pause that `#[claim(backoff = …)]` says; `Some(time)` says it here.
/// claim::retry(conn, job, "the mail server does not answer", None).await?;
/// # Ok(())
/// # }
/// ```
// As `fail`.
pub fn retry<'f, T, C>(
    conn: &'f mut C,
    job: &'f Claimed<T>,
    message: &'f str,
    after: Option<Duration>,
) -> Boxed<'f, ()>
where
    T: Retries,
    C: Connection,
{
    Box::pin(async move { finish(conn.pg(), job, How::Retry(&text(message), after), None).await })
}

/// Deletes the row, if the claim is still held: for tables that do not keep what is done.
///
/// With `#[claim(completed_at = "delete")]`, [`complete`] and [`run`](super::run) do so.
///
/// # Locking
///
/// `DELETE FROM … WHERE id = $1 AND locked_by = $2 AND locked_until > clock_timestamp()`; in a transaction as [`complete`].
///
/// # Errors
///
/// As [`complete`], and [`Error::Database`] if another row refers to it.
///
/// # Cancel safety
///
/// As [`complete`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_claims!()]
/// claim::delete(conn, job).await?;
/// # Ok(())
/// # }
/// ```
pub async fn delete<T, C>(conn: &mut C, job: &Claimed<T>) -> Result<(), Error>
where
    T: Claim,
    C: Connection,
{
    finish(conn.pg(), job, How::Delete, None).await
}

/// Releases the claim on an unfinished row: the next worker can claim it. If attempts are counted, this one is not.
///
/// # Locking
///
/// `UPDATE … SET locked_until = NULL, locked_by = NULL`, if the claim is held and has not expired; in a transaction as [`complete`].
///
/// # Errors
///
/// As [`complete`].
///
/// # Cancel safety
///
/// As [`complete`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_claims!()]
/// claim::release(conn, job).await?; // not now: this worker stops
/// # Ok(())
/// # }
/// ```
pub async fn release<T, C>(conn: &mut C, job: &Claimed<T>) -> Result<(), Error>
where
    T: Claim,
    C: Connection,
{
    finish(conn.pg(), job, How::Release, None).await
}

/// Counts the rows of a table by their state. It reads the whole table: for a dashboard, not for each claim.
///
/// # Errors
///
/// [`Error::Database`].
///
/// # Cancel safety
///
/// Cancel safe: it only reads.
///
/// # Examples
///
/// ```no_run
#[doc = example_of_claims!()]
/// let Counts { available, failed, .. } = claim::counts::<Job, _>(conn).await?;
/// println!("{available} wait, {failed} have failed");
/// # Ok(())
/// # }
/// ```
pub async fn counts<T: Claim, C: Connection>(conn: &mut C) -> Result<Counts, Error> {
    counts_on::<T, _>(conn.pg()).await
}
