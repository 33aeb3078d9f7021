//! What can go wrong with a run of migrations.

use super::step::{Holder, Holders, Took};
use diesel::ConnectionError;
use diesel::result::Error as DieselError;
use std::fmt;
use std::time::Duration;

type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// Why migrations were not run, or not all of them. What was applied stays applied and is skipped by the next run.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// No connection. Nothing was applied.
    Connect(ConnectionError),
    /// The address is that of a pooler that does not keep the sessions of its clients. Nothing was sent to the database that changes it.
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
    /// A migration has failed. If it runs in a transaction, that was rolled back.
    #[non_exhaustive]
    Migration {
        /// Its name.
        migration: String,
        /// The migrations that this run has applied before it.
        applied: Vec<String>,
        /// Diesel's error.
        source: BoxedError,
    },
    /// The connection was lost, and the lock with it: another process may run migrations by now.
    #[non_exhaustive]
    ConnectionLost {
        /// The migration that ran. It may be applied or not.
        migration: Option<String>,
        /// The migrations that this run has applied before it.
        applied: Vec<String>,
        /// How the connection ended.
        source: BoxedError,
    },
    /// A migration has released the lock, as by `pg_advisory_unlock_all` or `DISCARD ALL`. No other was run behind it.
    #[non_exhaustive]
    LockLost {
        /// The migrations that this run has applied.
        applied: Vec<String>,
    },
}

impl Error {
    /// The migrations that this run has applied, in their order.
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

/// For the set-up of a connection: diesel-async's begins with prepared statements, which a pooler in transaction mode can send to two
/// sessions. Then the server knows no such statement, or knows it already, and says its name, which is the same in every language.
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

/// Whether a message has the name of a prepared statement of tokio-postgres in it: `"s0"`, `"s1"`, …
fn names_prepared_statement(message: &str) -> bool {
    message.split('"').any(|name| {
        let number = name.strip_prefix('s').unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "no connection for the migrations: {error}"),
            Self::Pooler => f.write_str(
                "migrations need a session of their own, and this address is that of a pooler in transaction mode: give them the address \
                 of the server itself, such as a `DIRECT_DATABASE_URL` beside the `DATABASE_URL` of the application",
            ),
            Self::TimedOut { holders, waited } => {
                write!(f, "gave up after {} of waiting to run the migrations", Took(*waited))?;
                if holders.is_empty() {
                    return Ok(());
                }
                write!(f, ": their lock is held by {}", Holders(holders))
            }
            Self::Lock(error) => write!(f, "the lock of the migrations was not acquired: {error}"),
            Self::Source(error) => write!(f, "the list of migrations could not be read: {error}"),
            Self::Migration {
                migration,
                applied,
                source,
            } => write!(
                f,
                "migration `{migration}` has failed: {source}; {}",
                Applied(applied)
            ),
            Self::ConnectionLost {
                migration: Some(migration),
                applied,
                ..
            } => write!(
                f,
                "the connection was lost while migration `{migration}` ran, which may be applied or not; {}; run them again",
                Applied(applied)
            ),
            Self::ConnectionLost { applied, .. } => write!(
                f,
                "the connection was lost between two migrations; {}; run them again",
                Applied(applied)
            ),
            Self::LockLost { applied } => write!(
                f,
                "the last migration released the lock of the migrations, as `pg_advisory_unlock_all` or `DISCARD ALL` do: remove that \
                 statement; {}",
                Applied(applied)
            ),
        }
    }
}

/// What a run has applied before it ended.
struct Applied<'a>(&'a [String]);

impl fmt::Display for Applied<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("nothing was applied before"),
            applied => write!(f, "applied before: `{}`", applied.join("`, `")),
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
            // Diesel's message is part of this one.
            Self::Migration { source, .. } => source.source(),
            Self::Pooler | Self::TimedOut { .. } | Self::LockLost { .. } => None,
        }
    }
}
