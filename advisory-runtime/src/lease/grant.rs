//! A granted lease, as far as this process knows.

use super::request::{milliseconds, name_of};
use super::statement::Value;
use super::{Error, Request, Table};
use crate::rows::{Hold, Moment, Observer, Phase, Stop, watch};
use diesel::expression::AsExpression;
use diesel::pg::Pg;
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::BigInt;
use std::borrow::Cow;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;

/// A granted lease, and what its renewal needs.
pub struct Granted {
    pub(super) lease: Lease,
    pub(super) every: Duration,
    pub(super) observer: Option<Observer<Lease, Error>>,
}

/// A number that grows with each grant of a key. Storage that has seen a token refuses a smaller
/// one, and so an earlier holder.
///
/// All keys of a table share one sequence. Its numbers have the server's timeline in their upper
/// bits, so tokens also grow across a failover to a standby that lacks the last grants:
/// `1_099_511_627_777` is the first token of a server that was never promoted. Store them as
/// `BIGINT`. A server that is restored from a dump issues tokens again.
///
/// ```
/// use advisory_runtime::lease::FencingToken;
///
/// /// What a store outside the database does with a write.
/// fn accepts(last: i64, token: FencingToken) -> bool {
///     token.get() >= last
/// }
/// ```
#[derive(AsExpression, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[diesel(sql_type = BigInt)]
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

// As a value of a `BIGINT` column.
impl ToSql<BigInt, Pg> for FencingToken {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        ToSql::<BigInt, Pg>::to_sql(&self.0, out)
    }
}

/// A granted lease: its fencing token, and the [`fence`](Self::fence) that makes writes conditional
/// on it.
///
/// A clone is the same lease: when one is renewed, released or lost, all are.
///
/// ```
/// use advisory_runtime::lease::Lease;
///
/// fn upload(lease: &Lease, pages: &[&str]) {
///     for page in pages.iter().take_while(|_| lease.is_held()) {
///         println!("PUT {page} x-fencing-token: {}", lease.token());
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Lease {
    pub(super) table: Table,
    /// The pattern.
    pub(super) lock: &'static str,
    pub(super) key_hash: [u8; 32],
    pub(super) grant_id: i64,
    pub(super) token: FencingToken,
    pub(super) waited: Duration,
    pub(super) keep: Option<Duration>,
    /// `true` if it was granted in a test's transaction, so that no other connection sees its row.
    pub(super) is_test: bool,
    pub(super) hold: Arc<Hold>,
}

/// Without the hash: it can be that of personal data.
impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lease = f.debug_struct("Lease");
        lease.field("lock", &self.lock).field("token", &self.token);
        lease.field("hold", &self.hold).finish_non_exhaustive()
    }
}

impl Lease {
    pub(super) fn new(
        table: &Table,
        request: &Request,
        grant_id: i64,
        token: FencingToken,
        until: Moment,
    ) -> Self {
        Self {
            table: table.clone(),
            lock: request.lock,
            key_hash: request.key_hash,
            grant_id,
            token,
            waited: Duration::ZERO,
            keep: request.keep,
            is_test: false,
            hold: Arc::new(Hold::new(until, request.ttl)),
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

    /// Returns `true` if the lease is held as far as this process knows: it was not lost or
    /// released, and has not expired by a local clock that started before the server's. Sends no
    /// SQL; to write under the lease use [`fence`](Self::fence).
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.hold.is_over()
    }

    /// The time until it expires by that clock, unless it is renewed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.hold.is_over() {
            return Duration::ZERO;
        }
        let expires = self.hold.expires();
        expires.saturating_duration_since(Instant::now())
    }

    /// Resolves when the lease is lost, released or about to expire: for tasks that the body has
    /// spawned, which are not dropped with it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    pub async fn lost(&self) {
        let ended = poll_fn(|_| match self.hold.phase() {
            Phase::Ended => Poll::Ready(()),
            _ => Poll::Pending,
        });
        let _: Result<(), Stop> = watch(&self.hold, None, || (), ended).await;
    }

    pub(super) fn name(&self) -> Cow<'static, str> {
        name_of(self.lock, &self.key_hash)
    }

    /// The values that identify the grant, and how long it or its key lasts.
    pub(super) fn values_for(&self, time: Duration) -> [Value<'static>; 4] {
        let [hash, grant, token] = self.values();
        [hash, grant, token, Value::Number(milliseconds(time))]
    }

    /// The values that identify the grant.
    pub(super) fn values(&self) -> [Value<'static>; 3] {
        let [hash, grant] = self.acquisition();
        [hash, grant, Value::Number(self.token.0)]
    }

    /// The values that identify the acquisition, whichever of its tries was granted the key.
    pub(super) const fn acquisition(&self) -> [Value<'static>; 2] {
        [Value::Hash(self.key_hash), Value::Number(self.grant_id)]
    }
}
