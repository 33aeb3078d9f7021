//! Claims on rows of your tables, on blocking connections, with the types of [`crate::claim`].
//!
//! ```no_run
//! use advisory_runtime::blocking::claim;
//! use advisory_runtime::claim::{Claim, Error};
//! use diesel::{Connection, PgConnection};
//!
//! fn work<Job: Claim>(conn: &mut PgConnection) -> Result<(), Error> {
//!     while let Some(job) = claim::next::<Job>("worker-7").first(conn)? {
//!         conn.transaction(|conn| {
//!             // … the job's results …
//!             claim::complete(conn, &job)
//!         })?;
//!     }
//!     Ok(())
//! }
//! ```
//!
//! [`Worker::run_blocking`] is this loop for several rows at a time. [`run`] and [`renew_while`]
//! renew a claim on a thread. A blocking body cannot be dropped: if it has lost its claim, it runs
//! to its end, and its result is refused. Between two steps it can check [`Claimed::deadline`].

mod run;
mod worker;

use super::Connection;
use crate::claim::{
    Blocking, Claim, Claimed, Counts, End, EndStatement, Error, Fails, KeepsCompleted, Next,
    Retries, counts_on, end_one, renew_or_lose,
};
use crate::driver::block_on;
use std::time::Duration;

pub use crate::claim::{Worker, indexes, state};
pub use run::{renew_while, run};

/// Claims the first rows, or the one with a key: see [`crate::claim::next`].
pub const fn next<T: Claim>(worker: &str) -> Next<'_, T, Blocking> {
    Next::new(worker)
}

impl<T: Claim> Next<'_, T, Blocking> {
    /// Claims the first row: see [`crate::claim::next`].
    pub fn first<C: Connection>(self, conn: &mut C) -> Result<Option<Claimed<T>>, Error> {
        block_on(self.take_first(conn.pg()))
    }

    /// Claims the first rows, at most `limit`, in their order.
    pub fn load<C: Connection>(self, conn: &mut C, limit: u32) -> Result<Vec<Claimed<T>>, Error> {
        block_on(self.take(conn.pg(), limit))
    }
}

/// Begins a statement that sets columns of yours and ends the claim: see [`crate::claim::end`].
pub const fn end<T: Claim>(job: &Claimed<T>) -> EndStatement<'_, T, Blocking> {
    EndStatement::new(job)
}

/// Each takes what the function of its name takes, and fails as it does.
impl<T: Claim> EndStatement<'_, T, Blocking> {
    /// Completes the job.
    pub fn complete<C: Connection>(self, conn: &mut C) -> Result<(), Error>
    where
        T: KeepsCompleted,
    {
        block_on(self.send(conn.pg(), End::Complete, ""))
    }

    /// Fails the job for good.
    pub fn fail<C: Connection>(self, conn: &mut C, message: &str) -> Result<(), Error>
    where
        T: Fails,
    {
        block_on(self.send(conn.pg(), End::Fail, message))
    }

    /// Ends a failed attempt.
    pub fn retry<C: Connection>(
        self,
        conn: &mut C,
        message: &str,
        after: Option<Duration>,
    ) -> Result<(), Error>
    where
        T: Retries,
    {
        block_on(self.send(conn.pg(), End::Retry { after }, message))
    }

    /// Releases the claim.
    pub fn release<C: Connection>(self, conn: &mut C) -> Result<(), Error> {
        block_on(self.send(conn.pg(), End::Release, ""))
    }
}

/// Renews the claim: see [`crate::claim::renew`].
pub fn renew<T: Claim, C: Connection>(conn: &mut C, job: &Claimed<T>) -> Result<(), Error> {
    block_on(renew_or_lose(conn.pg(), job))
}

/// Completes the job: see [`crate::claim::complete`].
pub fn complete<T: Claim, C: Connection>(conn: &mut C, job: &Claimed<T>) -> Result<(), Error> {
    block_on(end_one(conn.pg(), job, End::Complete, "", &[]))
}

/// Fails the job for good: see [`crate::claim::fail`].
pub fn fail<T: Fails, C: Connection>(
    conn: &mut C,
    job: &Claimed<T>,
    message: &str,
) -> Result<(), Error> {
    block_on(end_one(conn.pg(), job, End::Fail, message, &[]))
}

/// Ends a failed attempt: see [`crate::claim::retry`].
pub fn retry<T: Retries, C: Connection>(
    conn: &mut C,
    job: &Claimed<T>,
    message: &str,
    after: Option<Duration>,
) -> Result<(), Error> {
    let end = End::Retry { after };
    block_on(end_one(conn.pg(), job, end, message, &[]))
}

/// Deletes the row, if the claim is still held: see [`crate::claim::delete`].
pub fn delete<T: Claim, C: Connection>(conn: &mut C, job: &Claimed<T>) -> Result<(), Error> {
    block_on(end_one(conn.pg(), job, End::Delete, "", &[]))
}

/// Releases the claim on an unfinished row: see [`crate::claim::release`].
pub fn release<T: Claim, C: Connection>(conn: &mut C, job: &Claimed<T>) -> Result<(), Error> {
    block_on(end_one(conn.pg(), job, End::Release, "", &[]))
}

/// Counts the rows of a table by their state: see [`crate::claim::counts`].
pub fn counts<T: Claim, C: Connection>(conn: &mut C) -> Result<Counts, Error> {
    block_on(counts_on::<T, _>(conn.pg()))
}
