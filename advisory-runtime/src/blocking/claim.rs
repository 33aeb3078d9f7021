//! Claims on rows of your tables, on blocking connections; as [`crate::claim`], whose types these functions use.
//!
//! ```no_run
//! use advisory_runtime::blocking::claim;
//! use advisory_runtime::claim::{Claim, Error};
//! use diesel::prelude::*;
//!
//! diesel::table! {
//!     sync_jobs (id) {
//!         id -> BigInt,
//!         created_at -> Timestamptz,
//!         locked_until -> Nullable<Timestamptz>,
//!         locked_by -> Nullable<Text>,
//!         completed_at -> Nullable<Timestamptz>,
//!     }
//! }
//!
//! #[derive(Queryable, Selectable, Claim)]
//! #[diesel(table_name = sync_jobs)]
//! #[claim(order = "created_at", ttl = "5m")]
//! struct SyncJob {
//!     id: i64,
//! }
//!
//! fn work(conn: &mut PgConnection) -> Result<(), Error> {
//!     while let Some(job) = claim::next::<SyncJob, _>(conn, "worker-7")? {
//!         sync(&job);
//!         claim::complete(conn, &job)?;
//!     }
//!     Ok(())
//! }
//! # fn sync(_: &SyncJob) {}
//! ```
//!
//! [`run`] and [`renew_while`] renew a claim on a thread. Blocking work cannot be dropped, so work that has lost its claim runs to its end, and
//! its result is refused: between two steps, work can check [`Claimed::deadline`].

mod run;

use super::Connection;
use crate::claim::{
    Claim, Claimed, Condition, Counts, Error, Fails, How, KeepsCompleted, KeyValue, Retries, Wanted,
};
use crate::claim::{counts_on, finish, renew_or_lose, take_batch, take_by_key, take_first, text};
use crate::driver::block_on;
use diesel::AsChangeset;
use diesel::pg::Pg;
use diesel::query_builder::QueryFragment;
use std::time::Duration;

pub use crate::claim::{indexes, state};
pub use run::{renew_while, run};

/// Claims the first row that is available or expired; as [`crate::claim::next`].
///
/// # Locking
///
/// As [`crate::claim::next`].
///
/// # Errors
///
/// As [`crate::claim::next`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_blocking_claims!()]
/// if let Some(job) = claim::next::<Job, _>(conn, "worker-7")? {
///     println!("job {}", job.id);
///     claim::complete(conn, &job)?;
/// }
/// # Ok(())
/// # }
/// ```
pub fn next<T: Claim, C: Connection>(
    conn: &mut C,
    worker: &str,
) -> Result<Option<Claimed<T>>, Error> {
    block_on(take_first(conn.pg(), worker, Wanted::default()))
}

/// Claims the first rows, at most `limit`; as [`crate::claim::next_batch`].
///
/// # Locking
///
/// As [`crate::claim::next_batch`].
///
/// # Errors
///
/// As [`crate::claim::next_batch`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_blocking_claims!()]
/// for job in claim::next_batch::<Job, _>(conn, "worker-7", 20)? {
///     println!("job {}", job.id);
///     claim::complete(conn, &job)?;
/// }
/// # Ok(())
/// # }
/// ```
pub fn next_batch<T: Claim, C: Connection>(
    conn: &mut C,
    worker: &str,
    limit: u32,
) -> Result<Vec<Claimed<T>>, Error> {
    block_on(take_batch(conn.pg(), worker, limit, Wanted::default()))
}

/// Claims the first row of which a condition is true; as [`crate::claim::next_where`].
///
/// # Locking
///
/// As [`crate::claim::next_where`].
///
/// # Errors
///
/// As [`crate::claim::next_where`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_blocking_claims!()]
/// let mail = claim::next_where::<Job, _>(conn, "worker-7", jobs::kind.eq_any(["mail", "sms"]))?;
/// # let _ = mail;
/// # Ok(())
/// # }
/// ```
#[allow(
    clippy::needless_pass_by_value,
    reason = "the async function of this name takes it so"
)]
pub fn next_where<T: Claim, C: Connection>(
    conn: &mut C,
    worker: &str,
    condition: impl Condition<T::Table>,
) -> Result<Option<Claimed<T>>, Error> {
    let wanted = Wanted {
        condition: Some(&condition),
        changes: None,
    };
    block_on(take_first(conn.pg(), worker, wanted))
}

/// Claims the first rows of which a condition is true, at most `limit`; as [`crate::claim::next_batch_where`].
///
/// # Locking
///
/// As [`crate::claim::next_batch_where`].
///
/// # Errors
///
/// As [`crate::claim::next_batch_where`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_blocking_claims!()]
/// let mails = claim::next_batch_where::<Job, _>(conn, "worker-7", 20, jobs::kind.eq("mail"))?;
/// # let _ = mails;
/// # Ok(())
/// # }
/// ```
#[allow(
    clippy::needless_pass_by_value,
    reason = "the async function of this name takes it so"
)]
pub fn next_batch_where<T: Claim, C: Connection>(
    conn: &mut C,
    worker: &str,
    limit: u32,
    condition: impl Condition<T::Table>,
) -> Result<Vec<Claimed<T>>, Error> {
    let wanted = Wanted {
        condition: Some(&condition),
        changes: None,
    };
    block_on(take_batch(conn.pg(), worker, limit, wanted))
}

/// Claims the first row, and sets columns of yours; as [`crate::claim::next_with`].
///
/// # Locking
///
/// As [`crate::claim::next_with`].
///
/// # Errors
///
/// As [`crate::claim::next_with`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_blocking_claims!()]
/// let job = claim::next_with::<Job, _, _>(conn, "worker-7", jobs::status.eq("running"))?;
/// # let _ = job;
/// # Ok(())
/// # }
/// ```
pub fn next_with<T, C, S>(
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
    block_on(take_first(conn.pg(), worker, wanted))
}

/// Claims the first rows, at most `limit`, and sets columns of yours; as [`crate::claim::next_batch_with`].
///
/// # Locking
///
/// As [`crate::claim::next_batch_with`].
///
/// # Errors
///
/// As [`crate::claim::next_batch_with`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_blocking_claims!()]
/// let running = jobs::status.eq("running");
/// let some = claim::next_batch_with::<Job, _, _>(conn, "worker-7", 20, running)?;
/// # let _ = some;
/// # Ok(())
/// # }
/// ```
pub fn next_batch_with<T, C, S>(
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
    block_on(take_batch(conn.pg(), worker, limit, wanted))
}

/// Claims the row with this key, as [`crate::claim::by_key`] does.
///
/// # Locking
///
/// As [`crate::claim::by_key`].
///
/// # Errors
///
/// As [`crate::claim::by_key`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_blocking_claims!()]
/// let Some(job) = claim::by_key::<Job, _>(conn, "import of Tuesday", 42)? else {
///     return Ok(()); // somebody else has it, or it is done
/// };
/// # let _ = job;
/// # Ok(())
/// # }
/// ```
pub fn by_key<T: Claim, C: Connection>(
    conn: &mut C,
    worker: &str,
    key: impl KeyValue<T::Key>,
) -> Result<Option<Claimed<T>>, Error> {
    block_on(take_by_key(conn.pg(), worker, key))
}

/// Renews the claim; as [`crate::claim::renew`].
///
/// [`renew_while`] and [`run`] do so on a thread.
///
/// # Locking
///
/// As [`crate::claim::renew`].
///
/// # Errors
///
/// As [`crate::claim::renew`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_blocking_claims!()]
/// for part in 0..10 {
///     println!("job {}: part {part}", job.id);
///     claim::renew(conn, job)?; // an error if another worker has the row by now
/// }
/// # Ok(())
/// # }
/// ```
pub fn renew<T: Claim, C: Connection>(conn: &mut C, job: &Claimed<T>) -> Result<(), Error> {
    block_on(renew_or_lose(conn.pg(), job))
}

/// Completes the job; as [`crate::claim::complete`].
///
/// # Locking
///
/// As [`crate::claim::complete`].
///
/// # Errors
///
/// As [`crate::claim::complete`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_blocking_claims!()]
/// conn.transaction(|conn| {
///     // … the job's results …
///     claim::complete(conn, job)
/// })?;
/// # Ok(())
/// # }
/// ```
pub fn complete<T: Claim, C: Connection>(conn: &mut C, job: &Claimed<T>) -> Result<(), Error> {
    block_on(finish(conn.pg(), job, How::Complete, None))
}

/// Completes the job, and sets columns of yours in the same statement; as [`crate::claim::complete_with`].
///
/// # Locking
///
/// As [`crate::claim::complete_with`].
///
/// # Errors
///
/// As [`crate::claim::complete_with`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_blocking_claims!()]
/// claim::complete_with(conn, job, jobs::status.eq("sent"))?;
/// # Ok(())
/// # }
/// ```
pub fn complete_with<T, C, S>(conn: &mut C, job: &Claimed<T>, changes: S) -> Result<(), Error>
where
    T: KeepsCompleted,
    C: Connection,
    S: AsChangeset<Target = T::Table, Changeset: QueryFragment<Pg> + Send + Sync>,
{
    let changes = changes.as_changeset();
    block_on(finish(conn.pg(), job, How::Complete, Some(&changes)))
}

/// Fails the job for good; as [`crate::claim::fail`].
///
/// # Locking
///
/// As [`crate::claim::fail`].
///
/// # Errors
///
/// As [`crate::claim::fail`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_blocking_claims!()]
/// claim::fail(conn, job, "the address does not exist")?;
/// # Ok(())
/// # }
/// ```
pub fn fail<T: Fails, C: Connection>(
    conn: &mut C,
    job: &Claimed<T>,
    message: &str,
) -> Result<(), Error> {
    block_on(finish(conn.pg(), job, How::Fail(&text(message)), None))
}

/// Ends a failed attempt; as [`crate::claim::retry`].
///
/// # Locking
///
/// As [`crate::claim::retry`].
///
/// # Errors
///
/// As [`crate::claim::retry`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_blocking_claims!()]
/// // After the pause that `#[claim(backoff = …)]` says; `Some(time)` says it here.
/// claim::retry(conn, job, "the mail server does not answer", None)?;
/// # Ok(())
/// # }
/// ```
pub fn retry<T: Retries, C: Connection>(
    conn: &mut C,
    job: &Claimed<T>,
    message: &str,
    after: Option<Duration>,
) -> Result<(), Error> {
    let how = text(message);
    block_on(finish(conn.pg(), job, How::Retry(&how, after), None))
}

/// Deletes the row, if the claim is still held; as [`crate::claim::delete`].
///
/// # Locking
///
/// As [`crate::claim::delete`].
///
/// # Errors
///
/// As [`crate::claim::delete`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_blocking_claims!()]
/// claim::delete(conn, job)?;
/// # Ok(())
/// # }
/// ```
pub fn delete<T: Claim, C: Connection>(conn: &mut C, job: &Claimed<T>) -> Result<(), Error> {
    block_on(finish(conn.pg(), job, How::Delete, None))
}

/// Releases the claim on an unfinished row; as [`crate::claim::release`].
///
/// # Locking
///
/// As [`crate::claim::release`].
///
/// # Errors
///
/// As [`crate::claim::release`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_blocking_claims!()]
/// claim::release(conn, job)?; // not now: this worker stops
/// # Ok(())
/// # }
/// ```
pub fn release<T: Claim, C: Connection>(conn: &mut C, job: &Claimed<T>) -> Result<(), Error> {
    block_on(finish(conn.pg(), job, How::Release, None))
}

/// Counts the rows of a table by their state; as [`crate::claim::counts`].
///
/// # Errors
///
/// [`Error::Database`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_blocking_claims!()]
/// let Counts { available, failed, .. } = claim::counts::<Job, _>(conn)?;
/// println!("{available} wait, {failed} have failed");
/// # Ok(())
/// # }
/// ```
pub fn counts<T: Claim, C: Connection>(conn: &mut C) -> Result<Counts, Error> {
    block_on(counts_on::<T, _>(conn.pg()))
}
