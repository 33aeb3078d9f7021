//! How does a body run under a lease that is renewed in the background, and how does the lease end?

use super::keeper::Finish;
use super::{Lease, running};
use crate::Error;
use crate::debug::LockSet;
use crate::error::Fallible;
use crate::observe::{Outcome, Telemetry};
use crate::renewal::{End, Stop, watch};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A lease that is renewed until it is finished or dropped.
///
/// It borrows nothing: store it in a struct, or move it to a task. Dropping it releases the lease in the background, as does a panic;
/// if the process dies, the lease expires.
#[derive(Debug)]
#[must_use = "dropping it releases the lease"]
pub struct Held {
    pub(super) lease: Lease,
    pub(super) finish: Option<oneshot::Sender<Finish>>,
    pub(super) max_hold: Option<Duration>,
    pub(super) keep: Option<Duration>,
    pub(super) since: Instant,
    pub(super) telemetry: Option<Telemetry>,
    /// Its place in the order of locks.
    pub(super) taken: Option<Arc<LockSet>>,
}

impl Held {
    /// The lease, for the body: its token, and the writes that are conditional on it.
    #[must_use]
    pub const fn lease(&self) -> &Lease {
        &self.lease
    }

    #[doc(hidden)]
    #[must_use]
    pub fn acquired(&self) -> Lease {
        self.lease.clone()
    }

    /// Runs a body under the lease, and drops it before the lease expires.
    ///
    /// # Errors
    ///
    /// [`Error::LockLost`] when a renewal was refused, or the server was not reached until the lease is about to expire (a tenth of
    /// its ttl before, at most a second): the body was dropped at its last `await`, or it ended too late and its result is
    /// refused. [`Error::HoldExceeded`] after the request's `max_hold`; the lease is released then.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the body, and the lease goes on.
    pub async fn run<F: Future>(&mut self, body: F) -> Result<F::Output, Error> {
        let outcome = self.watch(body).await;
        if matches!(outcome, Err(Error::HoldExceeded { .. })) {
            // The body is dropped, so nothing runs under it any more.
            drop(self.end(None).await);
        }
        if let Err(error) = &outcome
            && let Some(mut telemetry) = self.telemetry.take()
        {
            telemetry.record_end(Err(error));
        }
        outcome
    }

    async fn watch<F: Future>(&self, body: F) -> Result<F::Output, Error> {
        let hold = &self.lease.hold;
        // Past the end of all time is no bound.
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
            let taken = self.taken.as_ref();
            (span, taken.map(|taken| running::enter(&self.lease, taken)))
        };
        match watch(hold, limit, enter, body).await {
            Err(Stop::Exceeded) => Err(Error::HoldExceeded {
                lock: self.lease.name(),
                max_hold: self.max_hold.unwrap_or_default(),
            }),
            // What has kept its thread could not be dropped.
            Ok(result) if !hold.is_over() || hold.end() != End::Open => Ok(result),
            _ => Err(self.lost()),
        }
    }

    /// Releases the lease, or leaves the key taken for the request's `keep` if the result is `Ok`. After
    /// [`Lease::complete`] there is nothing left to do.
    ///
    /// # Locking
    ///
    /// One `UPDATE`, on a connection of the pool: that of [`Table::release`](super::Table::release), or of
    /// [`Table::keep`](super::Table::keep).
    ///
    /// # Errors
    ///
    /// The body's own error as it is. For an `Ok` [`Error::LockLost`] when the lease was lost before the body had returned, when
    /// somebody else has the key by now, or when it could not be kept: then the key may be free too early. Also when the transaction of
    /// [`Lease::complete`] was rolled back and the key is not held any more, whatever the body says. [`Error::CommitUnknown`] when the
    /// server cannot be reached to say whether that transaction was committed. Any other release that does not reach the server is no
    /// error: the lease was held while the body ran, and ends by itself.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe in that nothing is left: the release is on its way.
    pub async fn finish<T, E: From<Error>>(self, result: Result<T, E>) -> Result<T, E> {
        self.finished(result).await?
    }

    async fn finished<R: Fallible>(mut self, result: R) -> Result<R, Error> {
        let telemetry = self.telemetry.take();
        let ended = self.ended(result).await;
        if let Some(mut telemetry) = telemetry {
            telemetry.record_end(match &ended {
                Ok(result) if result.is_ok() => Ok(Outcome::Done),
                Ok(_) => Ok(Outcome::Failed),
                Err(error) => Err(error),
            });
        }
        ended
    }

    async fn ended<R: Fallible>(mut self, result: R) -> Result<R, Error> {
        let keep = self.keep.filter(|_| result.is_ok());
        let hold = Arc::clone(&self.lease.hold);
        let is_complete = hold.end() != End::Open;
        let was_held = is_complete || !hold.is_over();
        let ended = self.end(keep).await;
        if !result.is_ok() {
            return Ok(result);
        }
        match ended {
            // The transaction of `complete` was rolled back, and the lease was lost then.
            Ok(false) if self.lease.would_be_kept() => Err(self.lost()),
            // Nobody can say whether it was committed.
            Err(error) if self.lease.would_be_kept() => Err(Error::CommitUnknown {
                lock: self.lease.name(),
                source: error.into(),
            }),
            _ if is_complete => Ok(result),
            _ if !was_held => Err(self.lost()),
            Ok(false) => Err(self.lost()),
            Err(error) if keep.is_some() => Err(self.lease.lost_because(Some(error.into()))),
            Ok(true) | Err(_) => Ok(result),
        }
    }

    async fn end(&mut self, keep: Option<Duration>) -> Result<bool, Error> {
        let Some(finish) = self.finish.take() else {
            return Ok(false);
        };
        let (reply, ended) = oneshot::channel();
        if finish.send(Finish { keep, reply }).is_err() {
            return Ok(false);
        }
        ended
            .await
            .unwrap_or_else(|gone| Err(Error::Pool(Box::new(gone))))
    }

    fn lost(&self) -> Error {
        self.lease.lost_because(self.lease.hold.reason())
    }
}

/// What the attribute's expansion calls.
#[doc(hidden)]
pub async fn finish_at<R: Fallible>(held: Held, result: R) -> Result<R, Error> {
    held.finished(result).await
}
