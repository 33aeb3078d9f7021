//! Who holds a lock, waits for one, or stands in the way: a backend, as far as this role may see it.

use super::Application;
use super::names::Names;
use super::row::{Row, duration};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// A session of the server that has to do with the advisory locks of this database.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backend {
    /// Its process id.
    pub pid: i32,
    /// The role that it logged in as, if it did.
    pub user: Option<String>,
    /// What it calls itself.
    pub application: Application,
    /// What it does.
    pub activity: Activity,
    /// What kind of lock it waits for, as `pg_locks` calls it: `advisory`, `transactionid` and `tuple` for a row, `relation`, …
    pub waits_for: Option<String>,
    /// Who has to go before it gets on, as `pg_blocking_pids` says: holders, and those who wait ahead of it. 0 is a prepared
    /// transaction.
    pub blocked_by: Vec<i32>,
    /// When it began, which tells it from a later one of the same process id.
    pub(super) started: Option<i64>,
    pub(super) is_settled: bool,
}

/// What a backend does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity {
    /// It is seen.
    #[non_exhaustive]
    Visible {
        /// Whether it runs a statement, and whether a transaction is open.
        state: State,
        /// How long it has been in that state.
        state_age: Duration,
        /// Its statement, or the last one when none runs; the server cuts it at `track_activity_query_size`.
        query: String,
        /// How long its transaction is open, if one is.
        transaction_age: Option<Duration>,
        /// Where its client is; `None` for a socket of the server's own machine.
        client: Option<IpAddr>,
    },
    /// It is another role's, whose statement, state, ages and client the server does not show to this one.
    #[non_exhaustive]
    Hidden {
        /// A role whose members see it: `pg_monitor`. (`pg_read_all_stats`, which it contains, is enough.)
        needs: &'static str,
    },
    /// It has ended since.
    Gone,
}

/// What a session is busy with, as `pg_stat_activity` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// It runs a statement, or waits in one.
    Active,
    /// No statement runs, and no transaction is open: what it holds is a session-level lock.
    Idle,
    /// A transaction is open, and its client sends nothing.
    IdleInTransaction,
    /// So it is, after a statement that failed.
    IdleInFailedTransaction,
    /// The server does not keep it: `track_activities` is off.
    Disabled,
    /// Another one, as the server calls it.
    Other(String),
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Active => "active",
            Self::Idle => "idle",
            Self::IdleInTransaction => "idle in transaction",
            Self::IdleInFailedTransaction => "idle in transaction (aborted)",
            Self::Disabled => "disabled",
            Self::Other(state) => state,
        })
    }
}

impl State {
    fn of(state: Option<&str>) -> Self {
        match state {
            Some("active") => Self::Active,
            Some("idle") => Self::Idle,
            Some("idle in transaction") => Self::IdleInTransaction,
            Some("idle in transaction (aborted)") => Self::IdleInFailedTransaction,
            Some("disabled") | None => Self::Disabled,
            Some(other) => Self::Other(other.to_owned()),
        }
    }
}

impl Backend {
    pub(super) fn of(pid: i32, row: &Row, names: &Names) -> Self {
        let flag = |value: Option<bool>| value == Some(true);
        let activity = if !flag(row.is_there) {
            Activity::Gone
        } else if flag(row.is_visible) {
            Activity::Visible {
                state: State::of(row.state.as_deref()),
                state_age: duration(row.state_age.unwrap_or(0)),
                query: row.query.clone().unwrap_or_default(),
                transaction_age: row.transaction_age.map(duration),
                client: row.client_addr.as_ref().and_then(|text| text.parse().ok()),
            }
        } else {
            Activity::Hidden { needs: PG_MONITOR }
        };
        Self {
            pid,
            user: row.user_name.clone(),
            application: names.application(row.application_name.as_deref().unwrap_or_default()),
            activity,
            waits_for: row.waits_for.clone(),
            blocked_by: row.blocked_by.clone().unwrap_or_default(),
            started: row.started,
            is_settled: flag(row.is_settled),
        }
    }

    /// Whether it was idle all the while that the locks were read, so that what it holds is no transaction's.
    pub(super) fn is_idle(&self) -> bool {
        let state = State::Idle;
        self.is_settled
            && matches!(&self.activity, Activity::Visible { state: it, .. } if *it == state)
    }
}

/// The role that is made for this.
pub(super) const PG_MONITOR: &str = "pg_monitor";
