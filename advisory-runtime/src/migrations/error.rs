//! What can go wrong with a run of migrations.

use super::step::{Holder, joined, took};
use diesel::ConnectionError;
use diesel::result::Error as DieselError;
use std::fmt;
use std::time::Duration;

type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// Why not all migrations were run. Those that were applied stay applied, and the next run skips them.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The connection failed. Nothing was applied.
    Connect(ConnectionError),
    /// The URL is that of a pooler that does not keep its clients' sessions. Nothing was changed.
    Pooler,
    /// Another process held the lock for longer than [`Migrator::wait`](super::Migrator::wait). Nothing was applied.
    #[non_exhaustive]
    TimedOut {
        /// Who held it at the end.
        holders: Vec<Holder>,
        /// How long this process waited.
        waited: Duration,
    },
    /// The lock could not be acquired for another reason. Nothing was applied.
    Lock(crate::Error),
    /// The migrations, or the list of those that are applied, could not be read. Nothing was applied.
    Source(BoxedError),
    /// A migration failed. If it runs in a transaction, that was rolled back.
    #[non_exhaustive]
    Migration {
        /// Its name.
        migration: String,
        /// The migrations that this run applied before it.
        applied: Vec<String>,
        /// Diesel's error.
        source: BoxedError,
    },
    /// The connection was lost, and the lock with it: another process may run migrations by now.
    #[non_exhaustive]
    ConnectionLost {
        /// The migration that ran. It may be applied.
        migration: Option<String>,
        /// The migrations that this run applied before it.
        applied: Vec<String>,
        /// How the connection ended.
        source: BoxedError,
    },
    /// A migration released the lock, as by `pg_advisory_unlock_all` or `DISCARD ALL`. No migration was run after it.
    #[non_exhaustive]
    LockLost {
        /// The migrations that this run applied.
        applied: Vec<String>,
    },
}

impl Error {
    /// The migrations that this run applied, in their order.
    #[must_use]
    pub fn applied(&self) -> &[String] {
        match self {
            Self::Migration { applied, .. }
            | Self::ConnectionLost { applied, .. }
            | Self::LockLost { applied } => applied,
            _ => &[],
        }
    }
}

impl From<crate::Error> for Error {
    fn from(error: crate::Error) -> Self {
        match error {
            crate::Error::PooledSession { .. } => Self::Pooler,
            error => Self::Lock(error),
        }
    }
}

/// diesel-async sets up a connection with prepared statements, which a pooler in transaction mode may send to two sessions. The
/// server's message then names the statement, in every language.
impl From<ConnectionError> for Error {
    fn from(error: ConnectionError) -> Self {
        match &error {
            ConnectionError::CouldntSetupConfiguration(DieselError::DatabaseError(_, answer))
                if names_prepared_statement(answer.message()) =>
            {
                Self::Pooler
            }
            _ => Self::Connect(error),
        }
    }
}

/// Whether a message contains the name of a prepared statement of tokio-postgres: `"s0"`, `"s1"`, …
fn names_prepared_statement(message: &str) -> bool {
    message.split('"').any(|name| {
        let number = name.strip_prefix('s').unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let applied = match self.applied() {
            [] => "nothing was applied before".to_owned(),
            applied => format!("applied before: `{}`", applied.join("`, `")),
        };
        match self {
            Self::Connect(error) => write!(f, "could not connect to run the migrations: {error}"),
            Self::Pooler => f.write_str(
                "migrations need a session of their own, but this URL is that of a pooler in transaction mode: use the URL of \
                 the server itself, such as a `DIRECT_DATABASE_URL` beside the application's `DATABASE_URL`",
            ),
            Self::TimedOut { holders, waited } => {
                write!(f, "gave up running the migrations after a wait of {}", took(*waited))?;
                if holders.is_empty() {
                    return Ok(());
                }
                write!(f, ": their lock is held by {}", joined(holders))
            }
            Self::Lock(error) => write!(f, "could not acquire the lock of the migrations: {error}"),
            Self::Source(error) => write!(f, "could not read the list of migrations: {error}"),
            Self::Migration {
                migration, source, ..
            } => write!(f, "migration `{migration}` failed: {source}; {applied}"),
            Self::ConnectionLost {
                migration: Some(migration),
                ..
            } => write!(
                f,
                "the connection was lost while migration `{migration}` ran, which may be applied or not; {applied}; run the migrations again"
            ),
            Self::ConnectionLost { .. } => write!(
                f,
                "the connection was lost between two migrations; {applied}; run the migrations again"
            ),
            Self::LockLost { .. } => write!(
                f,
                "the last migration released the lock of the migrations, as `pg_advisory_unlock_all` and `DISCARD ALL` do: remove that \
                 statement; {applied}"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::ConnectionLost { source, .. } => Some(&**source),
            Self::Connect(error) => error.source(),
            Self::Lock(error) => error.source(),
            Self::Source(error) => error.source(),
            // Its message is part of this one.
            Self::Migration { source, .. } => source.source(),
            Self::Pooler | Self::TimedOut { .. } | Self::LockLost { .. } => None,
        }
    }
}
