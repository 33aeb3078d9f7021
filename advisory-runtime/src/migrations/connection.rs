//! The connection of a run: passes it to Diesel's migrations, and asks on it who holds the lock.

use super::sql;
use crate::driver::{Driver, Queries};
use crate::lock::OwnedLockGuard;
use diesel::QueryResult;
use diesel::connection::BoxableConnection;
use diesel::pg::Pg;
#[cfg(feature = "diesel-async")]
use diesel_async::async_connection_wrapper::AsyncConnectionWrapper;
use diesel_migrations::MigrationHarness;
use std::sync::atomic::AtomicBool;

pub(crate) trait Session: Sized {
    type Driver: Queries;

    /// The blocking connection that Diesel's migrations run on.
    type Harness: MigrationHarness<Pg> + BoxableConnection<Pg>;

    fn driver(&mut self) -> &mut Self::Driver;

    /// Passes the connection that holds the lock to work that blocks. The flag is set when the run
    /// is dropped. Returns `None` if no thread could be started.
    fn work<T: Send + 'static>(
        lock: Lock<Self>,
        work: impl FnOnce(&mut Self::Harness, &AtomicBool) -> T + Send + 'static,
    ) -> impl Future<Output = Option<(Lock<Self>, T)>>;
}

/// The lock of a run, with its connection.
pub(crate) type Lock<S> = OwnedLockGuard<S, <S as Session>::Driver>;

#[cfg(feature = "diesel-async")]
impl Session for diesel_async::AsyncPgConnection {
    type Driver = Self;
    type Harness = AsyncConnectionWrapper<Self>;

    fn driver(&mut self) -> &mut Self {
        self
    }

    /// Works on a thread for blocking work. Diesel-async's `AsyncMigrationHarness` would panic on a
    /// runtime of one thread, and block the other futures of its task.
    async fn work<T: Send + 'static>(
        lock: Lock<Self>,
        work: impl FnOnce(&mut Self::Harness, &AtomicBool) -> T + Send + 'static,
    ) -> Option<(Lock<Self>, T)> {
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
        let on_thread = |conn| async {
            let task = tokio::task::spawn_blocking(move || {
                #[cfg(feature = "tracing")]
                let _dispatch = tracing::dispatcher::set_default(&dispatch);
                #[cfg(feature = "tracing")]
                let _entered = span.enter();
                let mut harness = AsyncConnectionWrapper::from(conn);
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
        };
        lock.lend(on_thread).await
    }
}

#[cfg(feature = "postgres")]
impl Session for &mut diesel::pg::PgConnection {
    type Driver = diesel::pg::PgConnection;
    type Harness = diesel::pg::PgConnection;

    fn driver(&mut self) -> &mut Self::Driver {
        self
    }

    /// The lock stays here: a panic of the work releases it.
    async fn work<T: Send + 'static>(
        mut lock: Lock<Self>,
        work: impl FnOnce(&mut Self::Harness, &AtomicBool) -> T + Send + 'static,
    ) -> Option<(Lock<Self>, T)> {
        let answer = work(lock.conn(), &AtomicBool::new(false));
        Some((lock, answer))
    }
}

/// Reads the versions that are applied. Diesel's harness would create their table without the lock:
/// two processes that do so at once collide, and a role that must not create it could not start.
pub(super) async fn applied<D: Driver>(conn: &mut D) -> QueryResult<Vec<String>> {
    let Some(table) = conn.query_text(&sql::table()).await? else {
        return Ok(Vec::new());
    };
    let versions = conn.query_text(&sql::versions(&table)).await?;
    let versions = versions.as_deref().into_iter();
    let versions = versions.flat_map(|versions| versions.split(sql::SEPARATOR));
    Ok(versions.map(str::to_owned).collect())
}
