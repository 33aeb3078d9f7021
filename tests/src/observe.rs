//! The state of a database, read through the observer. Tests wait for a state, not for a time.

use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};
use tokio_postgres::SimpleQueryMessage;

use crate::Database;

/// How long to wait for a state: a guard against hanging, longer than a busy machine stalls. It is
/// shorter than a minute, after which leases and the longest bounds of the tests end by themselves.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(50);

/// Between two polls of the server.
const INTERVAL: Duration = Duration::from_millis(10);

/// The advisory locks of this database, with their keys put together again: `bigint` keys have
/// `objsubid` 1, pairs 2.
const LOCKS: &str = "SELECT CASE objsubid WHEN 1 THEN (classid::bigint << 32) | objid::bigint END AS bigint_key, \
     classid::bigint AS first, objid::bigint AS second, mode, granted, pid \
     FROM pg_catalog.pg_locks WHERE locktype = 'advisory' \
     AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())";

/// All other sessions of this database.
const BACKENDS: &str = "SELECT pid, state, query FROM pg_catalog.pg_stat_activity \
     WHERE datname = pg_catalog.current_database() AND backend_type = 'client backend' \
     AND pid <> pg_catalog.pg_backend_pid()";

/// A lock key as `pg_locks` shows it, in one of the two key spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockedKey {
    /// A key of the `bigint` space.
    Bigint(i64),
    /// A key of the `(int, int)` space.
    Pair(i32, i32),
}

/// One advisory lock of a database, held or waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdvisoryLock {
    /// The lock key.
    pub key: LockedKey,
    /// `ExclusiveLock` or `ShareLock`.
    pub mode: String,
    /// True if it is held, false if its backend waits for it.
    pub granted: bool,
    /// The backend that holds it or waits for it.
    pub pid: i32,
}

impl fmt::Display for AdvisoryLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            mode,
            granted,
            pid,
        } = self;
        write!(
            f,
            "pid {pid} {} {mode} on {key:?}",
            if *granted { "holds" } else { "waits for" }
        )
    }
}

impl Database {
    /// The advisory locks of this database, held and waited for.
    pub async fn locks(&self) -> Vec<AdvisoryLock> {
        let rows = self
            .observer()
            .query(LOCKS, &[])
            .await
            .expect("the observer reads pg_locks");
        let int = |key: i64| i32::from_ne_bytes(u32::try_from(key).expect("an oid").to_ne_bytes());
        rows.iter()
            .map(|row| AdvisoryLock {
                key: match row.get("bigint_key") {
                    Some(key) => LockedKey::Bigint(key),
                    None => LockedKey::Pair(int(row.get("first")), int(row.get("second"))),
                },
                mode: row.get("mode"),
                granted: row.get("granted"),
                pid: row.get("pid"),
            })
            .collect()
    }

    /// Waits until a backend waits for the lock on this `bigint` key.
    pub async fn until_waiting(&self, key: i64) {
        self.until_waiters(key, 1).await;
    }

    /// Waits until at least `count` backends wait for the lock on this `bigint` key.
    pub async fn until_waiters(&self, key: i64, count: usize) {
        let claim = format!("{count} waiting for key {key}");
        let short = format!(
            "SELECT pg_catalog.count(*) || ' waiting' FROM ({LOCKS}) AS locks \
             WHERE bigint_key = {key} AND NOT granted HAVING pg_catalog.count(*) < {count}"
        );
        self.until_none(&claim, &short).await;
    }

    /// Waits until no backend waits for the lock on this `bigint` key; it may still be held.
    pub async fn until_no_waiters(&self, key: i64) {
        let left = format!(
            "SELECT pid || ' waits' FROM ({LOCKS}) AS locks WHERE bigint_key = {key} AND NOT granted"
        );
        self.until_none("no waiters", &left).await;
    }

    /// Waits until a backend runs a statement that contains this text.
    pub async fn until_active(&self, text: &str) {
        let claim = format!("a backend that runs {text}");
        let active = format!(
            "SELECT FROM ({BACKENDS}) AS backends \
             WHERE state = 'active' AND pg_catalog.strpos(query, '{text}') > 0"
        );
        self.until_some(&claim, &active).await;
    }

    /// Waits until this backend waits for a lock, of any kind.
    ///
    /// # Panics
    ///
    /// If it does not within the database's time limit.
    pub async fn until_blocked(&self, pid: i32) {
        let waits =
            format!("SELECT FROM pg_stat_activity WHERE pid = {pid} AND wait_event_type = 'Lock'");
        self.until_some("a statement that waits", &waits).await;
    }

    /// Waits until no advisory lock of this database is held or waited for.
    pub async fn until_no_locks(&self) {
        let left = format!("SELECT pid || ' has ' || mode FROM ({LOCKS}) AS locks");
        self.until_none("no advisory locks", &left).await;
    }

    /// Waits until the database is idle: no advisory lock, no running statement, no open
    /// transaction.
    pub async fn until_quiet(&self) {
        let left = format!(
            "SELECT pid || ' has ' || mode FROM ({LOCKS}) AS locks UNION ALL \
             SELECT pid || ' is ' || state || ': ' || query FROM ({BACKENDS}) AS backends \
             WHERE state = 'active' OR state LIKE 'idle in transaction%'"
        );
        self.until_none("a quiet database", &left).await;
    }

    /// Runs statements on the observer's connection. (Not `execute`: that is a method of every type
    /// under `RunQueryDsl`.)
    ///
    /// In a transaction that they begin, `pg_stat_activity` does not change after the first query,
    /// so waiting for a backend's state waits forever. Begin it on another connection.
    pub async fn run(&self, sql: &str) {
        self.observer()
            .batch_execute(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// The number that a query returns, run by the observer.
    pub async fn count(&self, sql: &str) -> i64 {
        let rows = self.texts(sql).await;
        rows.first()
            .and_then(|row| row.parse().ok())
            .unwrap_or_else(|| panic!("no number: {sql} gives {rows:?}"))
    }

    /// Terminates a backend, as an administrator would.
    pub async fn terminate(&self, pid: i32) {
        let ended = self
            .texts(&format!(
                "SELECT pg_catalog.pg_terminate_backend({pid})::int"
            ))
            .await;
        assert_eq!(ended, ["1"], "there is no backend {pid}");
    }

    /// Polls until `sql` returns a row: for states that have no method of their own.
    pub async fn until_some(&self, claim: &str, sql: &str) {
        let missing = format!("SELECT 'not yet' WHERE NOT EXISTS ({sql})");
        self.until_none(claim, &missing).await;
    }

    /// Polls until `sql` returns no row.
    pub async fn until_none(&self, claim: &str, sql: &str) {
        self.until_empty(self.timeout(), claim, sql).await;
    }

    /// Polls until `sql` returns no row, for at most `bound`. The last result counts, even if it
    /// arrives late.
    pub async fn until_empty(&self, bound: Duration, claim: &str, sql: &str) {
        let end = Instant::now() + bound;
        let mut poll = interval(INTERVAL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            poll.tick().await;
            let is_last = Instant::now() >= end;
            let answer = timeout_at(end + TIMEOUT, self.texts(sql)).await;
            let left = answer.unwrap_or_else(|_| vec!["the observer got no answer".to_owned()]);
            if left.is_empty() {
                return;
            }
            if is_last {
                let locks = timeout_at(Instant::now() + TIMEOUT, self.locks())
                    .await
                    .unwrap_or_default();
                let locks: Vec<String> = locks.iter().map(ToString::to_string).collect();
                panic!(
                    "waited {bound:?} for {claim}, and there is still: {left:#?}\nadvisory locks: {locks:#?}"
                );
            }
        }
    }

    /// The first column of the rows of `sql`, as text.
    async fn texts(&self, sql: &str) -> Vec<String> {
        let messages = self
            .observer()
            .simple_query(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        rows.collect()
    }
}
