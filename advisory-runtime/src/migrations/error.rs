//! The error of a run of migrations.

use super::Report;
use super::step::{Holder, joined, took};
use diesel::ConnectionError;
use diesel::result::Error as DieselError;
use std::fmt;
use std::time::Duration;

pub(super) type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// The error of a run that did not run all migrations. Those that were applied stay applied, and
/// the next run skips them; those that were reverted stay reverted.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The connection failed. Nothing was applied.
    #[non_exhaustive]
    Connect {
        /// The host and the port, as the URL names them: `db.internal:5432`. Empty if the URL could
        /// not be read.
        server: String,
        /// Diesel's error.
        source: ConnectionError,
    },
    /// The URL leads to a pooler that shares sessions between its clients. Nothing was changed.
    Pooler,
    /// Another process held the lock for longer than [`Migrator::wait`](super::Migrator::wait).
    /// Nothing was applied.
    #[non_exhaustive]
    TimedOut {
        /// The holders at the end; empty if they are not known.
        holders: Vec<Holder>,
        /// How long this process waited.
        waited: Duration,
    },
    /// The lock could not be acquired for another reason. Nothing was applied.
    Lock(crate::Error),
    /// The migrations, or the list of those that are applied, could not be read. Nothing was
    /// applied.
    Source(BoxedError),
    /// The function given to [`Migrator::before`](super::Migrator::before) failed. No migration was
    /// applied.
    Before(BoxedError),
    /// The function given to [`Migrator::after`](super::Migrator::after) failed. The migrations are
    /// applied.
    #[non_exhaustive]
    After {
        /// The report of this run until then.
        report: Report,
        /// The function's error.
        source: BoxedError,
    },
    /// A migration failed. If it runs in a transaction, that was rolled back.
    #[non_exhaustive]
    Migration {
        /// Its name.
        migration: String,
        /// The report of this run until then.
        report: Report,
        /// Diesel's error.
        source: BoxedError,
    },
    /// A migration could not be reverted. If it runs in a transaction, that was rolled back.
    #[non_exhaustive]
    Revert {
        /// Its name.
        migration: String,
        /// The report of this run until then.
        report: Report,
        /// Diesel's error.
        source: BoxedError,
    },
    /// The connection was lost, and the lock with it: another process may run migrations by now.
    #[non_exhaustive]
    ConnectionLost {
        /// The migration that ran, which may be applied, or reverted.
        migration: Option<String>,
        /// The report of this run until then.
        report: Report,
        /// How the connection ended.
        source: BoxedError,
    },
    /// A migration released the lock, as by `pg_advisory_unlock_all` or `DISCARD ALL`. No migration
    /// was run after it.
    #[non_exhaustive]
    LockLost {
        /// The report of this run.
        report: Report,
    },
}

impl Error {
    /// The report of this run until the error; `None` if it did nothing.
    #[must_use]
    pub const fn report(&self) -> Option<&Report> {
        match self {
            Self::After { report, .. }
            | Self::Migration { report, .. }
            | Self::Revert { report, .. }
            | Self::ConnectionLost { report, .. }
            | Self::LockLost { report } => Some(report),
            _ => None,
        }
    }

    /// The migrations that this run applied, in their order.
    #[must_use]
    pub fn applied(&self) -> &[String] {
        self.report().map_or(&[], |report| &report.applied)
    }

    /// The migrations that this run reverted, the last one first.
    #[must_use]
    pub fn reverted(&self) -> &[String] {
        self.report().map_or(&[], |report| &report.reverted)
    }

    pub(crate) fn of_lock(error: crate::Error) -> Self {
        match error {
            crate::Error::PooledSession { .. } => Self::Pooler,
            error => Self::Lock(error),
        }
    }

    /// Returns the error for a connection to this URL that could not be opened.
    ///
    /// diesel-async sets up a connection with prepared statements, which a pooler in transaction
    /// mode may send to two sessions. In every language the server's message then names the
    /// statement. Other messages name the role or the database, which are in the URL.
    pub(crate) fn of_connecting(error: ConnectionError, url: &str) -> Self {
        match &error {
            ConnectionError::CouldntSetupConfiguration(DieselError::DatabaseError(_, answer))
                if names_prepared_statement(answer.message(), url) =>
            {
                Self::Pooler
            }
            _ => Self::Connect {
                server: server(url),
                source: error,
            },
        }
    }

    /// Returns the error that this one contains, even if the message of this one includes it.
    pub(crate) fn cause(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Connect { source, .. } => Some(source),
            Self::Lock(error) => Some(error),
            Self::Source(error) | Self::Before(error) => Some(&**error),
            Self::ConnectionLost { source, .. }
            | Self::After { source, .. }
            | Self::Migration { source, .. }
            | Self::Revert { source, .. } => Some(&**source),
            Self::Pooler | Self::TimedOut { .. } | Self::LockLost { .. } => None,
        }
    }
}

/// The hosts and ports of a URL, without the password that it can contain.
#[cfg(feature = "diesel-async")]
fn server(url: &str) -> String {
    use tokio_postgres::config::{Config, Host};

    let Ok(config) = url.parse::<Config>() else {
        return String::new();
    };
    let ports = config.get_ports();
    let hosts = config.get_hosts().iter().enumerate().map(|(at, host)| {
        // A single port applies to all hosts.
        let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(name) if name.contains(':') => format!("[{name}]:{port}"),
            Host::Tcp(name) => format!("{name}:{port}"),
            #[cfg(unix)]
            Host::Unix(folder) => format!("{}/.s.PGSQL.{port}", folder.display()),
        }
    });
    hosts.collect::<Vec<_>>().join(", ")
}

/// Returns nothing, because libpq names the server in its own message.
#[cfg(not(feature = "diesel-async"))]
fn server(_: &str) -> String {
    String::new()
}

/// Returns advice on a connection that could not be opened. The message, which can be in any
/// language, decides which.
fn advice(message: &str) -> &'static str {
    let message = message.to_lowercase();
    let mentions = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if mentions(&["tls", "ssl", "encryption", "pg_hba"]) {
        "`run` connects without TLS: if the server or the URL requires it, open a connection with TLS, such as with \
         `tokio-postgres-rustls`, and give it to `Migrator::run_on`; blocking connections need a libpq that is built with TLS"
    } else {
        "check the host, port, role, password and database of the URL, and that the server can be reached from here"
    }
}

/// Returns `true` if a message contains the name of a prepared statement of tokio-postgres, `"s0"`,
/// `"s1"`, …, that is not part of the URL.
fn names_prepared_statement(message: &str, url: &str) -> bool {
    message.split('"').any(|name| {
        let number = name.strip_prefix('s').unwrap_or_default();
        !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
            && !url.contains(name)
    })
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = match (self.applied(), self.reverted()) {
            ([], []) if matches!(self, Self::Revert { .. }) => {
                "nothing was reverted before".to_owned()
            }
            ([], []) => "nothing was applied before".to_owned(),
            ([], reverted) => format!("reverted before: `{}`", reverted.join("`, `")),
            (applied, _) => format!("applied before: `{}`", applied.join("`, `")),
        };
        match self {
            Self::Connect { server, source } => {
                f.write_str("could not connect")?;
                if !server.is_empty() {
                    write!(f, " to {server}")?;
                }
                let message = source.to_string();
                // The message of libpq has several lines.
                let lines: Vec<&str> = message.lines().map(str::trim).collect();
                write!(
                    f,
                    " to run the migrations: {}; {}",
                    lines.join(" ").trim(),
                    advice(&message)
                )
            }
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
            Self::Before(error) => write!(
                f,
                "the function that runs before the migrations failed: {error}"
            ),
            Self::After { source, .. } => write!(
                f,
                "the function that runs after the migrations failed: {source}; {before}"
            ),
            Self::Revert {
                migration, source, ..
            } => write!(
                f,
                "migration `{migration}` could not be reverted: {source}; {before}"
            ),
            Self::Migration {
                migration, source, ..
            } => write!(f, "migration `{migration}` failed: {source}; {before}"),
            Self::ConnectionLost {
                migration: Some(migration),
                ..
            } => write!(
                f,
                "the connection was lost while migration `{migration}` ran, which may be applied or not; {before}; run the migrations again"
            ),
            Self::ConnectionLost { .. } => write!(
                f,
                "the connection was lost between two migrations; {before}; run the migrations again"
            ),
            Self::LockLost { .. } => write!(
                f,
                "the last migration released the lock of the migrations, as `pg_advisory_unlock_all` and `DISCARD ALL` do: remove that \
                 statement; {before}"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::ConnectionLost { .. } => self.cause(),
            // The message of this error includes the cause's message.
            _ => self.cause()?.source(),
        }
    }
}
