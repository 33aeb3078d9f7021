//! Acquires leases on connections of a blocking pool.

use super::{Error, Event, Lease, LeaseGuard, Request, Row};
use crate::blocking::reach::{OnThread, Threaded};
use crate::blocking::{Connection as _, Pool};
use crate::driver::block_on;
use crate::lease;
use crate::lease::rows::{AnyLeaseRows, LeaseRows};
use crate::lease::store::{Acquisition, Store, late};
use crate::lease::tries::Refusal;
use crate::rows::{Keeper, no_connection};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Acquires a lease in `public.advisory_lease`, and renews it in the background until it is
/// finished or dropped: [`Leases::acquire`].
#[cfg_attr(debug_assertions, track_caller)]
pub fn acquire<P: Pool + Clone + Send + Sync + 'static>(
    pool: &P,
    request: impl Into<Request>,
) -> Result<LeaseGuard, Error> {
    Leases::new(pool.clone()).acquire(request)
}

/// Removes all expired rows of `public.advisory_lease`, on a connection of the pool; as
/// [`lease::sweep`]. For another table, see [`Table::sweep`](super::Table::sweep).
pub fn sweep<P: Pool + Clone + Send + Sync + 'static>(pool: &P) -> Result<usize, Error> {
    block_on(lease::sweep(&Leases::new(pool.clone()).0))
}

/// A lease table, and the blocking pool whose connections reach it; as [`lease::Leases`].
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::blocking::lease::{Error, Leases, Request};
/// use diesel::{PgConnection, r2d2::{ConnectionManager, Pool}};
///
/// fn is_free(pool: Pool<ConnectionManager<PgConnection>>, key: &str) -> Result<bool, Error> {
///     let leases = Leases::new(pool);
///     match leases.acquire(Request::text(key)) {
///         Ok(guard) => guard.finish(Ok(true)),
///         Err(error) if error.is_held() => Ok(false),
///         Err(error) => Err(error),
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Leases<P>(lease::Leases<Blocking<P>>);

impl<P> std::fmt::Debug for Leases<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<P: Pool + Clone + Send + Sync + 'static> Leases<P> {
    /// Leases in `public.advisory_lease`.
    pub fn new(pool: P) -> Self {
        Self(lease::Leases::new(Blocking(pool)))
    }

    /// Leases in this table.
    #[must_use]
    pub fn table(self, table: impl Into<lease::Table>) -> Self {
        Self(self.0.table(table.into()))
    }

    /// Calls this for each event, on the thread that renews every lease of the process, so it must
    /// not block. A panic is caught and discarded.
    #[must_use]
    pub fn observe(self, observer: impl Fn(Event<'_>) + Send + Sync + 'static) -> Self {
        Self(self.0.observe(observer))
    }

    /// Acquires a lease, and renews it in the background until it is finished or dropped; as
    /// [`lease::Leases::acquire`]. A call that waits holds no connection of the pool between two
    /// tries.
    ///
    /// # Errors
    ///
    /// [`Error::NoRuntime`] if the thread for the renewals could not be started.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn acquire(&self, request: impl Into<Request>) -> Result<LeaseGuard, Error> {
        let request = request.into().with_origin();
        Ok(LeaseGuard::new(block_on(
            self.0.acquire_recorded(request, None),
        )?))
    }

    /// Asks the server whether the lease is held; as [`lease::Leases::holds`].
    pub fn holds(&self, lease: &Lease) -> Result<bool, Error> {
        block_on(self.0.holds(lease))
    }

    /// Lists the leases of the table on a connection of the pool; as [`lease::Leases::list`].
    pub fn list(&self) -> Result<Vec<Row>, Error> {
        block_on(self.0.list())
    }
}

/// Leases on the connections of a blocking pool.
#[derive(Clone)]
struct Blocking<P>(P);

impl<P: Pool + Clone + Send + Sync + 'static> Store for Blocking<P> {
    fn rows(&self) -> AnyLeaseRows {
        Box::new(LeaseRows(Threaded::new(self.0.clone())))
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
        table: &lease::Table,
        acquisition: &Acquisition,
        within: Option<Duration>,
    ) -> Result<Result<lease::Lease, Refusal>, Error> {
        let since = Instant::now();
        let connect = OnThread::connect(Arc::new(self.0.clone()), false);
        let conn = match within.or(acquisition.connection_limit()) {
            None => connect.await?,
            Some(limit) => match timeout(limit, connect).await {
                Ok(conn) => conn?,
                Err(_) => return Err(no_connection(limit).into()),
            },
        };
        let (table, request) = (table.clone(), acquisition.request.clone());
        let grant_id = acquisition.grant_id;
        let limit = acquisition.mark_sent(since, within);
        let tried = conn.answer(move |conn| block_on(table.grant(conn, &request, grant_id, None)));
        match timeout(limit, tried).await {
            Ok(tried) => tried?,
            Err(_) => Err(late(limit)),
        }
    }

    async fn holds(&self, table: &lease::Table, lease: &lease::Lease) -> Result<bool, Error> {
        block_on(table.holds_on(self.0.connection()?.pg(), lease))
    }

    async fn list(&self, table: &lease::Table) -> Result<Vec<Row>, Error> {
        block_on(table.list_on(self.0.connection()?.pg()))
    }

    async fn sweep(&self, table: &lease::Table) -> Result<usize, Error> {
        block_on(table.sweep_on(self.0.connection()?.pg()))
    }
}
