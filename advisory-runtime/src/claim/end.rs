//! The public functions that end a claim: complete, fail, retry, release and delete.

pub(super) mod send;

use super::next::Async;
use super::sql::Fragment;
use super::table::Claim;
#[cfg(feature = "diesel-async")]
use super::table::{Fails, KeepsCompleted, Retries};
use super::{Claimed, Error};
use crate::driver::Queries;
use crate::rows::End;
use diesel::AsChangeset;
use diesel::pg::Pg;
use diesel::query_builder::QueryFragment;
use send::end_one;
use std::marker::PhantomData;
#[cfg(feature = "diesel-async")]
use {crate::Connection, std::pin::Pin, std::time::Duration};

#[cfg(feature = "diesel-async")]
type Boxed<'f> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'f>>;

/// The statement that [`end`](super::end) begins.
#[must_use = "the claim goes on until `complete`, `fail`, `retry` or `release`"]
pub struct EndStatement<'j, T: Claim, Kind = Async> {
    job: &'j Claimed<T>,
    changes: Vec<Fragment<'j>>,
    kind: PhantomData<fn() -> Kind>,
}

impl<'j, T: Claim, Kind> EndStatement<'j, T, Kind> {
    pub(crate) const fn new(job: &'j Claimed<T>) -> Self {
        Self {
            job,
            changes: Vec::new(),
            kind: PhantomData,
        }
    }

    /// Sets columns of yours: `row_count.eq(rows)`, a tuple of such assignments, or a struct that
    /// implements `AsChangeset`.
    ///
    /// The server refuses the columns that the end itself sets, such as `locked_by`.
    pub fn set<S>(mut self, changes: S) -> Self
    where
        S: AsChangeset<Target = T::Table, Changeset: QueryFragment<Pg> + Send + Sync + 'j>,
    {
        self.changes.push(Box::new(changes.as_changeset()));
        self
    }

    pub(crate) async fn send<D: Queries>(
        self,
        conn: &mut D,
        end: End,
        message: &str,
    ) -> Result<(), Error> {
        end_one(conn, self.job, end, message, &self.changes).await
    }
}

/// Each method has the arguments and errors of the function with its name.
#[cfg(feature = "diesel-async")]
impl<'j, T: Claim> EndStatement<'j, T> {
    /// Completes the job, as [`complete`](super::complete) does.
    pub fn complete<'f, C: Connection>(self, conn: &'f mut C) -> Boxed<'f>
    where
        T: KeepsCompleted,
        'j: 'f,
    {
        Box::pin(async move { self.send(conn.pg(), End::Complete, "").await })
    }

    /// Fails the job for good, as [`fail`](super::fail) does.
    pub fn fail<'f, C: Connection>(self, conn: &'f mut C, message: &'f str) -> Boxed<'f>
    where
        T: Fails,
        'j: 'f,
    {
        Box::pin(async move { self.send(conn.pg(), End::Fail, message).await })
    }

    /// Ends a failed attempt, as [`retry`](super::retry) does.
    pub fn retry<'f, C: Connection>(
        self,
        conn: &'f mut C,
        message: &'f str,
        after: Option<Duration>,
    ) -> Boxed<'f>
    where
        T: Retries,
        'j: 'f,
    {
        Box::pin(async move { self.send(conn.pg(), End::Retry { after }, message).await })
    }

    /// Releases the claim, as [`release`](super::release) does.
    pub fn release<'f, C: Connection>(self, conn: &'f mut C) -> Boxed<'f>
    where
        'j: 'f,
    {
        Box::pin(async move { self.send(conn.pg(), End::Release, "").await })
    }
}

/// Begins a statement that sets columns of yours and ends the claim in any way.
///
/// ```no_run
#[doc = example_of_claims!()]
/// claim::end(job).set(jobs::status.eq("sent")).complete(conn).await?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "diesel-async")]
pub const fn end<T: Claim>(job: &Claimed<T>) -> EndStatement<'_, T> {
    EndStatement::new(job)
}

/// Completes the job: ends the claim, and sets `completed_at` if the table has such a column.
///
/// Call it in the transaction that writes the job's results, so that both happen or neither does.
///
/// # Locking
///
/// `UPDATE … SET locked_until = NULL, locked_by = NULL, completed_at = clock_timestamp()`, if the
/// claim is held and has not expired.
///
/// In a transaction of yours the row stays locked until the transaction ends. The statement sets
/// `idle_in_transaction_session_timeout` for the rest of the transaction to the ttl, at least 10 s,
/// unless it is shorter already. If the process stops, the server then ends the session.
///
/// # Errors
///
/// [`Error::Lost`] if the claim has expired or was finished: nothing was changed, and another
/// worker may have the job. [`Error::CommitUnknown`], outside of a transaction, if the connection
/// was lost, or if the claim no longer holds the row after an error of the server: the job may be
/// completed. Otherwise [`Error::Database`].
///
/// # Cancel safety
///
/// Not cancel safe: the job may be completed or not; if not, the claim expires.
///
/// # Examples
///
/// ```no_run
#[doc = example_of_claims!()]
/// conn.transaction(async |conn| {
///     // … the job's results …
///     claim::complete(conn, job).await
/// })
/// .await?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "diesel-async")]
pub async fn complete<T: Claim, C: Connection>(
    conn: &mut C,
    job: &Claimed<T>,
) -> Result<(), Error> {
    end_one(conn.pg(), job, End::Complete, "", &[]).await
}

/// Fails the job for good: sets `failed_at`, and `error_message` if the table has such a column.
///
/// To let another worker try the job, call [`release`]. A call does not compile for a table without
/// `failed_at`.
///
/// # Locking
///
/// The `UPDATE` of [`complete`] with `failed_at = clock_timestamp(), error_message = $1`. U+0000 in
/// the message becomes U+FFFD.
// For an `async fn` the compiler would report a missing column three times.
#[cfg(feature = "diesel-async")]
pub fn fail<'f, T, C>(conn: &'f mut C, job: &'f Claimed<T>, message: &'f str) -> Boxed<'f>
where
    T: Fails,
    C: Connection,
{
    Box::pin(async move { end_one(conn.pg(), job, End::Fail, message, &[]).await })
}

/// Ends a failed attempt. The row can be claimed again after a pause; rows that are due come first.
///
/// The pause is `after`, or the backoff of `#[claim(backoff = "10s..10m")]`: the first time after
/// the first attempt, doubled after each further one up to the second time, less a random part of
/// up to a half. After the last attempt that `#[claim(max_attempts = …)]` allows, the row fails for
/// good instead. The message is stored if the table has `error_message`. A call does not compile
/// for a table without `run_at`.
///
/// # Locking
///
/// The `UPDATE` of [`complete`] with `run_at = clock_timestamp() + pause, error_message = $1`; at
/// the last attempt `failed_at` instead of `run_at`.
// Not an `async fn`, like `fail`.
#[cfg(feature = "diesel-async")]
pub fn retry<'f, T, C>(
    conn: &'f mut C,
    job: &'f Claimed<T>,
    message: &'f str,
    after: Option<Duration>,
) -> Boxed<'f>
where
    T: Retries,
    C: Connection,
{
    Box::pin(async move { end_one(conn.pg(), job, End::Retry { after }, message, &[]).await })
}

/// Deletes the row, if the claim is still held: for tables that do not keep completed rows.
///
/// With `#[claim(completed_at = "delete")]`, [`complete`] and [`run`](super::run) delete it too.
///
/// # Locking
///
/// `DELETE FROM … WHERE id = $1 AND locked_by = $2 AND locked_until > clock_timestamp()`. In a
/// transaction it sets the timeout of [`complete`].
///
/// # Errors
///
/// The errors of [`complete`], and [`Error::Database`] if another row refers to this one.
#[cfg(feature = "diesel-async")]
pub async fn delete<T: Claim, C: Connection>(conn: &mut C, job: &Claimed<T>) -> Result<(), Error> {
    end_one(conn.pg(), job, End::Delete, "", &[]).await
}

/// Releases the claim on an unfinished row, so that the next worker can claim it. The attempt does
/// not count.
///
/// # Locking
///
/// The `UPDATE` of [`complete`] without `completed_at`.
#[cfg(feature = "diesel-async")]
pub async fn release<T: Claim, C: Connection>(conn: &mut C, job: &Claimed<T>) -> Result<(), Error> {
    end_one(conn.pg(), job, End::Release, "", &[]).await
}
