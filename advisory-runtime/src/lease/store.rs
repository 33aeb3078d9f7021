//! Where leases are: in a table that a pool reaches, or in memory.

use super::backoff::{LAST_TRY, Refusal};
use super::{Error, Lease, Request, Row, Table};
use crate::driver::Queries;
use crate::pool::Pool;
use crate::renewal::{self, Borrowed, DedicatedAnswer, UNANSWERED};
use crate::{Connection as _, PoolError};
use diesel_async::AsyncPgConnection;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

/// After so long without a connection, the pool is asked again: it may be checking one to a server that is gone.
const CONNECTION: Duration = Duration::from_secs(30);

/// A round trip of the holder.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum LeaseStep {
    Renew(Duration),
    Release,
    Keep(Duration),
    /// Asks whether the key is kept.
    IsKept,
}

/// The part of an acquisition that is the same in each try.
#[doc(hidden)]
#[derive(Debug)]
pub struct Acquisition {
    pub(crate) request: Request,
    pub(crate) grant_id: i64,
    /// Whether the current try was sent to the server.
    pub(crate) is_sent: Arc<AtomicBool>,
}

/// Where leases are: a pool of bb8 or deadpool, a [`Pool`] of your own, or [`InMemory`](super::InMemory).
///
/// # Examples
///
/// ```
/// use advisory_runtime::lease::{Leases, Store};
///
/// /// Runs with a database, and in a test with `Leases::in_memory()`.
/// struct Reports<S: Store> {
///     leases: Leases<S>,
/// }
/// ```
pub trait Store: Clone + Send + Sync + 'static {
    /// Starts the task of a lease, or says what is missing for it.
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

    /// Takes at most `left`, the time until the lease expires.
    #[doc(hidden)]
    fn step(
        &self,
        lease: &Lease,
        step: LeaseStep,
        every: Duration,
        left: Duration,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

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
    async fn attempt(
        &self,
        table: &Table,
        acquisition: &Acquisition,
        within: Option<Duration>,
    ) -> Result<Result<Lease, Refusal>, Error> {
        let since = Instant::now();
        // Only for this try: a call that waits holds no connection.
        let conn = loop {
            match timeout(within.unwrap_or(CONNECTION), self.connection()).await {
                Ok(conn) => break conn?,
                Err(_) => {
                    if let Some(within) = within {
                        return Err(late("could not get a connection from the pool", within));
                    }
                }
            }
        };
        let mut borrowed = Borrowed::new(conn);
        let answer = within.map_or(UNANSWERED, |within| {
            within.saturating_sub(since.elapsed()).max(LAST_TRY)
        });
        acquisition.is_sent.store(true, Ordering::Relaxed);
        let (request, grant_id) = (&acquisition.request, acquisition.grant_id);
        let tried = table.attempt(borrowed.pg(), request, grant_id);
        match timeout(answer, tried).await {
            Ok(tried) => {
                borrowed.record_answer();
                tried
            }
            Err(_) => Err(late("the server did not answer", answer)),
        }
    }

    async fn step(
        &self,
        lease: &Lease,
        step: LeaseStep,
        every: Duration,
        left: Duration,
    ) -> Result<bool, Error> {
        let dedicated = if lease.is_test {
            DedicatedAnswer::Useless
        } else {
            DedicatedAnswer::Trusted
        };
        renewal::round_trip(self, &(lease, step), dedicated, every, left).await
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

impl renewal::RenewalStep for (&Lease, LeaseStep) {
    type Error = Error;

    async fn send(&self, conn: &mut AsyncPgConnection) -> Result<bool, Error> {
        let (lease, step) = *self;
        lease.step_on(conn, step).await
    }
}

impl Lease {
    pub(crate) async fn step_on<D: Queries>(
        &self,
        conn: &mut D,
        step: LeaseStep,
    ) -> Result<bool, Error> {
        let table = &self.table;
        match step {
            LeaseStep::Renew(ttl) => table.renew_on(conn, self, ttl).await,
            LeaseStep::Release => table.release_on(conn, self).await,
            LeaseStep::Keep(keep) => table.keep_on(conn, self, keep).await,
            LeaseStep::IsKept => table.is_kept(conn, self).await,
        }
    }
}

/// Whether the server was not reached or did not answer.
pub(super) fn is_unreachable(error: &Error) -> bool {
    match error {
        Error::Pool(_) | Error::BrokenConnection { .. } => true,
        Error::Database(error) => crate::error::is_connection_lost(error),
        _ => false,
    }
}

pub(crate) fn late(what: &str, within: Duration) -> Error {
    PoolError::new(format!("{what} within {within:.1?}")).into()
}
