//! A backend that holds a lock, waits for one or blocks one that does, and signals to it.

use super::Comment;
use super::row::{LockRow, duration};
use crate::sql::qualify::qualify;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// A session that holds an advisory lock of this database, waits for one, has tried to get one, or
/// blocks one that does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backend {
    /// Its process id.
    pub pid: i32,
    /// The role that it logged in as; `None` for a process of the server itself.
    pub user: Option<String>,
    /// Its `application_name`.
    pub application: String,
    /// The comment in front of its last query, if that query acquires a lock. The statements of a
    /// body have none.
    pub comment: Option<Comment>,
    /// Its activity.
    pub activity: Activity,
    /// True if the session is known to be a pooler's: if its role or database has the setting
    /// `advisory.pooler`, or if pgbouncer has added the client's address to the application's name
    /// (`application_name_add_host`).
    pub is_pooled: bool,
    /// The kind of lock that it waits for, as in `pg_locks`: `advisory`, `transactionid` and
    /// `tuple` for a row, `relation`, … It is `foreign advisory` for an advisory lock that only an
    /// extension can take, such as Citus.
    pub waits_for: Option<String>,
    /// The backends that block it, from `pg_blocking_pids`: holders, and waiters ahead of it. 0 is
    /// a prepared transaction.
    pub blocked_by: Vec<i32>,
    /// Its start, which no later backend with the same process id has.
    pub(super) started: Option<i64>,
    pub(super) age: Option<Duration>,
    pub(super) is_settled: bool,
}

/// The activity of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity {
    /// This role may see it.
    #[non_exhaustive]
    Visible {
        /// Its state.
        state: State,
        /// The time since it entered that state.
        state_age: Duration,
        /// The statement that it runs, or the last one if none runs. The server cuts it at
        /// `track_activity_query_size`.
        query: String,
        /// The age of its transaction, if one is open.
        transaction_age: Option<Duration>,
        /// The address of its client; `None` for a Unix-domain socket.
        client: Option<IpAddr>,
    },
    /// It belongs to another role, and the server does not show its statement, state, ages and
    /// client to this one.
    #[non_exhaustive]
    Hidden {
        /// The role that may see it: `pg_monitor`. (`pg_read_all_stats`, which it contains, is
        /// sufficient.)
        needs: &'static str,
    },
    /// It ended while the locks were read.
    Gone,
}

/// The state of a session, as in `pg_stat_activity`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// It runs a statement, or waits in one.
    Active,
    /// It runs no statement, and no transaction is open: a lock that it holds is session-level.
    Idle,
    /// A transaction is open, and no statement runs.
    IdleInTransaction,
    /// Like `IdleInTransaction`, after a statement that failed.
    IdleInFailedTransaction,
    /// Not known: `track_activities` is off.
    Disabled,
    /// Another state, by its name in `pg_stat_activity`.
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
    pub(super) fn of(pid: i32, row: &LockRow) -> Self {
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
            application: row.application_name.clone().unwrap_or_default(),
            comment: Comment::read(
                row.query.as_deref().unwrap_or_default(),
                flag(row.is_query_cut),
            ),
            activity,
            is_pooled: flag(row.is_pooled)
                || has_client_address(row.application_name.as_deref().unwrap_or_default()),
            waits_for: row.waits_for.clone(),
            blocked_by: row.blocked_by.clone().unwrap_or_default(),
            started: row.started,
            age: row.session_age.map(duration),
            is_settled: flag(row.is_settled),
        }
    }

    /// Returns `true` if it was idle while the locks were read: its locks are then session-level.
    pub(super) fn is_idle(&self) -> bool {
        let is_idle = matches!(
            &self.activity,
            Activity::Visible {
                state: State::Idle,
                ..
            }
        );
        is_idle && self.is_settled
    }

    /// Returns the time for which it has run no statement, if it ran none while the locks were
    /// read. It has held them for at least that long.
    pub(super) fn silent_for(&self) -> Option<Duration> {
        match &self.activity {
            Activity::Visible {
                state: State::Idle | State::IdleInTransaction | State::IdleInFailedTransaction,
                state_age,
                ..
            } if self.is_settled => Some(*state_age),
            _ => None,
        }
    }

    pub(super) const fn transaction_age(&self) -> Option<Duration> {
        match self.activity {
            Activity::Visible {
                transaction_age, ..
            } => transaction_age,
            Activity::Hidden { .. } | Activity::Gone => None,
        }
    }
}

impl Backend {
    /// The SQL that cancels its statement.
    pub(crate) fn cancel_sql(&self) -> String {
        self.signal_sql("pg_cancel_backend(t.pid)", "gone")
    }

    /// The SQL that terminates its session and waits for the end, so that its locks are free when
    /// the statement returns.
    pub(crate) fn terminate_sql(&self) -> String {
        self.signal_sql("pg_terminate_backend(t.pid, 5000::int8)", "sent")
    }

    fn signal_sql(&self, call: &str, otherwise: &str) -> String {
        let started = self.started;
        qualify(&format!(
            include_str!("sql/signal.sql"),
            pid = self.pid,
            started = started.map_or_else(|| "NULL".to_owned(), |started| started.to_string()),
            call = call,
            otherwise = otherwise,
        ))
    }
}

/// The outcome of a request to cancel a backend's statement or to terminate its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signal {
    /// The signal to cancel its statement was sent; or its session was terminated, and its locks
    /// are free.
    Done,
    /// The signal to terminate its session was sent. The session was still alive after five
    /// seconds.
    Sent,
    /// The backend has ended, or its process id now belongs to another one. No signal was sent.
    Gone,
    /// This role may not signal the backend. No signal was sent.
    #[non_exhaustive]
    Refused {
        /// The role that is needed: `pg_signal_backend`; `superuser` for a backend of a superuser;
        /// or `pg_monitor` if this role cannot distinguish the backend from a later one with the
        /// same process id.
        needs: &'static str,
    },
}

impl Signal {
    pub(super) fn of(answer: Option<&str>) -> Self {
        let refused = |needs| Self::Refused { needs };
        match answer {
            Some("done") => Self::Done,
            Some("sent") => Self::Sent,
            Some("superuser") => refused("superuser"),
            Some("pg_signal_backend") => refused("pg_signal_backend"),
            Some(PG_MONITOR) => refused(PG_MONITOR),
            _ => Self::Gone,
        }
    }
}

/// Returns `true` if pgbouncer has added its client's address, as in `shop - 10.0.0.7:4711` and
/// `shop - unix(@4711):6432`.
fn has_client_address(application: &str) -> bool {
    application.rsplit_once(" - ").is_some_and(|(_, client)| {
        let is_socket = client.starts_with("unix(");
        is_socket || client.parse::<std::net::SocketAddr>().is_ok()
    })
}

const PG_MONITOR: &str = "pg_monitor";
