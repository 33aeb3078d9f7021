//! A blocking pool as the store of leases.

use crate::blocking::reach::{OnThread, Threaded};
use crate::blocking::{Connection as _, Pool};
use crate::driver::block_on;
use crate::lease::rows::LeaseRows;
use crate::lease::store::{Acquisition, Store, late};
use crate::lease::tries::{LAST_TRY, Refusal};
use crate::lease::{Error, Lease, Row, Table};
use crate::rows::{Keeper, UNANSWERED};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Leases on the connections of a blocking pool.
#[derive(Clone)]
pub(super) struct Blocking<P>(pub(super) P);

impl<P: Pool + Clone + Send + Sync + 'static> Store for Blocking<P> {
    type Rows = LeaseRows<Threaded<P>>;

    fn rows(&self) -> Self::Rows {
        LeaseRows(Threaded::new(self.0.clone()))
    }

    fn identity(&self) -> Option<usize> {
        self.0.identity()
    }

    fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Result<(), &'static str> {
        if Keeper::of_process().spawn(Box::pin(task)) {
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
        let connect = OnThread::connect(self.0.clone(), false);
        let conn = match within.or(acquisition.connection_limit()) {
            None => connect.await?,
            Some(limit) => match timeout(limit, connect).await {
                Ok(conn) => conn?,
                Err(_) => return Err(late("could not get a connection from the pool", limit)),
            },
        };
        let limit = within.map_or(UNANSWERED, |within| {
            within.saturating_sub(since.elapsed()).max(LAST_TRY)
        });
        let (table, request) = (table.clone(), acquisition.request.clone());
        let grant_id = acquisition.grant_id;
        acquisition.is_sent.store(true, Ordering::Relaxed);
        let tried = conn.answer(move |conn| block_on(table.grant(conn, &request, grant_id, None)));
        match timeout(limit, tried).await {
            Ok(tried) => tried?,
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
