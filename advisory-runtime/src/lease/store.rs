//! Where leases are: in a table that a pool reaches, or in memory.

use super::backoff::{LAST_TRY, Refusal};
use super::{Error, Lease, Request, Row, Table};
use crate::PoolError;
use crate::pool::Pool;
use crate::renewal::{self, Borrowed, Dedicated, UNANSWERED};
use diesel_async::AsyncPgConnection;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// A round trip of the holder.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum Step {
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
    pub(super) request: Request,
    pub(super) grant_id: i64,
    /// Whether the current try was sent to the server.
    pub(super) is_sent: AtomicBool,
}

/// Where leases are: a pool of bb8 or deadpool, a [`Pool`] of your own, or [`InMemory`](super::InMemory).
pub trait Store: Clone + Send + Sync + 'static {
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
        step: Step,
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
        let conn = match within {
            Some(within) => match timeout(within, self.connection()).await {
                Ok(conn) => conn?,
                Err(_) => return Err(late("could not get a connection from the pool", within)),
            },
            None => self.connection().await?,
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
                borrowed.answered();
                tried
            }
            Err(_) => Err(late("the server did not answer", answer)),
        }
    }

    async fn step(
        &self,
        lease: &Lease,
        step: Step,
        every: Duration,
        left: Duration,
    ) -> Result<bool, Error> {
        let dedicated = if lease.is_test {
            Dedicated::Useless
        } else {
            Dedicated::Trusted
        };
        renewal::round_trip(self, &(lease, step), dedicated, every, left).await
    }

    async fn holds(&self, table: &Table, lease: &Lease) -> Result<bool, Error> {
        table.holds(&mut self.connection().await?, lease).await
    }

    async fn list(&self, table: &Table) -> Result<Vec<Row>, Error> {
        table.list(&mut self.connection().await?).await
    }

    async fn sweep(&self, table: &Table) -> Result<usize, Error> {
        table.sweep(&mut self.connection().await?).await
    }
}

impl renewal::Step for (&Lease, Step) {
    type Error = Error;

    async fn send(&self, conn: &mut AsyncPgConnection) -> Result<bool, Error> {
        let (lease, step) = *self;
        let table = &lease.table;
        match step {
            Step::Renew(ttl) => table.renew(conn, lease, ttl).await,
            Step::Release => table.release(conn, lease).await,
            Step::Keep(keep) => table.keep(conn, lease, keep).await,
            Step::IsKept => table.is_kept(conn, lease).await,
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

fn late(what: &str, within: Duration) -> Error {
    PoolError::new(format!("{what} within {within:.1?}")).into()
}
