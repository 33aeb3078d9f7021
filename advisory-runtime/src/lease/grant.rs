//! What does this process know of a lease that it was granted?

use super::statement::Value;
use super::{Request, Table};
use crate::renewal::{End, Hold, Stop, watch};
use std::borrow::Cow;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;

/// A number that is larger for each later grant of a key, for ever: storage that has seen a token refuses a smaller one, and so a
/// holder from before.
///
/// All keys of a table share one sequence. What no single server can promise: one that fails over to a standby which had not
/// received the last grants, or is restored from a backup, issues tokens again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(pub(super) i64);

impl FencingToken {
    /// The number, for a `BIGINT` column of your own: `… SET fence = $token WHERE fence <= $token`.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A lease that was granted. Gives access to its token, and to what makes a write conditional on it ([`fence`](Self::fence)).
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
    pub(super) keep: Option<Duration>,
    /// Only the connection that it was granted on sees its row: a test's transaction is open there.
    pub(super) is_test: bool,
    pub(super) hold: Arc<Hold>,
}

impl Lease {
    /// A grant counts from when it was asked for.
    pub(super) fn new(
        table: &Table,
        request: &Request,
        grant_id: i64,
        token: FencingToken,
        sent: Instant,
    ) -> Self {
        Self {
            table: table.clone(),
            lock: request.name(),
            key_hash: request.key_hash(),
            grant_id,
            token,
            waited: Duration::ZERO,
            keep: request.keep,
            is_test: false,
            hold: Arc::new(Hold::new(sent, request.ttl)),
        }
    }

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

    /// Whether this process may rely on it: it was not lost, released or refused, and by a pessimistic local clock, which starts
    /// before the server's does, it has not expired. No SQL; to write under it use [`fence`](Self::fence).
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.hold.is_over()
    }

    /// What is left by that clock, until the next renewal.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.hold.is_over() {
            return Duration::ZERO;
        }
        let expires = self.hold.expires();
        expires.saturating_duration_since(Instant::now())
    }

    /// Resolves when the lease is lost, released, or about to expire: for tasks that the body has spawned, which are not dropped
    /// with it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    pub async fn lost(&self) {
        let ended = poll_fn(|_| match self.hold.end() {
            End::Done => Poll::Ready(()),
            _ => Poll::Pending,
        });
        let _: Result<(), Stop> = watch(&self.hold, None, || (), ended).await;
    }

    pub(super) fn after(mut self, waited: Duration) -> Self {
        self.waited = waited;
        self
    }

    /// Whether its row would still be there if the transaction of [`complete`](Self::complete) was committed: what is kept no longer
    /// can be gone.
    pub(super) fn would_be_kept(&self) -> bool {
        let keep = self.keep.unwrap_or_default();
        matches!(self.hold.end(), End::Inside(since) if since.elapsed() < keep)
    }

    pub(super) fn name(&self) -> Cow<'static, str> {
        self.lock.clone()
    }

    /// What says on the server which grant it is: `$1`, `$2`.
    pub(super) const fn values(&self) -> [Value<'static>; 2] {
        [Value::Hash(self.key_hash), Value::Number(self.grant_id)]
    }
}
