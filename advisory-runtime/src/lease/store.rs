//! The store of leases: a table that a pool reaches, or memory.

use super::rows::{AnyLeaseRows, LeaseRows};
use super::tries::{LAST_TRY, Refusal};
use super::{Error, Lease, Request, Row, Table};
use crate::driver::timeout;
use crate::pool::Pool;
use crate::rows::{Borrowed, Keeper, Pooled, Task, UNANSWERED, no_connection};
use crate::{Connection as _, PoolError, Wait};
use std::panic::catch_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// After so long without a connection, the pool is asked again: it may be checking one to a server
/// that is gone.
const CONNECTION: Duration = Duration::from_secs(30);
/// How long a call that does not wait for the key waits for a connection.
const CONNECTION_OF_A_TRY: Duration = Duration::from_secs(5);

/// The part of an acquisition that is the same in each try.
#[doc(hidden)]
#[derive(Debug)]
pub struct Acquisition {
    pub(crate) request: Request,
    pub(crate) grant_id: i64,
    /// `true` once the current try was sent to the server.
    pub(crate) is_sent: AtomicBool,
}

impl Acquisition {
    /// How long a call that does not wait waits for a connection.
    pub(crate) fn connection_limit(&self) -> Option<Duration> {
        matches!(self.request.wait, Wait::Never).then_some(CONNECTION_OF_A_TRY)
    }

    /// Notes that a try is sent now. Returns the time for its answer: what is left of `within`,
    /// which is counted from `since`.
    pub(crate) fn mark_sent(&self, since: Instant, within: Option<Duration>) -> Duration {
        self.is_sent.store(true, Ordering::Relaxed);
        within.map_or(UNANSWERED, |within| {
            within.saturating_sub(since.elapsed()).max(LAST_TRY)
        })
    }
}

pub(crate) fn late(limit: Duration) -> Error {
    PoolError::new(format!("the server did not answer within {limit:.1?}")).into()
}

/// Where leases are: a pool of bb8 or deadpool, a [`Pool`] of your own, or
/// [`InMemory`](super::InMemory) in unit tests.
pub trait Store: Clone + Send + Sync + 'static {
    /// The statements of the keeper. To be called on the runtime of the pool's connections.
    #[doc(hidden)]
    fn rows(&self) -> AnyLeaseRows;

    /// A number that no other store of this type has while this one exists.
    #[doc(hidden)]
    fn identity(&self) -> Option<usize>;

    #[doc(hidden)]
    fn keeper(&self) -> Arc<Keeper> {
        Arc::clone(Keeper::of_process())
    }

    /// Starts the task of an acquisition, or says what is missing for it.
    #[doc(hidden)]
    fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Result<(), &'static str> {
        let Ok(runtime) = Handle::try_current() else {
            return Err("there is no tokio runtime");
        };
        // A panic is tokio's only sign that a runtime has no timer.
        let timer = catch_unwind(|| drop(tokio::time::sleep_until(Instant::now())));
        if timer.is_err() {
            return Err(
                "the tokio runtime has no timer: call `enable_time` or `enable_all` on its builder",
            );
        }
        let task: Task = Box::pin(task);
        drop(runtime.spawn(task));
        Ok(())
    }

    /// Tries once, for at most `within`.
    #[doc(hidden)]
    fn attempt(
        &self,
        table: &Table,
        acquisition: &Acquisition,
        within: Option<Duration>,
    ) -> impl Future<Output = Result<Result<Lease, Refusal>, Error>> + Send;

    #[doc(hidden)]
    fn holds(
        &self,
        table: &Table,
        lease: &Lease,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    #[doc(hidden)]
    fn list(&self, table: &Table) -> impl Future<Output = Result<Vec<Row>, Error>> + Send;

    #[doc(hidden)]
    fn sweep(&self, table: &Table) -> impl Future<Output = Result<usize, Error>> + Send;
}

impl<P: Pool + Clone + Send + 'static> Store for P {
    fn rows(&self) -> AnyLeaseRows {
        Box::new(LeaseRows(Pooled::new(self.clone())))
    }

    fn identity(&self) -> Option<usize> {
        Pool::identity(self)
    }

    async fn attempt(
        &self,
        table: &Table,
        acquisition: &Acquisition,
        within: Option<Duration>,
    ) -> Result<Result<Lease, Refusal>, Error> {
        let since = Instant::now();
        let limit = within.or(acquisition.connection_limit());
        // Only for this try: a call that waits holds no connection.
        let conn = loop {
            let conn = pin!(self.connection());
            match (timeout(limit.unwrap_or(CONNECTION), conn).await, limit) {
                (Some(conn), _) => break conn?,
                (None, None) => {}
                (None, Some(limit)) => return Err(no_connection(limit).into()),
            }
        };
        let mut borrowed = Borrowed::new(conn);
        let (request, grant_id) = (&acquisition.request, acquisition.grant_id);
        let limit = acquisition.mark_sent(since, within);
        let tried = table.grant(borrowed.pg(), request, grant_id, None);
        let tried = timeout(limit, pin!(tried)).await;
        let tried = tried.ok_or_else(|| late(limit))?;
        borrowed.record_answer();
        tried
    }

    async fn holds(&self, table: &Table, lease: &Lease) -> Result<bool, Error> {
        table.holds_on(self.connection().await?.pg(), lease).await
    }

    async fn list(&self, table: &Table) -> Result<Vec<Row>, Error> {
        table.list(&mut self.connection().await?).await
    }

    async fn sweep(&self, table: &Table) -> Result<usize, Error> {
        table.sweep(&mut self.connection().await?).await
    }
}
