//! Diesel's migrations, run by one process at a time.
//!
//! Diesel runs migrations without a lock: if several processes start at once, each finds the same migrations pending, and all but
//! one fail. [`run()`] takes an advisory lock first:
//!
//! ```no_run
//! # #[cfg(feature = "diesel-async")]
//! # mod example {
//! use advisory_runtime::migrations;
//! use diesel_migrations::EmbeddedMigrations;
//! # /*
//! use diesel_migrations::embed_migrations;
//!
//! const MIGRATIONS: EmbeddedMigrations = embed_migrations!();
//! # */
//! # const MIGRATIONS: EmbeddedMigrations = EmbeddedMigrations::new(&[]);
//!
//! async fn start(url: &str) -> Result<(), migrations::Error> {
//!     let report = migrations::run(url, MIGRATIONS).await?;
//!     println!("applied {:?}", report.applied);
//!     Ok(())
//! }
//! # }
//! ```
//!
//! [`Migrator`] adds further sources, a key, a limit for the wait, a function that runs first under the lock, a callback for each
//! [`Step`], and reverts. See the guide's page on
//! [migrations](crate::guide::migrations).

mod apply;
mod connection;
mod error;
mod run;
mod sources;
mod sql;
mod step;

pub use error::Error;
pub(crate) use run::migrate;
pub use step::{Holder, Step};

use crate::{Key, LockKey, Request};
use diesel::connection::BoxableConnection;
use diesel::migration::{self, MigrationSource};
use diesel::pg::Pg;
use sources::Sources;
use std::fmt;
use std::time::Duration;

/// The default key of the lock: that of the text `diesel_migrations`. It never changes.
///
/// In SQL: `('x' || encode(substring(sha256('diesel_migrations') FOR 8), 'hex'))::bit(64)::bigint`. Locks belong to a database, so
/// programs with databases of their own do not wait for each other.
///
/// ```
/// use advisory_runtime::{Request, Wait, migrations};
///
/// /// Keeps migrations away while the database is copied.
/// fn no_migration() -> Request {
///     Request::new(migrations::KEY).wait(Wait::Never)
/// }
/// ```
pub const KEY: i64 = 8_120_370_389_078_587_295;

/// The name of the lock where the server shows a query.
const NAME: &str = "diesel_migrations";

/// Runs the pending migrations, one process at a time, with the defaults of [`Migrator`].
///
/// # Locking
///
/// As [`Migrator::run`].
///
/// # Errors
///
/// As [`Migrator::run`].
///
/// # Cancel safety
///
/// As [`Migrator::run`].
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::migrations;
/// use diesel_migrations::EmbeddedMigrations;
///
/// async fn start(url: &str, embedded: EmbeddedMigrations) -> Result<(), migrations::Error> {
///     let report = migrations::run(url, embedded).await?;
///     println!("{} applied", report.applied.len());
///     Ok(())
/// }
/// ```
#[cfg(feature = "diesel-async")]
pub async fn run<S>(url: &str, migrations: S) -> Result<Report, Error>
where
    S: MigrationSource<Pg> + Send + 'static,
{
    Migrator::new(migrations).run(url).await
}

/// The result of a run.
///
/// ```
/// use advisory_runtime::migrations::Report;
///
/// fn summary(report: &Report) -> String {
///     format!("{} applied after {:?}", report.applied.len(), report.waited)
/// }
/// # assert_eq!(summary(&Report::default()), "0 applied after 0ns");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The migrations that this run applied, in their order.
    pub applied: Vec<String>,
    /// The migrations that this run reverted, the last one first.
    pub reverted: Vec<String>,
    /// How long it waited for the lock. Zero if nothing was pending: then it takes no lock.
    pub waited: Duration,
}

/// A run of migrations, before it begins.
///
/// ```no_run
/// # #[cfg(feature = "diesel-async")]
/// # mod example {
/// use advisory_runtime::migrations::{Error, Migrator, Report};
/// # const MIGRATIONS: diesel_migrations::EmbeddedMigrations = diesel_migrations::EmbeddedMigrations::new(&[]);
/// # mod billing { pub(super) use super::MIGRATIONS; }
/// use std::time::Duration;
///
/// async fn migrate(url: &str) -> Result<Report, Error> {
///     Migrator::new(MIGRATIONS)
///         .and(billing::MIGRATIONS)
///         .wait(Duration::from_secs(120))
///         .on_step(|step| eprintln!("{step}")) // waiting for process 4711 (`booking-service`, for 12 s)
///         .run(url)
///         .await
/// }
/// # }
/// ```
#[must_use = "a migrator does nothing until `run` is called"]
pub struct Migrator {
    sources: Sources,
    request: Request,
    wait: Option<Duration>,
    before: Option<Box<Before>>,
    action: Action,
    on_step: OnStep,
}

type Before = dyn FnOnce(&mut dyn BoxableConnection<Pg>) -> migration::Result<()> + Send;

/// What a run does under the lock.
#[derive(Clone, Copy, Debug)]
enum Action {
    /// Applies what is pending.
    Apply,
    /// Reverts the last migrations, so many at most.
    Revert(usize),
}

impl Migrator {
    /// Makes a run of these migrations, such as those of `embed_migrations!()`, under [`KEY`] and without a limit for the wait.
    pub fn new(migrations: impl MigrationSource<Pg> + Send + 'static) -> Self {
        Self {
            sources: vec![Box::new(migrations)],
            request: Request::one(NAME, Key::BigInt(KEY)),
            wait: None,
            before: None,
            action: Action::Apply,
            on_step: OnStep::default(),
        }
    }

    /// Adds the migrations of another source, such as those of a library. All run under one lock, in the order of their versions.
    ///
    /// Two migrations with different names and the same version are refused ([`Error::Source`]): Diesel's table contains only the
    /// version, so only one of them would be applied.
    pub fn and(mut self, migrations: impl MigrationSource<Pg> + Send + 'static) -> Self {
        self.sources.push(Box::new(migrations));
        self
    }

    /// Runs this function under the lock, before the first migration. For a step that no migration can do, such as marking migrations as
    /// applied that another tool has run.
    ///
    /// It runs if migrations are pending under the lock, outside of a transaction, and the list of pending migrations is read again
    /// after it. A run that fails later runs it again the next time, so it must bear that. Its connection is the one that Diesel gives to
    /// [`Migration::run`](diesel::migration::Migration::run): `batch_execute` sends SQL; `downcast_mut` gives the connection itself, a
    /// `PgConnection` or an `AsyncConnectionWrapper<AsyncPgConnection>`.
    ///
    /// A second call replaces the function of the first.
    pub fn before<F>(mut self, before: F) -> Self
    where
        F: FnOnce(&mut dyn BoxableConnection<Pg>) -> migration::Result<()> + Send + 'static,
    {
        self.before = Some(Box::new(before));
        self
    }

    /// Makes the run revert the last migrations that are applied, so many at most, instead of applying those that are pending. It does
    /// not call [`before`](Self::before).
    ///
    /// If one of them is in none of the sources, nothing is reverted ([`Error::Source`]).
    pub fn revert_last(mut self, count: usize) -> Self {
        self.action = Action::Revert(count);
        self
    }

    /// Locks another key, such as that of another tool that migrates the database. All processes that run migrations in one database
    /// must use the same key.
    pub fn key(mut self, key: impl LockKey) -> Self {
        self.request = Request::new(key);
        self
    }

    /// Gives up with [`Error::TimedOut`] after this time. Zero tries once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Calls this for each [`Step`]. Under diesel-async the steps under the lock come from a thread for blocking work.
    ///
    /// With the feature `tracing` each step is also an event.
    pub fn on_step(mut self, on_step: impl FnMut(&Step) + Send + 'static) -> Self {
        self.on_step.callback = Some(Box::new(on_step));
        self
    }

    /// Runs the pending migrations, one process at a time.
    ///
    /// The connection is opened for the run, without TLS, and closed at its end. With TLS use [`run_on`](Self::run_on). With blocking
    /// Diesel, [`blocking::migrations::run`](crate::blocking::migrations::run) takes a migrator.
    ///
    /// # Locking
    ///
    /// None if nothing is pending. Otherwise a session-level lock on the key, polled with `pg_try_advisory_lock`: a session that waits
    /// in the server would deadlock with `CREATE INDEX CONCURRENTLY`. Under the lock, the list of pending migrations is read again, and
    /// each runs as Diesel runs it, in a transaction of its own unless its `metadata.toml` says otherwise. If one fails, and another program
    /// has applied it that does not take this lock, the list is read once more, and the run goes on. The lock is released after the last
    /// one and after an error; if the process dies, the server releases it.
    ///
    /// # Errors
    ///
    /// [`Error`]. Fix the cause and run the migrations again: those that are applied are skipped.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a migration that runs goes on to its end on its thread. No other follows, and the lock is released. Cancelling
    /// the wait for the lock leaves nothing behind.
    #[cfg(feature = "diesel-async")]
    pub async fn run(self, url: &str) -> Result<Report, Error> {
        let (report, _) = migrate(run::connect(url).await?, self).await?;
        Ok(report)
    }

    /// Runs the pending migrations on a connection of yours, such as one with TLS, and gives it back. After an error it is closed.
    ///
    /// # Locking
    ///
    /// As [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run). [`Error::Pooler`] behind a pooler that is not known to be in session mode, by
    /// [`session::verify`](crate::session::verify) or by the setting `advisory.pooler`.
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    #[cfg(feature = "diesel-async")]
    pub async fn run_on(
        self,
        conn: diesel_async::AsyncPgConnection,
    ) -> Result<(Report, diesel_async::AsyncPgConnection), Error> {
        migrate(conn, self).await
    }
}

/// A run with the defaults.
impl<S: MigrationSource<Pg> + Send + 'static> From<S> for Migrator {
    fn from(migrations: S) -> Self {
        Self::new(migrations)
    }
}

impl fmt::Debug for Migrator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Migrator")
            .field("sources", &self.sources.len())
            .field("request", &self.request)
            .field("wait", &self.wait)
            .field("action", &self.action)
            .finish_non_exhaustive()
    }
}

type Callback = dyn FnMut(&Step) + Send;

/// Called for each step.
#[derive(Default)]
struct OnStep {
    callback: Option<Box<Callback>>,
    /// The holders in the last event, and its time.
    #[cfg(feature = "tracing")]
    waiting: Option<(Vec<i32>, std::time::Instant)>,
}

/// How often an event repeats the same holders.
#[cfg(feature = "tracing")]
const EVENT: Duration = Duration::from_secs(30);

impl OnStep {
    fn report(&mut self, step: &Step) {
        #[cfg(feature = "tracing")]
        self.record(step);
        if let Some(callback) = &mut self.callback {
            callback(step);
        }
    }

    #[cfg(feature = "tracing")]
    fn record(&mut self, step: &Step) {
        let milliseconds = |time: &Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        match step {
            Step::Waiting { holders } => {
                let pids: Vec<i32> = holders.iter().map(|holder| holder.pid).collect();
                let is_repeated = |(known, at): &(Vec<i32>, std::time::Instant)| {
                    *known == pids && at.elapsed() < EVENT
                };
                if !self.waiting.as_ref().is_some_and(is_repeated) {
                    tracing::info!(pids = ?pids, "{step}");
                    self.waiting = Some((pids, std::time::Instant::now()));
                }
            }
            Step::Locked {
                pending,
                reverts: 0,
                waited,
            } => {
                tracing::info!(pending, waited_ms = milliseconds(waited), "{step}");
            }
            Step::Locked {
                reverts, waited, ..
            } => {
                tracing::info!(reverts, waited_ms = milliseconds(waited), "{step}");
            }
            Step::Running { migration, .. }
            | Step::Skipped { migration }
            | Step::Reverting { migration, .. } => tracing::info!(migration, "{step}"),
            Step::Done { migration, took } => {
                tracing::info!(migration, took_ms = milliseconds(took), "{step}");
            }
        }
    }
}
