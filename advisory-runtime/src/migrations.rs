//! Diesel's migrations, run by one process at a time.
//!
//! Diesel runs migrations without a lock: if several processes start at once, each finds the same
//! migrations pending, and all but one fail. [`run()`] takes an advisory lock first:
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
//! [`Migrator`] adds further sources, a key, a limit for the wait, functions that run before and
//! after the migrations, a callback for each [`Step`], a limit for their number, and reverts. See
//! the guide's page on [migrations](crate::guide::migrations).

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

use crate::request::one;
use crate::{Key, LockKey, Request};
use diesel::connection::BoxableConnection;
use diesel::migration::{self, MigrationSource};
use diesel::pg::Pg;
use sources::Sources;
use std::fmt;
use std::time::Duration;
use step::OnStep;

/// The default key of the lock, which is derived from the text `diesel_migrations`. It never
/// changes.
///
/// In SQL: `('x' || encode(substring(sha256('diesel_migrations') FOR 8), 'hex'))::bit(64)::bigint`.
/// Locks belong to a database, so programs with databases of their own do not wait for each other.
pub const KEY: i64 = 8_120_370_389_078_587_295;

const NAME: &str = "diesel_migrations";

/// Runs the pending migrations, one process at a time, with the defaults of [`Migrator`]; like
/// [`Migrator::run`].
#[cfg(feature = "diesel-async")]
pub async fn run<S>(url: &str, migrations: S) -> Result<Report, Error>
where
    S: MigrationSource<Pg> + Send + 'static,
{
    Migrator::new(migrations).run(url).await
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The migrations that this run applied, in their order.
    pub applied: Vec<String>,
    /// The migrations that this run reverted, the last one first.
    pub reverted: Vec<String>,
    /// The time that this run waited for the lock; zero if it did not need the lock.
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
///         // waiting for process 4711 (`booking-service`, for 12 s)
///         .on_step(|step| eprintln!("{step}"))
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
    before: Option<Box<Hook>>,
    after: Option<Box<Hook>>,
    is_always: bool,
    action: Action,
    on_step: OnStep,
}

type Hook = dyn FnOnce(&mut dyn BoxableConnection<Pg>) -> migration::Result<()> + Send;

#[derive(Clone, Copy, Debug)]
enum Action {
    /// Applies at most this number of pending migrations.
    Apply(usize),
    /// Reverts at most this number of migrations.
    Revert(usize),
}

impl Migrator {
    /// Creates a run of these migrations, such as those of `embed_migrations!()`. By default it
    /// locks [`KEY`] and waits without a limit.
    pub fn new(migrations: impl MigrationSource<Pg> + Send + 'static) -> Self {
        Self {
            sources: Sources(vec![Box::new(migrations)]),
            request: one(NAME, Key::BigInt(KEY)),
            wait: None,
            before: None,
            after: None,
            is_always: false,
            action: Action::Apply(usize::MAX),
            on_step: OnStep::default(),
        }
    }

    /// Adds the migrations of another source, such as those of a library. All run under one lock,
    /// in the order of their versions.
    ///
    /// Two migrations with different names and the same version are refused ([`Error::Source`]):
    /// Diesel's table contains only the version, so only one of them would be applied.
    pub fn and(mut self, migrations: impl MigrationSource<Pg> + Send + 'static) -> Self {
        self.sources.0.push(Box::new(migrations));
        self
    }

    /// Runs a function under the lock, before the first migration. Use it for a step that no
    /// migration can do, such as marking migrations as applied that another tool has run.
    ///
    /// The function runs outside of a transaction, and only if migrations are pending (see
    /// [`always`](Self::always)). The list of pending migrations is read again after it. If a later
    /// step fails, the next run calls it again, so it must be safe to repeat. Its connection is the
    /// one that Diesel gives to [`Migration::run`](diesel::migration::Migration::run):
    /// `batch_execute` sends SQL; `downcast_mut` gives the connection itself, a `PgConnection` or
    /// an `AsyncConnectionWrapper<AsyncPgConnection>`.
    ///
    /// A second call replaces the function of the first.
    pub fn before<F>(mut self, before: F) -> Self
    where
        F: FnOnce(&mut dyn BoxableConnection<Pg>) -> migration::Result<()> + Send + 'static,
    {
        self.before = Some(Box::new(before));
        self
    }

    /// Runs a function under the lock, after the last migration, such as for grants, seeds, or
    /// `REFRESH MATERIALIZED VIEW`; otherwise like [`before`](Self::before).
    ///
    /// It does not run if a migration fails. If the function fails, the migrations stay applied
    /// ([`Error::After`]), and the next run calls it only if migrations are pending or with
    /// [`always`](Self::always).
    pub fn after<F>(mut self, after: F) -> Self
    where
        F: FnOnce(&mut dyn BoxableConnection<Pg>) -> migration::Result<()> + Send + 'static,
    {
        self.after = Some(Box::new(after));
        self
    }

    /// Makes [`before`](Self::before) and [`after`](Self::after) run even if no migration is
    /// pending. Each start of the program then waits for the lock.
    pub fn always(mut self) -> Self {
        self.is_always = true;
        self
    }

    /// Makes the run apply at most the next `count` pending migrations.
    pub fn apply_next(mut self, count: usize) -> Self {
        self.action = Action::Apply(count);
        self
    }

    /// Makes the run revert at most the last `count` migrations that are applied, instead of
    /// applying those that are pending. It calls neither `before` nor `after`.
    ///
    /// If one of them is in none of the sources, nothing is reverted ([`Error::Source`]).
    pub fn revert_last(mut self, count: usize) -> Self {
        self.action = Action::Revert(count);
        self
    }

    /// Locks another key, such as that of another tool that migrates the database. All processes
    /// that run migrations in one database must use the same key.
    pub fn key(mut self, key: impl LockKey) -> Self {
        self.request = Request::new(key);
        self
    }

    /// Gives up with [`Error::TimedOut`] after this time. Zero tries once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Calls this for each [`Step`]. Under diesel-async the steps under the lock come from a thread
    /// for blocking work.
    ///
    /// With the feature `tracing` each step is also an event.
    pub fn on_step(mut self, on_step: impl FnMut(&Step) + Send + 'static) -> Self {
        self.on_step.callback = Some(Box::new(on_step));
        self
    }

    /// Runs the pending migrations, one process at a time.
    ///
    /// The connection is opened for the run, without TLS, and closed at its end. With TLS use
    /// [`run_on`](Self::run_on). With blocking Diesel,
    /// [`blocking::migrations::run`](crate::blocking::migrations::run) takes a migrator.
    ///
    /// # Locking
    ///
    /// None if nothing is pending. Otherwise a session-level lock on the key, polled with
    /// `pg_try_advisory_lock`: a session that waits in the server would deadlock with `CREATE INDEX
    /// CONCURRENTLY`. Under the lock, the list of pending migrations is read again, and Diesel's
    /// harness runs each of them, in a transaction of its own unless its `metadata.toml` says
    /// otherwise. A migration cannot change the session's `search_path` for the next one. If a
    /// migration fails because a program that does not take this lock has applied it, the list is
    /// read once more, and the run goes on. The lock is released after the last migration and after
    /// an error; if the process dies, the server releases it.
    ///
    /// # Errors
    ///
    /// [`Error`]. Fix the cause and run the migrations again: those that are applied are skipped.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a migration that has begun runs to its end on its thread. Then the lock is
    /// released. Cancelling the wait for the lock leaves nothing at the server.
    #[cfg(feature = "diesel-async")]
    pub async fn run(self, url: &str) -> Result<Report, Error> {
        let (report, _) = migrate(run::connect(url).await?, self).await?;
        Ok(report)
    }

    /// Like [`run`](Self::run), on a connection of yours, such as one with TLS. Returns the
    /// connection; after an error it is closed.
    ///
    /// # Errors
    ///
    /// Those of `run`, and [`Error::Pooler`] if the connection leads to a pooler that is not known
    /// to be in session mode, by [`session::verify`](crate::session::verify) or by the setting
    /// `advisory.pooler`.
    #[cfg(feature = "diesel-async")]
    pub async fn run_on(
        self,
        conn: diesel_async::AsyncPgConnection,
    ) -> Result<(Report, diesel_async::AsyncPgConnection), Error> {
        migrate(conn, self).await
    }
}

impl<S: MigrationSource<Pg> + Send + 'static> From<S> for Migrator {
    fn from(migrations: S) -> Self {
        Self::new(migrations)
    }
}

impl fmt::Debug for Migrator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Migrator")
            .field("sources", &self.sources.0.len())
            .field("request", &self.request)
            .field("wait", &self.wait)
            .field("action", &self.action)
            .finish_non_exhaustive()
    }
}
