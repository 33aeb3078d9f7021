//! How is a claim renewed, and how does it end?

use super::claimed::Claimed;
use super::retry::Retries;
use super::sql::{Changes, How, Statement, text};
use super::table::{Bound, Claim, Fails, KeyValue};
use crate::driver::depth;
use crate::{Connection, Error};
use diesel::AsChangeset;
use diesel::pg::Pg;
use diesel::query_builder::QueryFragment;
use diesel_async::{AsyncConnectionCore, AsyncPgConnection};
use tokio::time::Instant;

/// Has the claim last for its whole ttl again, from now.
///
/// [`keep`](super::keep) and [`run`](super::run) do it in the background.
///
/// # Locking
///
/// One statement, `UPDATE … SET locked_until = clock_timestamp() + ttl`, where the claim is held and has not expired. A row that
/// somebody's open transaction has locked is waited for, and the claim goes on expiring: change the rows of jobs in
/// transactions that are shorter than the ttl.
///
/// # Errors
///
/// [`Error::LockLost`] when it has expired, or was finished. [`Error::Database`]; whether it was renewed is not known then.
///
/// # Cancel safety
///
/// Cancel safe: it is renewed or not, and [`Claimed::deadline`] counts on the earlier time.
///
/// # Examples
///
/// ```no_run
/// # use advisory_runtime::{Error, claim::{self, Claim, Claimed}};
/// # use diesel_async::{AsyncConnectionCore, AsyncPgConnection};
/// async fn all<Job: Claim>(conn: &mut AsyncPgConnection, jobs: &[Claimed<Job>]) -> Result<(), Error> {
///     for job in jobs {
///         claim::renew(conn, job).await?;
///     }
///     Ok(())
/// }
/// ```
pub async fn renew<T, C>(conn: &mut C, job: &Claimed<T>) -> Result<(), Error>
where
    T: Claim,
    C: Connection,
{
    if renew_on(conn.pg(), job).await? {
        return Ok(());
    }
    Err(job.lost())
}

/// Whether the claim is held still.
pub(super) async fn renew_on<T: Claim>(
    conn: &mut AsyncPgConnection,
    job: &Claimed<T>,
) -> Result<bool, Error> {
    let statement = Statement::<T, _>::renew(job.locked_by(), (**job).key().bound());
    let sent = Instant::now();
    let is_held = change(conn, &statement).await?;
    if is_held {
        job.hold().renewed(sent, job.ttl());
    }
    Ok(is_held)
}

/// Completes the job: `completed_at` is the server's time where there is such a column, and the row is nobody's any more.
///
/// In the transaction that writes the job's results, both happen or neither does.
///
/// # Locking
///
/// One statement, `UPDATE … SET locked_until = NULL, locked_by = NULL, completed_at = clock_timestamp()`, where the claim is held
/// and has not expired.
///
/// # Errors
///
/// [`Error::LockLost`] when it has expired, or was finished: the job may be another worker's, nothing was changed.
/// [`Error::Database`]; when the connection was lost, the job may be completed or not, and doing it again finds out: then
/// [`Error::LockLost`] can mean that the first time did it.
///
/// # Cancel safety
///
/// Cancelling leaves the job completed or not; then it expires.
///
/// # Examples
///
/// ```no_run
/// # use advisory_runtime::{Error, claim::{self, Claim, Claimed}};
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
/// `changes` is what Diesel's `set` takes: `row_count.eq(rows)`, a tuple of them, or a struct that is `AsChangeset`.
///
/// # Locking
///
/// As [`complete`]. The statement's text is looked up instead of its type, as Diesel's own updates are.
///
/// # Errors
///
/// As [`complete`]. A column that the claim sets itself cannot be among the changes: the server refuses the statement.
///
/// # Cancel safety
///
/// As [`complete`].
pub async fn complete_with<T, C, S>(conn: &mut C, job: &Claimed<T>, changes: S) -> Result<(), Error>
where
    T: Claim,
    C: Connection,
    S: AsChangeset<Target = T::Table, Changeset: QueryFragment<Pg> + Send + Sync>,
{
    let changes = changes.as_changeset();
    finish(conn.pg(), job, How::Complete, Some(&changes)).await
}

/// Ends the job for good: `failed_at` is the server's time, and the message stands in `error_message` where there is such a
/// column.
///
/// To have it tried again use [`release`]. A table without `failed_at` does not compile here.
///
/// # Locking
///
/// One statement, `UPDATE … SET locked_until = NULL, locked_by = NULL, failed_at = clock_timestamp(), error_message = $1`, where
/// the claim is held and has not expired. What no text of the server's can hold, U+0000, is written U+FFFD.
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
/// # use advisory_runtime::{Error, claim::{self, Claimed, Fails}};
/// # use diesel_async::{AsyncConnectionCore, AsyncPgConnection};
/// async fn refuse<Job: Fails>(conn: &mut AsyncPgConnection, job: &Claimed<Job>) -> Result<(), Error> {
///     claim::fail(conn, job, "the file is not there").await
/// }
/// ```
pub async fn fail<T, C>(conn: &mut C, job: &Claimed<T>, message: &str) -> Result<(), Error>
where
    T: Fails,
    C: Connection,
{
    finish(conn.pg(), job, How::Fail(&text(message)), None).await
}

/// Gives the row back, unfinished: whoever comes next gets it.
///
/// # Locking
///
/// One statement, `UPDATE … SET locked_until = NULL, locked_by = NULL`, where the claim is held and has not expired.
///
/// # Errors
///
/// As [`complete`].
///
/// # Cancel safety
///
/// Cancelling leaves the row given back or not; then it expires.
///
/// # Examples
///
/// ```no_run
/// # use advisory_runtime::{Error, claim::{self, Claim, Claimed}};
/// # use diesel_async::{AsyncConnectionCore, AsyncPgConnection};
/// async fn not_now<Job: Claim>(conn: &mut AsyncPgConnection, job: &Claimed<Job>) -> Result<(), Error> {
///     claim::release(conn, job).await
/// }
/// ```
pub async fn release<T, C>(conn: &mut C, job: &Claimed<T>) -> Result<(), Error>
where
    T: Claim,
    C: Connection,
{
    finish(conn.pg(), job, How::Release, None).await
}

pub(super) async fn finish<T: Claim>(
    conn: &mut AsyncPgConnection,
    job: &Claimed<T>,
    how: How<'_>,
    changes: Option<Changes<'_>>,
) -> Result<(), Error> {
    let key = (**job).key().bound();
    let statement = Statement::<T, _>::finish(job.locked_by(), key, how, changes);
    let is_inside = !matches!(depth(conn), Ok(None));
    let ending = job.hold().ending();
    if !change(conn, &statement).await? {
        return Err(job.lost());
    }
    ending.done(is_inside);
    Ok(())
}

/// Sends a statement that changes the row of a claim. Whether the claim was still held.
async fn change<T: Claim, K: Bound>(
    conn: &mut AsyncPgConnection,
    statement: &Statement<'_, T, K>,
) -> Result<bool, Error> {
    let mut retries = Retries::on(conn);
    loop {
        match conn.execute_returning_count(statement).await {
            Ok(rows) => return Ok(rows > 0),
            Err(error) if retries.retry(&error) => {}
            Err(error) => return Err(Error::Database(error)),
        }
    }
}
