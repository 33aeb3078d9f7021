//! A lease that was granted, and how long this process may believe in it.

use super::statement::Value;
use super::{FencingToken, Table};
use crate::Error;
use crate::expiry::Expiry;
use diesel::result::Error as DieselError;
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

const LONGEST_MARGIN: Duration = Duration::from_secs(1);

/// A lease that was granted. Who has it knows its token, and can write under it ([`fence`](Self::fence)).
///
/// A copy is the same lease: when it is renewed, released or lost, each of them is.
#[derive(Clone, Debug)]
pub struct Lease {
    pub(super) table: Table,
    pub(super) lock: Cow<'static, str>,
    pub(super) key_hash: [u8; 32],
    pub(super) grant_id: i64,
    pub(super) token: FencingToken,
    pub(super) waited: Duration,
    /// No connection but the one that it was granted on sees its row: a test's transaction is open there.
    pub(super) is_test: bool,
    pub(super) standing: Arc<Standing>,
}

impl Lease {
    /// The fencing token of this grant.
    #[must_use]
    pub const fn token(&self) -> FencingToken {
        self.token
    }

    /// How long the acquisition took, by this process's clock.
    #[must_use]
    pub const fn waited(&self) -> Duration {
        self.waited
    }

    /// Whether this process may believe that it is held: it was not lost, released or refused, and by a pessimistic local clock,
    /// which starts before the server's does, it has not expired. No SQL; to write under it use [`fence`](Self::fence).
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.standing.is_over()
    }

    /// What is left by that clock, until the next renewal.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.standing.is_over() {
            Duration::ZERO
        } else {
            let deadline = self.standing.deadline();
            deadline.saturating_duration_since(Instant::now())
        }
    }

    pub(super) fn name(&self) -> Cow<'static, str> {
        self.lock.clone()
    }

    /// What says on the server which grant it is: `$1`, `$2`, `$3`.
    pub(super) const fn values(&self) -> [Value<'static>; 3] {
        [
            Value::Hash(self.key_hash),
            Value::Number(self.grant_id),
            Value::Number(self.token.0),
        ]
    }
}

/// Until when a lease is held, as far as this process can know.
#[derive(Debug)]
pub(super) struct Standing {
    until: Mutex<Expiry>,
    is_lost: AtomicBool,
    /// Why the server was not reached.
    reason: Mutex<Option<DieselError>>,
    margin: Duration,
    pub(super) changed: Notify,
}

impl Standing {
    pub(super) fn new(sent: Instant, ttl: Duration) -> Self {
        Self {
            until: Mutex::new(Expiry::after(sent, ttl)),
            is_lost: AtomicBool::new(false),
            reason: Mutex::new(None),
            margin: (ttl / 10).min(LONGEST_MARGIN),
            changed: Notify::new(),
        }
    }

    /// A grant counts from before it was asked for.
    pub(super) fn extend(&self, sent: Instant, ttl: Duration) {
        let mut held = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        *held = held.extended(Expiry::after(sent, ttl));
    }

    pub(super) fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    pub(super) fn blame(&self, error: Error) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.into());
    }

    /// Why it was lost, where the server could not say so.
    pub(super) fn reason(&self) -> Option<DieselError> {
        let mut reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        reason.take()
    }

    /// How long before the expiry a body is dropped: it needs time to end what it has begun.
    pub(super) const fn margin(&self) -> Duration {
        self.margin
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    pub(super) fn deadline(&self) -> Instant {
        self.expiry().steady()
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over_within(Duration::ZERO)
    }

    pub(super) fn is_over_within(&self, margin: Duration) -> bool {
        self.is_lost() || self.expiry().is_over_within(margin)
    }

    fn expiry(&self) -> Expiry {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
