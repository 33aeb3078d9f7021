//! Leases in memory, for unit tests of functions that run under a lease.

use super::backoff::Refusal;
use super::store::{Acquisition, LeaseStep, Store};
use super::{Error, FencingToken, Lease, Leases, Row, Table};
use crate::renewal::{Expiry, Sent};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// A table of leases in memory; see [`Leases::in_memory`]. A clone is the same table.
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::lease::{Error, Leases, Request};
///
/// # async fn f() -> Result<(), Error> {
/// let leases = Leases::in_memory();
/// let guard = leases.acquire(Request::text("report:2026-01")).await?;
/// let second = leases.acquire(Request::text("report:2026-01")).await;
/// assert!(second.is_err_and(|error| error.is_held()));
/// guard.finish(Ok(())).await
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct InMemory(Arc<Mutex<Rows>>);

#[derive(Debug)]
struct Rows {
    last_token: i64,
    by_key: HashMap<[u8; 32], Entry>,
}

impl Default for Rows {
    fn default() -> Self {
        Self {
            // Of a server that was never promoted, so that a column which is too small is found.
            last_token: 1 << 40,
            by_key: HashMap::new(),
        }
    }
}

#[derive(Debug)]
struct Entry {
    grant_id: i64,
    is_kept: bool,
    token: i64,
    pattern: &'static str,
    holder: Arc<str>,
    data: Option<String>,
    since: SystemTime,
    until: Instant,
}

impl Entry {
    fn is_valid(&self) -> bool {
        Instant::now() < self.until
    }

    fn row(&self, key_hash: [u8; 32]) -> Row {
        let remaining = self.until.saturating_duration_since(Instant::now());
        Row {
            key_hash,
            token: FencingToken(self.token),
            pattern: Some(self.pattern.to_owned()).filter(|pattern| !pattern.is_empty()),
            key: None,
            holder: self.holder.to_string(),
            data: self.data.clone(),
            is_done: self.is_kept,
            acquired_at: self.since,
            expires_at: SystemTime::now() + remaining,
            remaining,
        }
    }
}

impl Leases<InMemory> {
    /// Leases in a new table in memory, for unit tests without a database.
    ///
    /// They behave as those in a database: one holder per key, growing tokens, `wait`, `keep`, renewal and expiry. Time is tokio's, so a
    /// test can pause and advance it. [`Lease::fence`], [`Lease::complete`] and [`Lease::is_current`] do not work with them, since they
    /// read the table in the database.
    ///
    /// # Examples
    ///
    /// ```
    /// use advisory_runtime::advisory_lease;
    /// use advisory_runtime::lease::{Error, Leases, Source};
    ///
    /// struct Reports<S> {
    ///     leases: S, // a pool in the program
    /// }
    ///
    /// impl<S: Source> Reports<S> {
    ///     #[advisory_lease(key = "report:<month>", pool = self.leases, keep = "24h", on_done = Ok(false))]
    ///     async fn send(&self, month: &str) -> Result<bool, Error> {
    ///         Ok(true)
    ///     }
    /// }
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let reports = Reports { leases: Leases::in_memory() };
    /// assert!(reports.send("2026-11").await.unwrap());
    /// assert!(!reports.send("2026-11").await.unwrap(), "done for a day");
    /// # });
    /// ```
    #[must_use]
    pub fn in_memory() -> Self {
        Self::new(InMemory::default())
    }
}

impl InMemory {
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the entry if it is this grant's.
    fn change(&self, lease: &Lease, change: impl FnOnce(&mut Entry) -> bool) -> bool {
        let mut rows = self.rows();
        let entry = rows.by_key.get_mut(&lease.key_hash);
        let ours = entry.filter(|entry| entry.grant_id == lease.grant_id);
        ours.is_some_and(change)
    }
}

impl Store for InMemory {
    async fn attempt(
        &self,
        table: &Table,
        acquisition: &Acquisition,
        _: Option<Duration>,
    ) -> Result<Result<Lease, Refusal>, Error> {
        let (request, sent) = (&acquisition.request, Sent::now());
        let until = Expiry::after(sent, request.ttl);
        let key_hash = request.key_hash();
        let mut rows = self.rows();
        if let Some(entry) = rows.by_key.get(&key_hash).filter(|entry| entry.is_valid()) {
            let left = entry.until.saturating_duration_since(Instant::now());
            return Ok(Err(if entry.is_kept {
                Refusal::Done { remaining: left }
            } else {
                Refusal::Held {
                    left,
                    lock_timeout: None,
                }
            }));
        }
        rows.last_token += 1;
        let entry = Entry {
            grant_id: acquisition.grant_id,
            is_kept: false,
            token: rows.last_token,
            pattern: request.lock,
            holder: Arc::clone(&table.holder),
            data: request.data.clone(),
            since: SystemTime::now(),
            until: until.steady(),
        };
        let token = FencingToken(entry.token);
        rows.by_key.insert(key_hash, entry);
        Ok(Ok(Lease::new(
            table,
            request,
            acquisition.grant_id,
            token,
            until,
        )))
    }

    async fn step(
        &self,
        lease: &Lease,
        step: LeaseStep,
        _: Duration,
        _: Duration,
    ) -> Result<bool, Error> {
        let (sent, now) = (Sent::now(), Instant::now());
        let done = self.change(lease, |entry| {
            let (is_valid, was_kept) = (entry.is_valid(), entry.is_kept);
            match step {
                LeaseStep::Renew(ttl) if is_valid && !was_kept => {
                    entry.until = entry.until.max(now + ttl);
                }
                LeaseStep::Release if !was_kept => entry.until = entry.until.min(now),
                LeaseStep::IsKept => return was_kept,
                LeaseStep::Keep(keep) if is_valid => {
                    (entry.is_kept, entry.until) = (true, now + keep);
                }
                _ => return false,
            }
            true
        });
        match step {
            LeaseStep::Renew(ttl) if done => lease.tenure.renewed(sent, ttl),
            LeaseStep::IsKept => {}
            _ => lease.tenure.lose(),
        }
        Ok(done)
    }

    async fn holds(&self, _: &Table, lease: &Lease) -> Result<bool, Error> {
        Ok(self.change(lease, |entry| entry.is_valid() && !entry.is_kept))
    }

    async fn list(&self, _: &Table) -> Result<Vec<Row>, Error> {
        let rows = self.rows();
        let valid = rows.by_key.iter().filter(|(_, entry)| entry.is_valid());
        let mut valid: Vec<Row> = valid.map(|(hash, entry)| entry.row(*hash)).collect();
        valid.sort_by_key(|row| row.remaining);
        Ok(valid)
    }

    async fn sweep(&self, _: &Table) -> Result<usize, Error> {
        let mut rows = self.rows();
        let before = rows.by_key.len();
        rows.by_key.retain(|_, entry| entry.is_valid());
        Ok(before - rows.by_key.len())
    }
}
