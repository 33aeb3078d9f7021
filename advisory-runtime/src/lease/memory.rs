//! Leases in memory, for unit tests of functions that run under a lease.

use super::grant::Granted;
use super::rows::{AnyLeaseRows, LeaseEnd};
use super::store::{Acquisition, Store};
use super::tries::Refusal;
use super::{Error, FencingToken, Lease, Leases, Row, Table};
use crate::rows::{Answering, Keeper, Moment, Renewed, Rows, Settled, Times};
use std::collections::HashMap;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// A table of leases in memory; see [`Leases::in_memory`]. A clone is the same table.
#[derive(Clone, Debug, Default)]
pub struct InMemory {
    table: Arc<Mutex<Entries>>,
    /// On the test's own runtime, whose time can be paused.
    keeper: Arc<Keeper>,
}

#[derive(Debug, Default)]
struct Entries {
    granted: i64,
    by_key: HashMap<[u8; 32], Entry>,
}

#[derive(Debug)]
struct Entry {
    lease: Lease,
    data: Option<String>,
    is_kept: bool,
    since: SystemTime,
    until: Instant,
}

impl Entry {
    fn is_valid(&self) -> bool {
        Instant::now() < self.until
    }

    fn remaining(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    fn row(&self) -> Row {
        let (lease, remaining) = (&self.lease, self.remaining());
        Row {
            key_hash: lease.key_hash,
            token: lease.token,
            pattern: Some(lease.lock.to_owned()).filter(|pattern| !pattern.is_empty()),
            key: None,
            holder: lease.table.holder.to_string(),
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
    /// They behave as those in a database: one holder per key, growing tokens, `wait`, `keep`,
    /// renewal and expiry. Time is tokio's, so a test can pause and advance it. [`Lease::fence`],
    /// [`Lease::complete`] and [`Lease::is_current`] do not work with them, since they read the
    /// table in the database.
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
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the entry if it is this grant's.
    fn change(&self, lease: &Lease, change: impl FnOnce(&mut Entry) -> bool) -> bool {
        let mut rows = self.entries();
        let entry = rows.by_key.get_mut(&lease.key_hash);
        let ours = entry.filter(|entry| entry.lease.grant_id == lease.grant_id);
        ours.is_some_and(change)
    }
}

impl Rows<Arc<Granted>> for InMemory {
    fn sends_on_caller(&self) -> bool {
        true
    }

    fn renew(&self, leases: Vec<Arc<Granted>>, _: Times) -> Answering<'_, Vec<Renewed>, Error> {
        let now = Instant::now();
        let renew = |granted: &Arc<Granted>| {
            let is_held = self.change(&granted.lease, |entry| {
                let is_held = entry.is_valid() && !entry.is_kept;
                if is_held {
                    entry.until = entry.until.max(now + granted.lease.hold.ttl);
                }
                is_held
            });
            if is_held {
                Renewed::For(granted.lease.hold.ttl)
            } else {
                Renewed::Gone
            }
        };
        Box::pin(ready(Ok(leases.iter().map(renew).collect())))
    }

    /// There are no transactions.
    fn settled(&self, leases: Vec<Arc<Granted>>, _: Times) -> Answering<'_, Vec<Settled>, Error> {
        Box::pin(ready(Ok(vec![Settled::RolledBack; leases.len()])))
    }

    fn end(
        &self,
        row: Arc<Granted>,
        end: LeaseEnd,
        _: Times,
        _: bool,
    ) -> Answering<'_, bool, Error> {
        let now = Instant::now();
        let is_ended = self.change(&row.lease, |entry| {
            match end.keep {
                None if !entry.is_kept => entry.until = entry.until.min(now),
                Some(keep) if entry.is_valid() => {
                    (entry.is_kept, entry.until) = (true, now + keep);
                }
                _ => return false,
            }
            true
        });
        row.lease.hold.lose();
        Box::pin(ready(Ok(is_ended)))
    }
}

impl Store for InMemory {
    fn rows(&self) -> AnyLeaseRows {
        Box::new(self.clone())
    }

    fn identity(&self) -> Option<usize> {
        Some(Arc::as_ptr(&self.table).addr())
    }

    fn keeper(&self) -> Arc<Keeper> {
        Arc::clone(&self.keeper)
    }

    async fn attempt(
        &self,
        table: &Table,
        acquisition: &Acquisition,
        _: Option<Duration>,
    ) -> Result<Result<Lease, Refusal>, Error> {
        let (request, sent) = (&acquisition.request, Moment::now());
        let until = sent.plus(request.ttl);
        let key_hash = request.key_hash;
        let mut rows = self.entries();
        if let Some(entry) = rows.by_key.get(&key_hash).filter(|entry| entry.is_valid()) {
            let left = entry.remaining();
            return Ok(Err(if entry.is_kept {
                Refusal::Done { remaining: left }
            } else {
                Refusal::Held {
                    left,
                    lock_timeout: None,
                }
            }));
        }
        rows.granted += 1;
        // Like that of a server that was never promoted, so that a column which is too small is found.
        let token = FencingToken((1 << 40) + rows.granted);
        let lease = Lease::new(table, request, acquisition.grant_id, token, until);
        let entry = Entry {
            lease: lease.clone(),
            data: request.data.clone(),
            is_kept: false,
            since: SystemTime::now(),
            until: until.steady,
        };
        rows.by_key.insert(key_hash, entry);
        Ok(Ok(lease))
    }

    async fn holds(&self, _: &Table, lease: &Lease) -> Result<bool, Error> {
        Ok(self.change(lease, |entry| entry.is_valid() && !entry.is_kept))
    }

    async fn list(&self, _: &Table) -> Result<Vec<Row>, Error> {
        let rows = self.entries();
        let valid = rows.by_key.values().filter(|entry| entry.is_valid());
        let mut valid: Vec<Row> = valid.map(Entry::row).collect();
        valid.sort_by_key(|row| row.remaining);
        Ok(valid)
    }

    async fn sweep(&self, _: &Table) -> Result<usize, Error> {
        let mut rows = self.entries();
        let before = rows.by_key.len();
        rows.by_key.retain(|_, entry| entry.is_valid());
        Ok(before - rows.by_key.len())
    }
}
