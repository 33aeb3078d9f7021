//! Runs a blocking body under a lease that is renewed in the background, and ends the lease.

use super::{Error, Lease};
use crate::driver::{block_on, wait_at_most};
use crate::{DeclaredLock, Holding, lease};
use std::time::Duration;

/// How long a drop waits for the release. After it the release goes on in the background.
const RELEASE: Duration = Duration::from_secs(1);

/// A lease that is renewed until it is finished or dropped; as
/// [`lease::LeaseGuard`](crate::lease::LeaseGuard).
///
/// It borrows nothing, so it can be stored in a struct or moved to a thread. Dropping it, also by a
/// panic, releases the lease, and waits at most a second for that. If the process dies, the lease
/// expires.
///
/// ```no_run
/// # use advisory_runtime::blocking::lease::{Error, LeaseGuard};
/// fn export(mut guard: LeaseGuard) -> Result<(), Error> {
///     let rows = guard.run(|| vec![1, 2, 3])?; // an error if the lease was lost meanwhile
///     println!("{} rows", rows.len());
///     guard.finish(Ok(()))
/// }
/// ```
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
    /// [`lease::LeaseGuard::run_holding`](crate::lease::LeaseGuard::run_holding).
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
    /// done for that time; as [`lease::LeaseGuard::finish`](crate::lease::LeaseGuard::finish).
    pub fn finish<T, E: From<Error>>(mut self, result: Result<T, E>) -> Result<T, E> {
        block_on(self.inner.finish_recorded(result))?
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        let _: Option<_> = wait_at_most(RELEASE, self.inner.release_later());
    }
}
