//! Diesel's migrations, run by one process at a time.
//!
//! Diesel runs migrations without a lock. Where several processes start at once, each finds the same migrations pending, and all but
//! one fail. [`run()`] takes an advisory lock first, and says for whom it waits:
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
//! A builder, [`Migrator`], has the rest: another key, how long to wait, and a callback for each [`Step`]. The guide's page
//! [`migrations`](crate::guide::migrations) tells why each of these matters.

#[cfg(feature = "postgres")]
pub mod blocking;
mod error;
mod run;
mod session;
mod step;

pub use error::Error;
pub use step::{Holder, Step};

use crate::{Key, LockKey, Request};
use diesel::migration::MigrationSource;
use diesel::pg::Pg;
use std::fmt;
use std::time::Duration;

/// The key of the lock, unless [`Migrator::key`] says another one: the SHA-256 of `diesel_migrations`, as every key of that text.
///
/// Locks are each database's own, so that programs with databases of their own do not meet. In SQL it is
/// `('x' || encode(substring(sha256('diesel_migrations') FOR 8), 'hex'))::bit(64)::bigint`. It never changes.
pub const KEY: i64 = 8_120_370_389_078_587_295;

/// What the lock is called where the server shows a query.
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
/// See [the module](self).
#[cfg(feature = "diesel-async")]
pub async fn run<S>(url: &str, migrations: S) -> Result<Report, Error>
where
    S: MigrationSource<Pg> + Send + 'static,
{
    Migrator::new(migrations).run(url).await
}

/// What a run has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The migrations that this run has applied, in their order. None, if none was pending once the lock was held.
    pub applied: Vec<String>,
    /// How long it waited for the lock. Zero where nothing was pending in the first place: then it takes no lock.
    pub waited: Duration,
}

/// A run of migrations, before it begins.
///
/// ```no_run
/// # #[cfg(feature = "diesel-async")]
/// # mod example {
/// use advisory_runtime::migrations::{Error, Migrator, Report};
/// # const MIGRATIONS: diesel_migrations::EmbeddedMigrations = diesel_migrations::EmbeddedMigrations::new(&[]);
/// use std::time::Duration;
///
/// async fn migrate(url: &str) -> Result<Report, Error> {
///     Migrator::new(MIGRATIONS)
///         .wait(Duration::from_secs(120))
///         .on_step(|step| eprintln!("{step}")) // waiting for process 4711 (`booking-service`, since 12 s)
///         .run(url)
///         .await
/// }
/// # }
/// ```
#[must_use = "it runs nothing by itself: call `run`"]
pub struct Migrator<S> {
    source: S,
    request: Request,
    wait: Option<Duration>,
    on_step: OnStep,
}

impl<S: MigrationSource<Pg> + Send + 'static> Migrator<S> {
    /// A run of these migrations, such as those of `embed_migrations!()`, under [`KEY`], that waits without end.
    pub fn new(migrations: S) -> Self {
        Self {
            source: migrations,
            request: Request::one(NAME, Key::BigInt(KEY)),
            wait: None,
            on_step: OnStep::default(),
        }
    }

    /// Locks another key. All processes that run migrations in the same database use the same one; it is also how to exclude another
    /// tool, which has a number of its own.
    pub fn key(mut self, key: impl LockKey) -> Self {
        self.request = Request::new(key);
        self
    }

    /// Gives up when another process has held the lock for so long ([`Error::TimedOut`]). Zero asks once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Calls this for each [`Step`], in their order. Under diesel-async the steps under the lock come from a thread that may block.
    ///
    /// With the feature `tracing` each step is an event as well.
    pub fn on_step(mut self, on_step: impl FnMut(&Step) + Send + 'static) -> Self {
        self.on_step.callback = Some(Box::new(on_step));
        self
    }

    /// Runs the pending migrations, one process at a time.
    ///
    /// The connection is opened for the run, without TLS, and closed at its end. For TLS see [`run_on`](Self::run_on).
    ///
    /// # Locking
    ///
    /// If nothing is pending, none. Otherwise a session-level lock on the key, by `pg_try_advisory_lock` again and again: a session that
    /// waits at the server would deadlock with `CREATE INDEX CONCURRENTLY`. Once it is held, the list of pending migrations is read
    /// again. Each migration then runs as Diesel runs it, in a transaction of its own, or in none if its `metadata.toml` says so. The
    /// lock is released behind the last one, and on every error; if the process dies, the server releases it.
    ///
    /// # Errors
    ///
    /// [`Error`]. After one, run the migrations again when its cause is mended: what is applied is skipped.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: to drop the future while it waits leaves nothing behind. Later, the migration that runs is carried on to its end
    /// on a thread of its own; no other follows, and the lock is released.
    #[cfg(feature = "diesel-async")]
    pub async fn run(self, url: &str) -> Result<Report, Error> {
        let conn: diesel_async::AsyncPgConnection = run::connect(url).await?;
        run::migrate(conn, self).await
    }

    /// Runs the pending migrations on a connection of yours, such as one with TLS, which is closed at the end. Not one of a pool.
    ///
    /// # Locking
    ///
    /// As [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run). [`Error::Pooler`] behind a pooler of any mode, unless
    /// [`session::verify`](crate::session::verify) has shown that it keeps sessions.
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    #[cfg(feature = "diesel-async")]
    pub async fn run_on(self, conn: diesel_async::AsyncPgConnection) -> Result<Report, Error> {
        run::migrate(conn, self).await
    }
}

impl<S> fmt::Debug for Migrator<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Migrator")
            .field("request", &self.request)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

type Callback = dyn FnMut(&Step) + Send;

/// Who is told of each step.
#[derive(Default)]
struct OnStep {
    callback: Option<Box<Callback>>,
    /// When the event said last for whom the run waits, and for whom.
    #[cfg(feature = "tracing")]
    waiting: Option<(Vec<i32>, std::time::Instant)>,
}

/// How often an event says for whom a run waits, while that does not change.
#[cfg(feature = "tracing")]
const EVENT: Duration = Duration::from_secs(30);

impl OnStep {
    fn say(&mut self, step: &Step) {
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
                let is_known = self
                    .waiting
                    .as_ref()
                    .is_some_and(|(known, said)| *known == pids && said.elapsed() < EVENT);
                if !is_known {
                    tracing::info!(pids = ?pids, "{step}");
                    self.waiting = Some((pids, std::time::Instant::now()));
                }
            }
            Step::Locked { pending, waited } => {
                tracing::info!(pending, waited_ms = milliseconds(waited), "{step}");
            }
            Step::Running { migration, .. } => tracing::info!(migration, "{step}"),
            Step::Done { migration, took } => {
                tracing::info!(migration, took_ms = milliseconds(took), "{step}");
            }
        }
    }
}
