//! The witness that a lease is held.

use super::{Error, Lease, LeaseGuard};
use crate::error::never;
use crate::holding::{Handle, OfDeclaredLock};
use crate::{DeclaredLock, Holding, LockKey};
use advisory_pattern::sha256;

impl LeaseGuard {
    /// Runs a body under the lease as [`run`](Self::run) does, and gives it a [`Holding`] for functions that take one.
    ///
    /// `key` is the declared lock of the request. The witness cannot outlive the body.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and [`Error::NotHeld`] if the lease is on another key: the body does not run.
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use advisory_runtime::lease::{Error, LeaseGuard, Leases};
    /// use advisory_runtime::{Holding, LockKey, Pool};
    ///
    /// #[derive(LockKey)]
    /// #[lock_key("report:<month>")]
    /// struct ReportLock {
    ///     month: u32,
    /// }
    ///
    /// async fn f<P: Pool + Clone + Send + 'static>(leases: &Leases<P>, month: u32) -> Result<(), Error> {
    ///     let report = ReportLock { month };
    ///     let mut held = leases.acquire(&report).await?;
    ///     let result = held.run_holding(&report, |report| write(report)).await?;
    ///     held.finish(result).await
    /// }
    /// # async fn write(_: Holding<'_, ReportLock>) -> Result<(), Error> { Ok(()) }
    /// ```
    pub async fn run_holding<'h, K, F>(
        &'h mut self,
        key: &'h K,
        body: impl FnOnce(Holding<'h, K::Lock>) -> F,
    ) -> Result<F::Output, Error>
    where
        K: DeclaredLock,
        F: Future,
    {
        let key = key.lock();
        if self.lease().key_hash != sha256(&key.rendered()) {
            let lock = key.pattern().into();
            return Err(Error::NotHeld { lock });
        }
        self.run(body(Holding::new(key))).await
    }

    /// For the expansion, which made the request of the same lock.
    #[doc(hidden)]
    pub fn handle<'h, K>(&self, key: &'h K) -> Handle<Lease, &'h K> {
        Handle::new(self.acquired(), key)
    }
}

impl Lease {
    /// For its message: a body under a declared lock gets a [`Handle`].
    #[doc(hidden)]
    #[must_use]
    pub fn holding<H>(&self) -> H
    where
        for<'h> &'h Self: OfDeclaredLock,
    {
        never()
    }
}
