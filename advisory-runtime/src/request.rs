//! A request for locks: which keys, in which mode, and how long to wait.

mod distributed_rows;
mod origin;

#[cfg(doc)]
use crate::error::Error;
use crate::error::lock_name;
use crate::key::{Key, KeyPart, LockKey};
use crate::observe::Telemetry;
use crate::query_comment;
use crate::random::random;
use advisory_pattern::MOST_PERMITS;
use diesel::expression::{AsExpression, TypedExpressionType};
use diesel::pg::Pg;
use diesel::query_builder::QueryFragment;
use diesel::sql_types::SqlType;
use diesel::{Column, QuerySource};
use distributed_rows::distributed_rows;
pub(crate) use origin::{CallSite, Origin};
use std::borrow::Cow;
use std::time::Duration;

/// The poll interval of a request that has to poll, unless it gives one.
pub(crate) const POLL: Duration = Duration::from_millis(250);

/// The scope of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Until the end of its transaction.
    Xact,
    /// Until it is released, or its session ends.
    Session,
}

/// One acquisition of one or more locks, before it is sent.
///
/// Every [`LockKey`] converts into a request for its exclusive lock; the methods change the rest.
///
/// ```
/// use advisory_runtime::{Request, Wait};
/// use std::time::Duration;
///
/// let nightly = Request::new(42).wait(Wait::Never);
/// let report = Request::new((7, 3)).shared().wait(Duration::from_secs(5));
/// let transfer = Request::all([17, 4]);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a request takes no lock by itself: give it to `xact::begin` or `session::acquire`"]
pub struct Request {
    pub(crate) pattern: &'static str,
    /// Sorted, without duplicates.
    pub(crate) keys: Keys,
    pub(crate) mode: Mode,
    pub(crate) wait: Wait,
    pub(crate) poll: Option<Duration>,
    pub(crate) poll_max: Option<Duration>,
    /// The keys of its permits, one of which is taken; empty for a lock without permits.
    pub(crate) permits: Vec<Key>,
    /// An invalid number of permits, with which the call is refused.
    pub(crate) refused_permits: Option<i128>,
    pub(crate) isolation: Isolation,
    pub(crate) refuses_nested: bool,
    pub(crate) max_hold: Option<Duration>,
    /// The rows that choose the node of a cluster; `None` for the node of the connection.
    pub(crate) at: Option<Box<str>>,
    /// The content of the comment in front of its message.
    pub(crate) shown_name: Option<Cow<'static, str>>,
    /// The part of the wait that passed in this process: in its queue, or in earlier tries.
    pub(crate) queued: Duration,
    pub(crate) origin: Origin,
}

impl Request {
    /// Asks for the lock on one key.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn new(key: impl LockKey) -> Self {
        one(key.pattern(), key.key())
    }

    /// Asks for the locks on several keys. They are taken in the order of their numbers, so two
    /// requests for the same keys never deadlock; duplicates count once. A request without keys is
    /// refused ([`Error::NoKeys`]).
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn all<K: LockKey>(keys: impl IntoIterator<Item = K>) -> Self {
        let keys: Vec<_> = keys.into_iter().map(|key| keyed(&key)).collect();
        let lock = keys.last().map_or("", |(_, pattern)| pattern);
        Self::patterned(lock, &keys)
    }

    #[cfg_attr(debug_assertions, track_caller)]
    fn patterned(lock: &'static str, keys: &[(Key, &'static str)]) -> Self {
        let origin = Origin::here().with_patterns(keys.iter().copied());
        let keys: Vec<Key> = keys.iter().map(|(key, _)| *key).collect();
        Self {
            origin,
            ..many(lock, keys)
        }
    }

    #[cfg_attr(debug_assertions, track_caller)]
    fn with(pattern: &'static str, keys: Keys) -> Self {
        Self {
            shown_name: query_comment::name(pattern, &keys),
            pattern,
            keys,
            mode: Mode::Exclusive,
            wait: Wait::Session,
            poll: None,
            poll_max: None,
            permits: Vec::new(),
            refused_permits: None,
            isolation: Isolation::ReadCommitted,
            refuses_nested: false,
            max_hold: None,
            at: None,
            queued: Duration::ZERO,
            origin: Origin::here(),
        }
    }

    /// Takes the locks in shared mode: several sessions can hold a lock in shared mode at once, but
    /// not while another session holds it exclusively.
    ///
    /// The server's queue is first in, first out: a waiting exclusive request holds back the shared
    /// requests after it. A session that holds the shared lock can take the exclusive one while no
    /// other session holds the lock. If two sessions try that at once, they wait for each other,
    /// and the server ends one of them ([`Error::Deadlock`], SQLSTATE 40P01).
    ///
    /// This method has no effect on a request with [`permits`](Self::permits).
    pub fn shared(mut self) -> Self {
        if self.permits.is_empty() {
            self.mode = Mode::Shared;
        }
        self
    }

    /// Lets this many sessions hold the lock at once: an integer from 1 to 1,000. Other numbers are
    /// refused ([`Error::InvalidPermits`]).
    ///
    /// Each permit is a key of its own, and each holder takes one of them exclusively. The first
    /// permit is the key itself, and the others are [computed](crate::guide::keys#permits) from it.
    /// A program with three permits and a program with five together have at most five holders. A
    /// program without permits competes for the first one.
    ///
    /// A session can wait at the server for only one key at a time, so a request with permits polls
    /// while it waits: every 250 ms, unless [`poll`](Self::poll) sets another interval. Each try is
    /// one statement, which starts at a random permit.
    ///
    /// A request with permits must have one key; several are refused ([`Error::TooManyKeys`]). Its
    /// guard gives no [`Holding`](crate::Holding), since several bodies can run at once.
    pub fn permits(mut self, permits: impl TryInto<i128>) -> Self {
        // Only a `u128` may not fit.
        let permits = permits.try_into().unwrap_or(i128::MAX);
        let number = u32::try_from(permits).ok();
        let number = number.filter(|number| (1..=MOST_PERMITS).contains(number));
        self.refused_permits = number.is_none().then_some(permits);
        if let (Some(number @ 2..), Some(key)) = (number, self.keys.first()) {
            self.permits = key.permits(number);
            self.mode = Mode::Exclusive;
            self.poll = self.poll.or(Some(POLL));
        }
        self
    }

    /// Bounds the acquisition of all keys together. If the server does not answer at all, an async
    /// call closes its connection and returns [`Error::TimedOut`] within five seconds after this
    /// time: see [`cancellation`](crate::guide::cancellation#when-the-network-stops).
    pub fn wait(mut self, wait: impl Into<Wait>) -> Self {
        self.wait = wait.into();
        self
    }

    /// Polls for the lock instead of waiting at the server.
    ///
    /// A session that waits at the server has a snapshot, and `CREATE INDEX CONCURRENTLY` waits for
    /// every older snapshot. If the index is built under this lock, the two deadlock.
    ///
    /// Each try is `pg_try_advisory_*`, and takes all keys or none. The pauses grow from `interval`
    /// to eight times that, or to [`poll_max`](Self::poll_max). Each is shortened by up to half at
    /// random, and the last try is at the end of the [`wait`](Self::wait). Without a `wait` the
    /// call polls until the lock is free: the session's `lock_timeout` bounds only waits at the
    /// server. With [`Wait::Never`] it tries once.
    ///
    /// Between two tries the call has no snapshot, no lock and no transaction; a transaction around
    /// the call stays open. A call that polls is not in the server's queue: sessions that wait
    /// there are served first. See [`waiting`](crate::guide::waiting).
    pub fn poll(mut self, interval: Duration) -> Self {
        self.poll = Some(interval);
        self
    }

    /// Sets the longest pause between two tries of [`poll`](Self::poll), before it is shortened at
    /// random. If it is not longer than the interval, the pauses do not grow.
    ///
    /// This method has no effect on a request that does not poll.
    pub fn poll_max(mut self, longest: Duration) -> Self {
        self.poll_max = Some(longest);
        self
    }

    /// Runs the transaction at this level, and takes its snapshot after the lock. Only for
    /// transaction-level locks outside a transaction.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Refuses the call inside an open transaction ([`Error::InTransaction`]), where the lock would
    /// outlive it.
    pub fn refuse_nested(mut self) -> Self {
        self.refuses_nested = true;
        self
    }

    /// Bounds how long the lock may be held. The wait for it does not count.
    ///
    /// At the limit, the attribute drops an async body and rolls back. If a statement still runs
    /// 100 ms later, it is cancelled, and the connection is closed. A blocking body, and the code
    /// between `begin` and `finish`, runs to its end, and a late commit is refused. In each case
    /// the error is [`Error::HoldExceeded`]. Commits in the body of a session-level lock stay.
    ///
    /// If the process has stopped, or the network drops its packets, the server ends the session,
    /// which frees the lock. It does so one second after the limit, counted from:
    ///
    /// | the session is | before PostgreSQL 17 | since 17 |
    /// | --- | --- | --- |
    /// | in the call's transaction, idle | the end of its last statement | the grant of the lock |
    /// | in the call's transaction, in a statement | the end of that statement | the grant of the lock |
    /// | in a transaction that was open before the call | the end of its last statement | the end of its last statement |
    /// | under a session-level lock, idle | the end of its last statement | the end of its last statement |
    /// | under a session-level lock, in a statement | the end of that statement | the start of its transaction |
    ///
    /// The call sets `idle_in_transaction_session_timeout`, `transaction_timeout` (17) and, for
    /// session-level locks, `idle_session_timeout`. If the server supports it, the call also sets
    /// `client_connection_check_interval`: the server then notices within a second that a client
    /// was killed during a statement. All of them are restored when the lock is released.
    ///
    /// In a transaction of its own, the call replaces the session's values, even shorter ones,
    /// until the end of that transaction. Only the session's own `transaction_timeout` stays, and
    /// counts instead of the limit in the table. In a transaction that was open before the call,
    /// and under a session-level lock, the session's value stays if it is shorter, and so does any
    /// `client_connection_check_interval`.
    ///
    /// A statement that never ends is not bounded before 17, nor in a transaction that was open
    /// before the call: set `statement_timeout`.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// Takes the locks at the node that has the rows with this value in the distribution column of
    /// their table. Only for the attribute, which refuses it with a session-level lock, permits, or
    /// a stricter isolation level.
    #[doc(hidden)]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the attribute passes the value as it is written"
    )]
    pub fn at<C, V>(mut self, column: C, value: V) -> Self
    where
        C: Column<Table: Default, SqlType: SqlType + TypedExpressionType>,
        <C::Table as QuerySource>::FromClause: QueryFragment<Pg>,
        V: KeyPart + AsExpression<C::SqlType>,
    {
        self.at = Some(distributed_rows(column, &value));
        self
    }

    /// Names the function under the attribute; does nothing in a release build.
    #[doc(hidden)]
    pub fn in_function(mut self, function: &'static str) -> Self {
        self.origin = self.origin.in_function(function);
        self
    }

    /// Sets the caller as its origin, unless it has one.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn with_origin(mut self) -> Self {
        self.origin = self.origin.or(&Origin::here());
        self
    }

    /// The name of the lock in messages.
    pub(crate) fn lock_name(&self) -> Cow<'static, str> {
        lock_name(self.pattern, &self.keys)
    }

    pub(crate) fn telemetry(&self, scope: &'static str) -> Telemetry {
        let mode = match self.mode {
            Mode::Exclusive => "exclusive",
            Mode::Shared => "shared",
        };
        let is_try = self.poll.is_some() || self.budget() == Wait::Never;
        Telemetry::new(self.pattern, scope, mode, is_try)
    }
}

impl<K: LockKey> From<K> for Request {
    fn from(key: K) -> Self {
        let mut request = Self::new(key);
        request.origin = request.origin.without_place();
        request
    }
}

#[doc(hidden)]
#[cfg_attr(debug_assertions, track_caller)]
pub fn one(lock: &'static str, key: Key) -> Request {
    Request::with(lock, Keys::One([key]))
}

/// For several patterns, joined by `, `, with their keys in the same order.
#[doc(hidden)]
#[cfg_attr(debug_assertions, track_caller)]
pub fn many(lock: &'static str, keys: impl Into<Vec<Key>>) -> Request {
    let mut keys = keys.into();
    let mut origin = Origin::here();
    if cfg!(debug_assertions) && lock.split(", ").count() == keys.len() {
        origin = origin.with_patterns(keys.iter().copied().zip(lock.split(", ")));
    }
    keys.sort_unstable();
    keys.dedup();
    Request {
        origin,
        ..Request::with(lock, Keys::Many(keys))
    }
}

/// For keys with their patterns.
#[doc(hidden)]
#[cfg_attr(debug_assertions, track_caller)]
pub fn each<const N: usize>(keys: [(Key, &'static str); N]) -> Request {
    let lock = keys.first().map_or("", |(_, pattern)| pattern);
    let is_one = keys.iter().all(|(_, pattern)| *pattern == lock);
    Request::patterned(if is_one { lock } else { "" }, &keys)
}

/// One try: the remaining wait, and the permits in their order.
impl Request {
    /// The remaining wait for the server.
    pub(crate) fn budget(&self) -> Wait {
        match self.wait {
            Wait::For(wait) if wait.is_zero() => Wait::Never,
            Wait::For(wait) => Wait::For(wait.saturating_sub(self.queued)),
            // `lock_timeout` bounds waits at the server.
            Wait::Session if self.poll.is_some() => Wait::Forever,
            wait => wait,
        }
    }

    /// The time limit of the remaining wait, if it has one.
    pub(crate) fn limit(&self) -> Option<Duration> {
        match self.budget() {
            Wait::Never => Some(Duration::ZERO),
            Wait::For(wait) => Some(wait),
            Wait::Session | Wait::Forever => None,
        }
    }

    pub(crate) fn of_permit(&self, permit: Key) -> Self {
        Self {
            keys: Keys::One([permit]),
            ..self.clone()
        }
    }

    /// One try of a request that polls. It starts at a random permit, so that calls do not all
    /// compete for the first.
    pub(crate) fn attempt(&self) -> Self {
        let mut permits = self.permits.clone();
        if !permits.is_empty() {
            let from = usize::try_from(random() >> 33).unwrap_or(0) % permits.len();
            permits.rotate_left(from);
        }
        Self {
            wait: Wait::Never,
            poll: None,
            permits,
            ..self.clone()
        }
    }
}

/// The keys of one request. One key, the common case, needs no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    One([Key; 1]),
    Many(Vec<Key>),
}

impl std::ops::Deref for Keys {
    type Target = [Key];

    fn deref(&self) -> &[Key] {
        match self {
            Self::One(key) => key,
            Self::Many(keys) => keys,
        }
    }
}

/// One of several keys, with its pattern.
#[doc(hidden)]
pub fn keyed<K: LockKey + ?Sized>(key: &K) -> (Key, &'static str) {
    (key.key(), key.pattern())
}

/// The mode of a lock: `ExclusiveLock` or `ShareLock` in `pg_locks`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// No other session can hold the lock.
    #[default]
    Exclusive,
    /// Other sessions can hold the lock, in shared mode.
    Shared,
}

impl Mode {
    pub(crate) fn excludes(self, other: Self) -> bool {
        self == Self::Exclusive || other == Self::Exclusive
    }
}

/// The time to wait for a lock that another session holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// As long as the session's own `lock_timeout` allows for each key. With
    /// [`Request::poll`](crate::Request::poll), forever.
    #[default]
    Session,
    /// Not at all (`pg_try_advisory_*`). If the lock is held, the call returns
    /// [`Error::NotAvailable`].
    Never,
    /// At most this long for all keys together, by the server's clock, rounded up to whole
    /// milliseconds. Zero is [`Wait::Never`]; more than 24 days count as 24 days.
    For(Duration),
    /// Without a limit, even if the session has a `lock_timeout`. Its `statement_timeout` still
    /// ends the wait.
    Forever,
}

impl From<Duration> for Wait {
    fn from(wait: Duration) -> Self {
        Self::For(wait)
    }
}

/// The isolation level of the transaction that a call opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Every statement of the body sees what earlier holders have committed.
    #[default]
    ReadCommitted,
    /// One snapshot for the whole body, taken after the lock.
    RepeatableRead,
    /// Like [`Isolation::RepeatableRead`], and the server aborts transactions that could not have
    /// run one after another.
    Serializable,
}
