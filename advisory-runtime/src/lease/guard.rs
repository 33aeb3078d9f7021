//! Runs a body under a lease that is renewed in the background, and ends the lease.

use super::rows::{Alive, LeaseEnd, LeaseRenewal};
use super::{Error, Lease, body_leases};
use crate::debug::LockSet;
use crate::error::{Fallible, never};
use crate::holding::{Handle, OfDeclaredLock};
use crate::observe::{Outcome, Telemetry};
use crate::rows::{Ended, Phase, Stop, connection_lost, watch};
use crate::{DeclaredLock, Holding, LockKey};
use advisory_pattern::sha256;
use diesel::result::Error as DieselError;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A lease that is renewed until it is finished or dropped.
///
/// It borrows nothing, so it can be stored in a struct or moved to a task. Dropping it, also by a
/// panic, releases the lease in the background. If the process dies, the lease expires.
///
/// ```
/// use advisory_runtime::lease::{Error, LeaseGuard};
///
/// async fn report(mut guard: LeaseGuard) -> Result<(), Error> {
///     let token = guard.lease().token();
///     let result = guard.run(async { println!("written with token {token}") }).await;
///     guard.finish(result).await
/// }
/// ```
#[must_use = "dropping it releases the lease"]
pub struct LeaseGuard {
    pub(super) lease: Lease,
    pub(super) renewal: Option<LeaseRenewal>,
    pub(super) max_hold: Option<Duration>,
    pub(super) since: Instant,
    pub(super) telemetry: Option<Telemetry>,
    /// For the recorded order of locks.
    pub(super) lock_set: Option<Arc<LockSet>>,
}

impl LeaseGuard {
    /// The lease, for the body.
    #[must_use]
    pub const fn lease(&self) -> &Lease {
        &self.lease
    }

    #[doc(hidden)]
    #[must_use]
    pub fn info(&self) -> Lease {
        self.lease.clone()
    }

    /// Runs a body under the lease, and drops it before the lease expires.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if a renewal was refused, or the server could not be reached until a tenth
    /// of the ttl, at most a second, before the expiry. The body was dropped, or ended too late.
    /// [`Error::HoldExceeded`] after the request's `max_hold`: the body was dropped and the lease
    /// released. [`Error::CommitUnknown`] if the body did not return in time after
    /// [`Lease::complete`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the body is dropped, and the lease goes on.
    pub async fn run<F: Future>(&mut self, body: F) -> Result<F::Output, Error> {
        // Pinned here, since each future below would hold the body twice.
        let outcome = self.watch(pin!(body)).await;
        if matches!(outcome, Err(Error::HoldExceeded { .. })) {
            drop(self.end(None).await);
        }
        if let Err(error) = &outcome
            && let Some(mut telemetry) = self.telemetry.take()
        {
            telemetry.record_end(Err(error));
        }
        outcome
    }

    /// Runs a body under the lease as [`run`](Self::run) does, and gives it a [`Holding`] for
    /// functions that take one.
    ///
    /// `key` is the declared lock of the request. The witness cannot outlive the body. See
    /// [holding](crate::guide::holding).
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and [`Error::NotHeld`] if the lease is on another key: the body does
    /// not run.
    pub async fn run_holding<'h, K: DeclaredLock, F: Future>(
        &'h mut self,
        key: &'h K,
        body: impl FnOnce(Holding<'h, K::Lock>) -> F,
    ) -> Result<F::Output, Error> {
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
        Handle::new(self.info(), key)
    }

    async fn watch<F: Future>(&self, body: F) -> Result<F::Output, Error> {
        let hold = &self.lease.hold;
        // A limit beyond the clock's range never comes.
        let limit = self
            .max_hold
            .and_then(|limit| self.since.checked_add(limit));
        let enter = || {
            #[cfg(feature = "tracing")]
            let span = self
                .telemetry
                .as_ref()
                .map(|telemetry| telemetry.span().entered());
            #[cfg(not(feature = "tracing"))]
            let span = ();
            let lock_set = self.lock_set.as_ref();
            let entered = lock_set.map(|set| body_leases::enter(&self.lease, set));
            (span, entered)
        };
        match watch(hold, limit, enter, body).await {
            Err(Stop::Exceeded) => Err(Error::HoldExceeded {
                lock: self.lease.name(),
                max_hold: self.max_hold.unwrap_or_default(),
            }),
            Err(Stop::Unanswered) if hold.phase().is_complete() => Err(Error::CommitUnknown {
                lock: self.lease.name(),
                source: hold.reason().unwrap_or_else(no_return),
            }),
            // A body that blocks its thread cannot be dropped in time.
            Ok(result) if !hold.is_over() || hold.phase().is_complete() => Ok(result),
            _ => Err(self.lost()),
        }
    }

    /// Releases the lease or, if the result is `Ok` and the request has a `keep`, marks the key as
    /// done for that time.
    ///
    /// # Locking
    ///
    /// One `UPDATE` of the row, if it is this grant's, on a connection of the pool.
    ///
    /// # Errors
    ///
    /// The body's own error. For an `Ok`, [`Error::Lost`] if the lease was lost before the body
    /// returned, or the key could not be kept. If the transaction of [`Lease::complete`] was rolled
    /// back, [`Error::RolledBack`], and the key is released; but [`Error::Lost`] if the key was no
    /// longer held. [`Error::CommitUnknown`] if the server cannot be reached to say whether that
    /// transaction was committed. Any other release that does not reach the server is not an error:
    /// the lease expires.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the lease is released in the background.
    pub async fn finish<T, E: From<Error>>(mut self, result: Result<T, E>) -> Result<T, E> {
        self.finish_recorded(result).await?
    }

    pub(crate) async fn finish_recorded<R: Fallible>(&mut self, result: R) -> Result<R, Error> {
        let telemetry = self.telemetry.take();
        let ended = self.finish_inner(result).await;
        if let Some(mut telemetry) = telemetry {
            telemetry.record_end(match &ended {
                Ok(result) if result.is_ok() => Ok(Outcome::Done),
                Ok(_) => Ok(Outcome::Failed),
                Err(error) => Err(error),
            });
        }
        ended
    }

    async fn finish_inner<R: Fallible>(&mut self, result: R) -> Result<R, Error> {
        let keep = self.lease.keep.filter(|_| result.is_ok());
        let hold = Arc::clone(&self.lease.hold);
        let is_complete = hold.phase().is_complete();
        let was_held = is_complete || !hold.is_over();
        let ended = self.end(keep).await;
        if !result.is_ok() {
            return Ok(result);
        }
        let lock = || self.lease.name();
        match (hold.phase(), ended) {
            // The transaction of `complete` was rolled back, and the lease was lost.
            (Phase::RolledBack, Ok(false)) => Err(self.lost()),
            (Phase::RolledBack, _) if keep.is_some() => Err(Error::RolledBack {
                lock: lock(),
                source: DieselError::RollbackTransaction,
            }),
            // Nobody can say whether it was committed.
            (Phase::InTransaction(_), Err(error)) => Err(Error::CommitUnknown {
                lock: lock(),
                source: error.into(),
            }),
            _ if is_complete => Ok(result),
            (_, Err(error)) if was_held && keep.is_some() => {
                Err(self.lease.lost_because(Some(error.into())))
            }
            (_, Ok(true) | Err(_)) if was_held => Ok(result),
            _ => Err(self.lost()),
        }
    }

    /// Has the keeper release the lease, unless it was finished, and then drop `alive`.
    pub(crate) fn release_later(&mut self, alive: Alive) {
        if let Some(renewal) = self.renewal.take() {
            renewal.end_later(LeaseEnd::RELEASE, alive);
        }
    }

    /// Returns `true` if the lease was still held.
    async fn end(&mut self, keep: Option<Duration>) -> Result<bool, Error> {
        let Some(renewal) = self.renewal.take() else {
            return Ok(false);
        };
        let end = LeaseEnd {
            keep,
            ..LeaseEnd::RELEASE
        };
        match renewal.end(end).await? {
            Ended::Done => Ok(true),
            Ended::Lost => Ok(false),
            // A release that was carried out finds the row again.
            Ended::Unknown(_) if keep.is_none() => Ok(false),
            Ended::Unknown(source) => Err(source.into()),
        }
    }

    fn lost(&self) -> Error {
        self.lease.lost_because(self.lease.hold.reason())
    }
}

impl std::fmt::Debug for LeaseGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("LeaseGuard");
        debug.field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        self.release_later(None);
    }
}

/// The connection of the body's transaction counts as lost.
fn no_return() -> DieselError {
    connection_lost("the call did not return in time after `complete`")
}

/// Called by the attribute's expansion.
pub async fn finish_at<R: Fallible>(mut guard: LeaseGuard, result: R) -> Result<R, Error> {
    guard.finish_recorded(result).await
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
