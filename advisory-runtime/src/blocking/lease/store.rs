//! A blocking pool as the store of leases: each statement of a lease's task runs on a thread of its own.

use crate::PoolError;
use crate::blocking::{Connection as _, Pool};
use crate::driver::{block_on, run};
use crate::lease::backoff::{LAST_TRY, Refusal};
use crate::lease::store::{Acquisition, LeaseStep, Store, late};
use crate::lease::{Error, Lease, Row, Table};
use crate::renewal::UNANSWERED;
use diesel::PgConnection;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// The store behind [`Leases`](super::Leases).
#[derive(Clone)]
pub(super) struct Blocking<P>(pub(super) P);

impl<P: Pool + Clone + Send + Sync + 'static> Blocking<P> {
    /// Runs a statement on a connection of the pool. After `connection` without a connection, the statement is not sent any more; after
    /// `answer` without an answer, nobody waits for it.
    async fn send<T: Send + 'static>(
        &self,
        connection: Option<Duration>,
        answer: impl FnOnce() -> Duration,
        statement: impl FnOnce(&mut PgConnection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let Self(pool) = self.clone();
        let (connected, is_connected) = oneshot::channel();
        let (reply, answered) = oneshot::channel();
        let send = move || match pool.connection() {
            // Nobody may wait for it any more.
            Err(error) => drop(connected.send(Err(error))),
            Ok(mut conn) => {
                if connected.send(Ok(())).is_ok() {
                    drop(reply.send(statement(conn.pg())));
                }
            }
        };
        let thread = thread::Builder::new().name("advisory lease".to_owned());
        let thread = thread.spawn(send).map_err(PoolError::new)?;
        // It ends when the server has answered.
        drop(thread);
        let gone = |gone: oneshot::error::RecvError| Error::from(PoolError::new(gone));
        let is_connected = match connection {
            None => is_connected.await,
            Some(limit) => match timeout(limit, is_connected).await {
                Ok(is_connected) => is_connected,
                Err(_) => return Err(late("could not get a connection from the pool", limit)),
            },
        };
        is_connected.map_err(gone)??;
        let limit = answer();
        match timeout(limit, answered).await {
            Ok(answer) => answer.map_err(gone)?,
            Err(_) => Err(late("the server did not answer", limit)),
        }
    }
}

impl<P: Pool + Clone + Send + Sync + 'static> Store for Blocking<P> {
    fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Result<(), &'static str> {
        if run(Box::pin(task)) {
            Ok(())
        } else {
            Err("the thread for the renewals could not be started")
        }
    }

    async fn attempt(
        &self,
        table: &Table,
        acquisition: &Acquisition,
        within: Option<Duration>,
    ) -> Result<Result<Lease, Refusal>, Error> {
        let since = Instant::now();
        let answer = || {
            within.map_or(UNANSWERED, |within| {
                within.saturating_sub(since.elapsed()).max(LAST_TRY)
            })
        };
        let (table, request) = (table.clone(), acquisition.request.clone());
        let (grant_id, is_sent) = (acquisition.grant_id, Arc::clone(&acquisition.is_sent));
        self.send(within, answer, move |conn| {
            is_sent.store(true, Ordering::Relaxed);
            block_on(table.attempt(conn, &request, grant_id))
        })
        .await
    }

    async fn step(
        &self,
        lease: &Lease,
        step: LeaseStep,
        _: Duration,
        left: Duration,
    ) -> Result<bool, Error> {
        let limit = UNANSWERED.min(left / 2).max(Duration::from_millis(5));
        let lease = lease.clone();
        let statement = move |conn: &mut PgConnection| block_on(lease.step_on(conn, step));
        self.send(Some(limit), || limit, statement).await
    }

    async fn holds(&self, table: &Table, lease: &Lease) -> Result<bool, Error> {
        let mut conn = self.0.connection()?;
        block_on(table.holds_on(conn.pg(), lease))
    }

    async fn list(&self, table: &Table) -> Result<Vec<Row>, Error> {
        let mut conn = self.0.connection()?;
        block_on(table.list_on(conn.pg()))
    }

    async fn sweep(&self, table: &Table) -> Result<usize, Error> {
        let mut conn = self.0.connection()?;
        block_on(table.sweep_on(conn.pg()))
    }
}
