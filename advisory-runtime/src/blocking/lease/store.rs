//! A blocking pool as the store of leases.

use crate::PoolError;
use crate::blocking::reach::Threaded;
use crate::blocking::{Connection as _, Pool};
use crate::driver::block_on;
use crate::lease::store::{Acquisition, Store, late};
use crate::lease::tries::{LAST_TRY, Refusal};
use crate::lease::{Error, Lease, Row, Table};
use crate::rows::{Keeper, UNANSWERED};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// Leases on the connections of a blocking pool.
#[derive(Clone)]
pub(super) struct Blocking<P>(pub(super) P);

impl<P: Pool + Clone + Send + Sync + 'static> Store for Blocking<P> {
    type Reach = Threaded<P>;

    fn reach(&self) -> Threaded<P> {
        Threaded::new(self.0.clone())
    }

    fn identity(&self) -> Option<usize> {
        self.0.identity()
    }

    fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Result<(), &'static str> {
        if Keeper::of_process().spawn(task) {
            Ok(())
        } else {
            Err("the thread for the renewals could not be started")
        }
    }

    /// On a thread of its own, so that one without an answer stops nothing else.
    async fn attempt(
        &self,
        table: &Table,
        acquisition: &Acquisition,
        within: Option<Duration>,
    ) -> Result<Result<Lease, Refusal>, Error> {
        let since = Instant::now();
        let (table, request) = (table.clone(), acquisition.request.clone());
        let (grant_id, is_sent) = (acquisition.grant_id, Arc::clone(&acquisition.is_sent));
        let pool = self.0.clone();
        let (connected, is_connected) = oneshot::channel();
        let (reply, answered) = oneshot::channel();
        let attempt = move || match pool.connection() {
            // Nobody may wait for it any more.
            Err(error) => drop(connected.send(Err(error))),
            Ok(mut conn) => {
                is_sent.store(true, Ordering::Relaxed);
                if connected.send(Ok(())).is_ok() {
                    drop(reply.send(block_on(table.attempt(conn.pg(), &request, grant_id))));
                }
            }
        };
        let thread = thread::Builder::new().name("advisory-lease".to_owned());
        // It ends when the server has answered.
        drop(thread.spawn(attempt).map_err(PoolError::new)?);
        let gone = |gone: oneshot::error::RecvError| Error::from(PoolError::new(gone));
        let is_connected = match within.or(acquisition.connection_limit()) {
            None => is_connected.await,
            Some(limit) => match timeout(limit, is_connected).await {
                Ok(is_connected) => is_connected,
                Err(_) => return Err(late("could not get a connection from the pool", limit)),
            },
        };
        is_connected.map_err(gone)??;
        let limit = within.map_or(UNANSWERED, |within| {
            within.saturating_sub(since.elapsed()).max(LAST_TRY)
        });
        match timeout(limit, answered).await {
            Ok(answer) => answer.map_err(gone)?,
            Err(_) => Err(late("the server did not answer", limit)),
        }
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
