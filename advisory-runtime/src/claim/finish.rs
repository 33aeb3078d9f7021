//! Renews a claim, and ends it: completed, failed or released.

use super::claimed::{Claimed, Holder};
use super::retry::{Retries, load};
use super::sql::{Changes, How, Statement, text};
use super::table::{Claim, Fails, KeyValue};
use crate::driver::depth;
use crate::error::is_connection_lost;
use crate::renewal::{Sent, require_no_transaction};
use crate::{Connection, Error};
use diesel::AsChangeset;
use diesel::pg::Pg;
use diesel::query_builder::QueryFragment;
use diesel_async::{AsyncConnectionCore, AsyncPgConnection};
use std::pin::Pin;

/// Renews the claim: it lasts for its whole ttl from now.
///
/// [`keep`](super::keep) and [`run`](super::run) do so in the background.
///
/// # Locking
///
/// `UPDATE … SET locked_until = clock_timestamp() + ttl`, if the claim is held and has not expired. It waits for a row that an open
/// transaction has locked, and the claim can expire during the wait: keep transactions that change jobs shorter than the ttl.
///
/// # Errors
///
/// [`Error::InTransaction`] inside a transaction of Diesel's, which could undo it, and [`Error::BrokenConnection`]: nothing was
/// sent. [`Error::LockLost`] if the claim has expired or was finished. [`Error::Database`]: the claim may have been renewed.
///
/// # Cancel safety
///
/// Cancel safe: the claim is renewed or not, and [`Claimed::deadline`] is the earlier of the two.
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

/// Whether the claim is still held.
pub(super) async fn renew_on<T: Claim>(
    conn: &mut AsyncPgConnection,
    job: &Claimed<T>,
) -> Result<bool, Error> {
    require_no_transaction(conn, || job.name().into())?;
    let statement = Statement::<T, _>::renew(job.locked_by(), (**job).key().bound());
    let sent = Sent::now();
    let is_held = change(conn, &statement).await?;
    if is_held {
        job.hold().renewed(sent, job.ttl());
    }
    Ok(is_held)
}

/// Whether the claim is open after the end of a transaction that ended it: that transaction was rolled back.
pub(super) async fn is_open_on<T: Claim>(
    conn: &mut AsyncPgConnection,
    job: &Claimed<T>,
) -> Result<bool, Error> {
    let statement = Statement::<T, _>::holder((**job).key().bound());
    let holder: Vec<Holder> = load(conn, &statement).await?;
    Ok(holder.iter().any(|Holder(by)| {
        // Before the expiry another worker could claim the row only after a commit.
        by == job.locked_by() || job.hold().is_expired()
    }))
}

/// Completes the job: ends the claim, and sets `completed_at` if the table has such a column.
///
/// Call it in the transaction that writes the job's results, and both happen or neither does.
///
/// # Locking
///
/// `UPDATE … SET locked_until = NULL, locked_by = NULL, completed_at = clock_timestamp()`, if the claim is held and has not expired.
///
/// # Errors
///
/// [`Error::LockLost`] if the claim has expired or was finished: nothing was changed, and another worker may have the job.
/// [`Error::Database`]: if the connection was lost, the job may be completed. Complete it again to find out: [`Error::LockLost`] then
/// can mean that the first call did it.
///
/// # Cancel safety
///
/// Not cancel safe: the job may be completed or not; if not, the claim expires.
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
pub async fn complete_with<T, C, S>(conn: &mut C, job: &Claimed<T>, changes: S) -> Result<(), Error>
where
    T: Claim,
    C: Connection,
    S: AsChangeset<Target = T::Table, Changeset: QueryFragment<Pg> + Send + Sync>,
{
    let changes = changes.as_changeset();
    finish(conn.pg(), job, How::Complete, Some(&changes)).await
}

/// Fails the job for good: sets `failed_at`, and `error_message` if the table has such a column.
///
/// To let another worker try it use [`release`]. It does not compile for a table without `failed_at`.
///
/// # Locking
///
/// `UPDATE … SET locked_until = NULL, locked_by = NULL, failed_at = clock_timestamp(), error_message = $1`, if the claim is held and
/// has not expired. U+0000 in the message becomes U+FFFD.
///
/// # Errors
///
/// As [`complete`].
///
/// # Cancel safety
///
/// As [`complete`].
// An async fn, whose future has the types in its own, would report a missing column three times.
pub fn fail<'f, T, C>(
    conn: &'f mut C,
    job: &'f Claimed<T>,
    message: &'f str,
) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'f>>
where
    T: Fails,
    C: Connection,
{
    Box::pin(async move { finish(conn.pg(), job, How::Fail(&text(message)), None).await })
}

/// Releases the claim on an unfinished row: the next worker can claim it.
///
/// # Locking
///
/// `UPDATE … SET locked_until = NULL, locked_by = NULL`, if the claim is held and has not expired.
///
/// # Errors
///
/// As [`complete`].
///
/// # Cancel safety
///
/// As [`complete`].
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
    let answer = job.answer();
    let outcome = change(conn, &statement).await;
    if !matches!(&outcome, Err(Error::Database(error)) if is_connection_lost(error)) {
        answer.arrived();
    }
    if !outcome? {
        return Err(job.lost());
    }
    ending.done(is_inside);
    Ok(())
}

/// Changes the row of a claim; `false` if the claim was not held any more.
async fn change<T: Claim, K: QueryFragment<Pg> + Send + Sync>(
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
