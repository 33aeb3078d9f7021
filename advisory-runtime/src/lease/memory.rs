//! A lease table in memory, for unit tests of what runs under a lease.
//!
//! It promises what the table of the database does, by tokio's clock: `tokio::time::pause` makes a lease of a day end at once.

use super::acquire::{Grant, random};
use super::{FencingToken, Lease, Leases, Request, Row};
use crate::lease::patience::Refusal;
use crate::{Error, Pool};
use diesel_async::AsyncPgConnection;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// A table of leases in memory, in place of a pool: see [`Leases::in_memory`]. A copy is the same table.
#[derive(Clone, Debug, Default)]
pub struct InMemory {
    rows: Arc<Mutex<HashMap<[u8; 32], Memory>>>,
}

/// One key's row, which stays.
#[derive(Debug)]
struct Memory {
    /// None after a release and while it is kept.
    grant_id: Option<i64>,
    token: i64,
    holder: String,
    since: SystemTime,
    until: Instant,
}

impl Memory {
    fn is_held(&self) -> bool {
        Instant::now() < self.until
    }

    fn row(&self, key_hash: [u8; 32]) -> Option<Row> {
        let remaining = self.until.saturating_duration_since(Instant::now());
        self.is_held().then(|| Row {
            key_hash,
            key: None,
            holder: self.holder.clone(),
            token: FencingToken(self.token),
            acquired_at: self.since,
            expires_at: SystemTime::now() + remaining,
            remaining,
        })
    }
}

impl Leases<InMemory> {
    /// Leases in a new table in memory, for unit tests that need no database.
    ///
    /// Functions of `scope = "lease"` run on it as on the database's: one holder a key, tokens that grow, `wait`, `keep`, renewal in the
    /// background, expiry. Time is tokio's, so that a test can pause and advance it. What takes a connection of its own still needs
    /// one; [`Lease::fence`] and [`Lease::is_current`] ask the database's table, which knows nothing of this one.
    ///
    /// # Examples
    ///
    /// ```
    /// use advisory_runtime::lease::{Leases, Source};
    /// use advisory_runtime::{Error, advisory_lock};
    ///
    /// struct Webhooks<S> {
    ///     leases: S, // a pool in the program
    /// }
    ///
    /// impl<S: Source> Webhooks<S> {
    ///     #[advisory_lock(key = "webhook:<id>", scope = "lease", pool = self.leases, keep = "24h", wait = "never", on_held = Ok(false))]
    ///     async fn handle(&self, id: &str) -> Result<bool, Error> {
    ///         Ok(true)
    ///     }
    /// }
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let webhooks = Webhooks { leases: Leases::in_memory() };
    /// assert!(webhooks.handle("evt_1").await.unwrap());
    /// assert!(!webhooks.handle("evt_1").await.unwrap(), "once is once");
    /// # });
    /// ```
    #[must_use]
    pub fn in_memory() -> Self {
        Self::new(InMemory::default())
    }
}

/// Lends nothing: leases ask it in place of a connection.
impl Pool for InMemory {
    type Lent<'p> = &'p mut AsyncPgConnection;

    async fn connection(&self) -> Result<Self::Lent<'_>, Error> {
        let none = "leases in memory have no connection: give the body one of a database, or none";
        Err(Error::Pool(none.into()))
    }

    fn memory(&self) -> Option<&InMemory> {
        Some(self)
    }
}

impl InMemory {
    fn rows(&self) -> MutexGuard<'_, HashMap<[u8; 32], Memory>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn attempt(&self, request: &Request, holder: &str) -> Result<Grant, Refusal> {
        let (key_hash, grant_id, sent) = (request.key_hash(), random(), Instant::now());
        let mut rows = self.rows();
        let before = rows.get(&key_hash);
        if let Some(held) = before.filter(|row| row.is_held()) {
            return Err(Refusal::Held {
                left: held.until - sent,
                lock_timeout: None,
            });
        }
        let token = before.map_or(0, |row| row.token) + 1;
        let row = Memory {
            grant_id: Some(grant_id),
            token,
            holder: holder.to_owned(),
            since: SystemTime::now(),
            until: sent + request.ttl,
        };
        rows.insert(key_hash, row);
        Ok(Grant {
            key_hash,
            grant_id,
            token: FencingToken(token),
            sent,
            is_test: false,
        })
    }

    /// What only the holder may do.
    fn own(&self, lease: &Lease, change: impl FnOnce(&mut Memory)) -> bool {
        let mut rows = self.rows();
        let row = rows.get_mut(&lease.key_hash);
        let own = row.filter(|row| row.grant_id == Some(lease.grant_id) && row.is_held());
        own.map(change).is_some()
    }

    pub(super) fn renew(&self, lease: &Lease, ttl: Duration) -> bool {
        let sent = Instant::now();
        let is_held = self.own(lease, |row| row.until = row.until.max(sent + ttl));
        if is_held {
            lease.standing.extend(sent, ttl);
        } else {
            lease.standing.lose();
        }
        is_held
    }

    pub(super) fn release(&self, lease: &Lease) -> bool {
        self.keep(lease, Duration::ZERO)
    }

    pub(super) fn keep(&self, lease: &Lease, keep: Duration) -> bool {
        let until = Instant::now() + keep;
        let mut rows = self.rows();
        let row = rows.get_mut(&lease.key_hash);
        // Who asks again keeps it anew.
        let kept = row.filter(|row| row.token == lease.token.0 && row.is_held());
        let is_kept = kept.map(|row| (row.grant_id, row.until) = (None, until));
        lease.standing.lose();
        is_kept.is_some()
    }

    pub(super) fn holds(&self, lease: &Lease) -> bool {
        self.own(lease, |_| ())
    }

    pub(super) fn find(&self, key_hash: [u8; 32]) -> Option<Row> {
        self.rows().get(&key_hash)?.row(key_hash)
    }

    /// Those that are held, soonest to expire first.
    pub(super) fn list(&self) -> Vec<Row> {
        let rows = self.rows();
        let mut held: Vec<Row> = rows
            .iter()
            .filter_map(|(hash, row)| row.row(*hash))
            .collect();
        held.sort_by_key(|row| row.remaining);
        held
    }
}
