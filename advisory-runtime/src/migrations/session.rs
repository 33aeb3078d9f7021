//! The connection of a run: it opens it, passes it to Diesel's migrations, and asks on it who holds the lock.

use crate::driver::Driver;
#[cfg(feature = "diesel-async")]
use crate::driver::cancel::told_process_id;
use crate::monitor::{Locks, Names};
use crate::{Error, sql};
use diesel::connection::SimpleConnection;
use diesel::pg::Pg;
use diesel::{ConnectionResult, QueryResult};
#[cfg(feature = "diesel-async")]
use diesel_async::async_connection_wrapper::AsyncConnectionWrapper;
use diesel_migrations::MigrationHarness;
use std::sync::atomic::AtomicBool;

/// A connection that can carry a run.
pub(super) trait Session: Driver + 'static {
    /// The blocking connection that Diesel's migrations run on.
    type Harness: MigrationHarness<Pg> + SimpleConnection;

    fn open(url: &str) -> impl Future<Output = ConnectionResult<Self>> + Send;

    /// The process id that the session was told at its start, if Diesel gives access to it.
    fn told_process_id(&mut self) -> Option<u32>;

    fn locks(&mut self) -> impl Future<Output = Result<Locks, Error>> + Send;

    /// Passes the connection to work that blocks. The flag says that the run was dropped. `None` if no thread could be started.
    fn work<T: Send + 'static>(
        self,
        work: impl FnOnce(&mut Self::Harness, &AtomicBool) -> T + Send + 'static,
    ) -> impl Future<Output = Option<(Self, T)>> + Send;
}

#[cfg(feature = "diesel-async")]
impl Session for diesel_async::AsyncPgConnection {
    type Harness = AsyncConnectionWrapper<Self>;

    async fn open(url: &str) -> ConnectionResult<Self> {
        <Self as diesel_async::AsyncConnection>::establish(url).await
    }

    fn told_process_id(&mut self) -> Option<u32> {
        told_process_id(&self.cancel_token())
    }

    async fn locks(&mut self) -> Result<Locks, Error> {
        crate::monitor::locks(self, &Names::none()).await
    }

    /// On a thread for blocking work, so that it works on a runtime of one thread too.
    async fn work<T: Send + 'static>(
        self,
        work: impl FnOnce(&mut Self::Harness, &AtomicBool) -> T + Send + 'static,
    ) -> Option<(Self, T)> {
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
            let mut harness = AsyncConnectionWrapper::from(self);
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
    type Harness = Self;

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
        work: impl FnOnce(&mut Self, &AtomicBool) -> T + Send + 'static,
    ) -> Option<(Self, T)> {
        let answer = work(&mut self, &AtomicBool::new(false));
        Some((self, answer))
    }
}

/// The versions that are applied. Does not create their table.
pub(super) async fn applied<D: Driver>(conn: &mut D) -> QueryResult<Vec<String>> {
    let Some(table) = conn.query_text(sql::migrations::TABLE).await? else {
        return Ok(Vec::new());
    };
    let versions = conn.query_text(&sql::migrations::versions(&table)).await?;
    let versions = versions.unwrap_or_default();
    let versions = versions.split(sql::migrations::SEPARATOR);
    Ok(versions.map(str::to_owned).collect())
}
