//! The query of `claim::next`: the rows to claim, and the columns to set.

use super::key::KeyValue;
use super::sql::{Fragment, Wanted};
use super::table::Claim;
use super::take::{Condition, take, take_first};
use super::{Claimed, Error};
use crate::driver::Queries;
use diesel::AsChangeset;
use diesel::pg::Pg;
use diesel::query_builder::QueryFragment;
use std::marker::PhantomData;

/// The query that [`next`](super::next) begins.
///
/// ```no_run
#[doc = example_of_claims!()]
/// let jobs: Vec<Claimed<Job>> = claim::next("worker-7")
///     .filter(jobs::kind.eq_any(["mail", "sms"]))
///     .set(jobs::status.eq("running"))
///     .load(conn, 20)
///     .await?;
/// # let _ = jobs;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is claimed until `first` or `load`"]
pub struct Next<'w, T: Claim, Kind = Async> {
    worker: &'w str,
    key: Option<Fragment<'w>>,
    conditions: Vec<Fragment<'w>>,
    changes: Vec<Fragment<'w>>,
    row: PhantomData<fn() -> (T, Kind)>,
}

/// Runs on a connection of diesel-async.
#[doc(hidden)]
#[derive(Debug)]
pub enum Async {}

/// Runs on a blocking connection of Diesel.
#[doc(hidden)]
#[derive(Debug)]
pub enum Blocking {}

impl<'w, T: Claim, Kind> Next<'w, T, Kind> {
    pub(crate) const fn new(worker: &'w str) -> Self {
        Self {
            worker,
            key: None,
            conditions: Vec::new(),
            changes: Vec::new(),
            row: PhantomData,
        }
    }

    /// Claims only rows for which a condition is true, such as `jobs::kind.eq("mail")`. Further
    /// conditions are added by `AND`.
    ///
    /// The rows are read in the order of the claims until one fits. If few fit, create an index of
    /// your own that begins with the columns of the condition.
    pub fn filter(mut self, condition: impl Condition<T::Table> + 'w) -> Self {
        self.conditions.push(Box::new(condition));
        self
    }

    /// Sets columns of yours in the same statement, such as `jobs::status.eq("running")`: what
    /// Diesel's `set` takes. The returned row has the new values.
    ///
    /// The server refuses the columns that the claim itself sets, such as `locked_by`.
    pub fn set<S>(mut self, changes: S) -> Self
    where
        S: AsChangeset<Target = T::Table, Changeset: QueryFragment<Pg> + Send + Sync + 'w>,
    {
        self.changes.push(Box::new(changes.as_changeset()));
        self
    }

    /// Claims the row with this key: what Diesel takes for the key's columns, such as `42` or
    /// `(matrix_id, &chunk_hash)`.
    ///
    /// It waits for a row that an open transaction has locked, at most for the session's
    /// `lock_timeout`, and then decides whether the row can be claimed; the ttl begins after the
    /// wait. It claims a row before its `run_at`, and one that has expired before the end of its
    /// backoff. With `#[claim(per = …)]` it also waits for the lock of the row's value, and `None`
    /// can mean that the value is at its limit.
    pub fn key(mut self, key: impl KeyValue<T::Key> + 'w) -> Self {
        self.key = Some(Box::new(key.bound()));
        self
    }

    fn wanted(&self) -> Wanted<'_> {
        Wanted {
            key: self.key.as_deref(),
            conditions: &self.conditions,
            changes: &self.changes,
            position: None,
            skips_expired: false,
        }
    }

    pub(crate) async fn take_first<D: Queries>(
        self,
        conn: &mut D,
    ) -> Result<Option<Claimed<T>>, Error> {
        take_first(conn, self.worker, self.wanted()).await
    }

    pub(crate) async fn take<D: Queries>(
        self,
        conn: &mut D,
        limit: u32,
    ) -> Result<Vec<Claimed<T>>, Error> {
        let (claimed, _) = take(conn, self.worker, limit, self.wanted()).await?;
        Ok(claimed)
    }
}

#[cfg(feature = "diesel-async")]
impl<T: Claim> Next<'_, T> {
    /// Claims the first row.
    ///
    /// # Errors
    ///
    /// [`Error::Database`], also when `lock_timeout` ends the wait for a row by its
    /// [`key`](Self::key) (SQLSTATE 55P03). [`Error::StaleSnapshot`] with `per`, in a transaction
    /// of yours that is REPEATABLE READ or SERIALIZABLE.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a row may stay claimed until the claim expires.
    pub async fn first<C: crate::Connection>(
        self,
        conn: &mut C,
    ) -> Result<Option<Claimed<T>>, Error> {
        self.take_first(conn.pg()).await
    }

    /// Claims the first rows, at most `limit`, in their order. For small jobs this is cheaper than
    /// [`first`](Self::first).
    ///
    /// All claims expire at once, so choose a `limit` that is done well within the ttl, or
    /// [`renew`](super::renew) them. Each has its own `locked_by`, and at most one of them is a row
    /// with an expired claim. A row that cannot be read as a `T` is left out, and stays claimed
    /// until its claim expires; if it is the only one, it is the error. With `#[claim(per = …)]`
    /// each limit is a separate statement that every connection prepares, so use few of them.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: rows may stay claimed until their claims expire.
    pub async fn load<C: crate::Connection>(
        self,
        conn: &mut C,
        limit: u32,
    ) -> Result<Vec<Claimed<T>>, Error> {
        self.take(conn.pg(), limit).await
    }
}

/// Claims the first row that is available or expired, in the order of `#[claim(order = …)]`.
///
/// `worker` is a name for people who read the table; several workers can share it. U+0000, which
/// PostgreSQL's texts cannot contain, becomes U+FFFD. [`Next::first`] claims one row and
/// [`Next::load`] several; [`Next::filter`], [`Next::set`] and [`Next::key`] come before them.
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
/// UPDATE sync_jobs SET locked_until = clock_timestamp() + ttl, locked_by = worker || '#' || uuid
/// FROM advisory_claim WHERE (sync_jobs.id) = (advisory_claim.key_0) RETURNING …
/// ```
///
/// Inside a transaction of yours, the row stays locked until the transaction ends, and the claim
/// takes effect then. If the transaction is rolled back, so is the claim: drop the value.
///
/// With `#[claim(per = …, limit = …)]` it is a transaction of two statements, sent at once: the
/// first locks the value of the first row that can be claimed, by `pg_try_advisory_xact_lock` of a
/// hash of the value, and the second counts and claims. If other sessions have locked all values
/// that have room, it tries again for up to 255 ms. In a transaction of yours the locks last until
/// the transaction ends.
///
/// # Examples
///
/// ```no_run
#[doc = example_of_claims!()]
/// if let Some(job) = claim::next::<Job>("worker-7").first(conn).await? {
///     println!("job {}", job.id);
///     claim::complete(conn, &job).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "diesel-async")]
pub const fn next<T: Claim>(worker: &str) -> Next<'_, T> {
    Next::new(worker)
}
