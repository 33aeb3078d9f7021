//! The connection of a run: opened for it, lent to Diesel's migrations, and asked for the holder of the lock.

use crate::driver::Driver;
#[cfg(feature = "diesel-async")]
use crate::driver::cancel::told_process_id;
use crate::monitor::{Locks, Names};
use crate::{Error, sql};
use diesel::connection::SimpleConnection;
use diesel::migration::{Migration, MigrationVersion, Result as MigrationResult};
use diesel::pg::Pg;
use diesel::{ConnectionResult, QueryResult};
use diesel_migrations::MigrationHarness;
use std::sync::atomic::AtomicBool;

/// What Diesel's migrations run on.
pub(super) trait Harness {
    /// Makes the table of migrations where there is none, and reads it.
    fn applied(&mut self) -> MigrationResult<Vec<MigrationVersion<'static>>>;

    fn run(&mut self, migration: &dyn Migration<Pg>) -> MigrationResult<()>;

    fn execute(&mut self, message: &str) -> QueryResult<()>;
}

impl<H: MigrationHarness<Pg> + SimpleConnection> Harness for H {
    fn applied(&mut self) -> MigrationResult<Vec<MigrationVersion<'static>>> {
        self.applied_migrations()
    }

    fn run(&mut self, migration: &dyn Migration<Pg>) -> MigrationResult<()> {
        self.run_migration(migration).map(drop)
    }

    fn execute(&mut self, message: &str) -> QueryResult<()> {
        self.batch_execute(message)
    }
}

/// A connection that can carry a run.
pub(super) trait Session: Driver + 'static {
    fn open(url: &str) -> impl Future<Output = ConnectionResult<Self>> + Send;

    /// The process id that the session was told at its start, if Diesel hands it out.
    fn told_process_id(&mut self) -> Option<u32>;

    fn locks(&mut self) -> impl Future<Output = Result<Locks, Error>> + Send;

    /// Lends the connection to work that blocks. The flag says that nobody waits for its end any more. `None` where there is no thread
    /// to be had for it.
    fn work<T: Send + 'static>(
        self,
        work: impl FnOnce(&mut dyn Harness, &AtomicBool) -> T + Send + 'static,
    ) -> impl Future<Output = Option<(Self, T)>> + Send;
}

#[cfg(feature = "diesel-async")]
impl Session for diesel_async::AsyncPgConnection {
    async fn open(url: &str) -> ConnectionResult<Self> {
        <Self as diesel_async::AsyncConnection>::establish(url).await
    }

    fn told_process_id(&mut self) -> Option<u32> {
        told_process_id(&self.cancel_token())
    }

    async fn locks(&mut self) -> Result<Locks, Error> {
        crate::monitor::locks(self, &Names::none()).await
    }

    /// On a thread of tokio's that may block, so that it works on a runtime of one thread too.
    async fn work<T: Send + 'static>(
        self,
        work: impl FnOnce(&mut dyn Harness, &AtomicBool) -> T + Send + 'static,
    ) -> Option<(Self, T)> {
        use diesel_async::async_connection_wrapper::AsyncConnectionWrapper;
        use std::sync::Arc;
        use std::sync::atomic::Ordering;

        struct StopOnDrop(Arc<AtomicBool>);
        impl Drop for StopOnDrop {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let stop = StopOnDrop(Arc::default());
        let is_stopped = Arc::clone(&stop.0);
        #[cfg(feature = "tracing")]
        let (span, dispatch) = (
            tracing::Span::current(),
            tracing::dispatcher::get_default(Clone::clone),
        );
        let task = tokio::task::spawn_blocking(move || {
            #[cfg(feature = "tracing")]
            let _dispatch = tracing::dispatcher::set_default(&dispatch);
            #[cfg(feature = "tracing")]
            let _entered = span.enter();
            let mut harness = AsyncConnectionWrapper::<Self>::from(self);
            let answer = work(&mut harness, &is_stopped);
            (harness.into_inner(), answer)
        });
        match task.await {
            Ok(worked) => Some(worked),
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => None,
            },
        }
    }
}

#[cfg(feature = "postgres")]
impl Session for diesel::pg::PgConnection {
    async fn open(url: &str) -> ConnectionResult<Self> {
        <Self as diesel::Connection>::establish(url)
    }

    fn told_process_id(&mut self) -> Option<u32> {
        None
    }

    async fn locks(&mut self) -> Result<Locks, Error> {
        crate::monitor::blocking::locks(self, &Names::none())
    }

    async fn work<T: Send + 'static>(
        mut self,
        work: impl FnOnce(&mut dyn Harness, &AtomicBool) -> T + Send + 'static,
    ) -> Option<(Self, T)> {
        let answer = work(&mut self, &AtomicBool::new(false));
        Some((self, answer))
    }
}

/// The versions that are applied, without making the table that they are in.
pub(super) async fn applied<D: Driver>(conn: &mut D) -> QueryResult<Vec<String>> {
    let Some(table) = conn.query_text(sql::migrations::TABLE).await? else {
        return Ok(Vec::new());
    };
    let versions = conn.query_text(&sql::migrations::versions(&table)).await?;
    let versions = versions.unwrap_or_default();
    let versions = versions.split(sql::migrations::SEPARATOR);
    Ok(versions.map(str::to_owned).collect())
}
