//! A granted lease, and the guard that runs a blocking body under it.

use super::Error;
use crate::blocking::Connection;
use crate::driver::{block_on, wait_at_most};
use crate::{DeclaredLock, Holding, lease};
use std::ops::Deref;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a drop waits for the release. After it the release goes on in the background.
const RELEASE: Duration = Duration::from_secs(1);

/// A granted lease, as [`lease::Lease`]: its token, and the [`fence`](Self::fence) for blocking
/// connections.
///
/// A clone is the same lease.
///
/// ```no_run
/// use advisory_runtime::blocking::lease::Lease;
/// use advisory_runtime::lease::Error;
/// use diesel::PgConnection;
///
/// fn publish(conn: &mut PgConnection, lease: &Lease) -> Result<(), Error> {
///     conn.transaction(|conn| {
///         lease.fence(conn)?;
///         let publish = "UPDATE reports SET is_public = true WHERE month = '2026-11'";
///         diesel::sql_query(publish).execute(conn)?;
///         Ok(())
///     })
/// }
/// # use diesel::prelude::*;
/// ```
#[derive(Clone, Debug)]
pub struct Lease(pub(super) lease::Lease);

impl Lease {
    /// Checks in the open transaction that the token is current; as [`lease::Lease::fence`].
    pub fn fence<C: Connection>(&self, conn: &mut C) -> Result<(), Error> {
        block_on(self.0.fence_on(conn.pg()))
    }

    /// Marks the work as done in the transaction that writes its results; as
    /// [`lease::Lease::complete`].
    pub fn complete<C: Connection>(&self, conn: &mut C) -> Result<(), Error> {
        block_on(self.0.complete_on(conn.pg()))
    }
}

/// The token, the remaining time, and what else does not need a connection.
impl Deref for Lease {
    type Target = lease::Lease;

    fn deref(&self) -> &lease::Lease {
        &self.0
    }
}

/// A lease that is renewed until it is finished or dropped; as [`lease::LeaseGuard`]. Dropping it
/// waits at most a second for the release.
#[derive(Debug)]
#[must_use = "dropping it releases the lease"]
pub struct LeaseGuard {
    inner: lease::LeaseGuard,
    lease: Lease,
}

impl LeaseGuard {
    pub(super) fn new(inner: lease::LeaseGuard) -> Self {
        let lease = Lease(inner.lease().clone());
        Self { inner, lease }
    }

    /// The lease, for the body.
    #[must_use]
    pub const fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Runs a body under the lease, on this thread.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lease was lost before the body returned, or is about to expire before
    /// the body is called. [`Error::HoldExceeded`] if the body returned after the request's
    /// `max_hold`: then the lease is released. In both cases the body's result is dropped, and what
    /// it committed stays committed.
    pub fn run<T>(&mut self, body: impl FnOnce() -> T) -> Result<T, Error> {
        block_on(self.inner.run(async { body() }))
    }

    /// Runs a body under the lease, and gives it a [`Holding`]; as
    /// [`lease::LeaseGuard::run_holding`].
    pub fn run_holding<'h, K: DeclaredLock, T>(
        &'h mut self,
        key: &'h K,
        body: impl FnOnce(Holding<'h, K::Lock>) -> T,
    ) -> Result<T, Error> {
        block_on(
            self.inner
                .run_holding(key, |holding| async move { body(holding) }),
        )
    }

    /// Releases the lease or, if the result is `Ok` and the request has a `keep`, marks the key as
    /// done for that time; as [`lease::LeaseGuard::finish`].
    pub fn finish<T, E: From<Error>>(mut self, result: Result<T, E>) -> Result<T, E> {
        block_on(self.inner.finish_recorded(result))?
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        let (alive, released) = oneshot::channel();
        self.inner.release_later(Some(alive));
        let _: Option<_> = wait_at_most(RELEASE, released);
    }
}
