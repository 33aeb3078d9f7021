//! Acquires leases on connections of a blocking pool.

use super::store::Blocking;
use super::{Error, Event, Lease, LeaseGuard, Request, Row};
use crate::blocking::Pool;
use crate::driver::block_on;
use crate::lease;

/// Acquires a lease in `public.advisory_lease`, and renews it in the background until it is
/// finished or dropped: [`Leases::acquire`].
///
/// ```no_run
/// # use advisory_runtime::blocking::{Pool, lease::{self, Error, Request}};
/// # fn report<P: Pool + Clone + Send + Sync + 'static>(pool: &P) -> Result<(), Error> {
/// let mut guard = lease::acquire(pool, Request::text("report:2026-01"))?;
/// let written = guard.run(|| println!("the report"))?;
/// guard.finish(Ok(written))
/// # }
/// ```
#[cfg_attr(debug_assertions, track_caller)]
pub fn acquire<P: Pool + Clone + Send + Sync + 'static>(
    pool: &P,
    request: impl Into<Request>,
) -> Result<LeaseGuard, Error> {
    Leases::new(pool.clone()).acquire(request)
}

/// A lease table, and the blocking pool whose connections reach it; as
/// [`lease::Leases`](crate::lease::Leases).
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
    /// [`lease::Leases::acquire`](crate::lease::Leases::acquire). A call that waits holds no
    /// connection of the pool between two tries.
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

    /// Asks the server whether the lease is held; as
    /// [`lease::Leases::holds`](crate::lease::Leases::holds).
    pub fn holds(&self, lease: &Lease) -> Result<bool, Error> {
        block_on(self.0.holds(lease))
    }

    /// Lists the leases of the table on a connection of the pool; as
    /// [`lease::Leases::list`](crate::lease::Leases::list).
    pub fn list(&self) -> Result<Vec<Row>, Error> {
        block_on(self.0.list())
    }
}
