//! The error of a locked call, and the parts that the errors of leases and claims share.

mod classify;
mod diesel_error;
mod fallible;
mod lock_name;
mod message;
mod pool_error;
mod product;

pub(crate) use classify::{
    Marker, has_only_message, is_conflict, is_connection_lost, is_deadlock, is_interrupted,
    is_lock_table_full, is_lock_timeout, is_of_savepoint, is_outside_transaction,
    is_refused_by_citus, is_rollback, is_same_answer, may_be_outside_transaction,
    may_follow_commit, may_pass, no_answer,
};
pub use diesel_error::ErrorRef;
pub(crate) use diesel_error::{from_diesel, into_diesel};
pub use fallible::{Fallible, never};
pub use lock_name::BusyLock;
pub(crate) use lock_name::lock_name;
pub(crate) use message::CommonMessage;
pub use pool_error::PoolError;
pub use product::ProductError;
pub(crate) use product::product_error;

use diesel::result::Error as DieselError;
use std::borrow::Cow;
use std::time::Duration;

/// The error of a locked call, apart from the errors of its body.
///
/// A locked function returns it through `From<advisory_runtime::Error>` if its error type has that.
/// If the type only has `From<diesel::result::Error>`, as in a `QueryResult`, the function returns
/// one of Diesel's errors: an answer of the database becomes a
/// [`DatabaseError`](diesel::result::Error::DatabaseError) of its kind, and any other error a
/// [`QueryBuilderError`](diesel::result::Error::QueryBuilderError). [`Error::find`] finds this
/// error in both; see [`guide::diesel_errors`](crate::guide::diesel_errors).
///
/// ```
/// use advisory_runtime::Error;
///
/// fn status(error: &Error) -> u16 {
///     match error {
///         Error::NotAvailable { .. } => 409,
///         Error::TimedOut { .. } => 504,
///         Error::QueueFull { .. } => 503,
///         _ => 500,
///     }
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Another session holds the lock, and the call does not wait
    /// ([`Wait::Never`](crate::Wait::Never)). It has no SQLSTATE, because `pg_try_advisory_*`
    /// returns `false`. The body did not run.
    #[non_exhaustive]
    NotAvailable {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
        /// For [`monitor::holders`](crate::monitor::holders).
        busy: BusyLock,
    },
    /// The lock was not granted within the call's `wait` or, without one, within the session's
    /// `lock_timeout` for each key (SQLSTATE 55P03). The body did not run. If the server does not
    /// answer at all, as in a network that drops packets, the call closes its connection and
    /// returns within five seconds after its `wait`.
    #[non_exhaustive]
    TimedOut {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
        /// For [`monitor::holders`](crate::monitor::holders).
        busy: BusyLock,
        /// The time that the call waited, by this process's clock.
        waited: Duration,
        /// The server's answer; `None` if the wait ended in this process: in its queue, between two
        /// tries of a call that polls, or because the server did not answer.
        source: Option<DieselError>,
    },
    /// More calls of this process wait for the key than `queue` allows. The body did not run.
    #[non_exhaustive]
    QueueFull {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
        /// The number of calls that may wait.
        limit: usize,
    },
    /// The call would wait forever for a lock that its own task holds on another connection. Found
    /// only in debug builds, and only inside the body that holds the lock. The body of this call
    /// did not run.
    #[non_exhaustive]
    SelfDeadlock {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
    },
    /// The call would wait forever: tasks of this process wait for each other's locks, each on a
    /// connection of its own, so the server sees no deadlock. Found only in debug builds, among
    /// bodies under the attribute, and only if no wait has a limit. The body did not run.
    #[non_exhaustive]
    TaskDeadlock {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
        /// The functions, places and locks of the cycle, for a log. The text can change.
        cycle: String,
    },
    /// A cancel request (`pg_cancel_backend`) or the session's `statement_timeout` ended the wait
    /// (SQLSTATE 57014). The source says which, in the server's language. The body did not run. A
    /// session-level call, and one with [`isolation`](crate::Request::isolation), closes its
    /// connection, since the lock may have been granted.
    #[non_exhaustive]
    Cancelled {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
        /// The server's answer.
        source: DieselError,
    },
    /// The body held the lock for longer than `max_hold`. It was dropped, or its result refused,
    /// and its transaction was rolled back. Commits in the body of a session-level lock stay.
    #[non_exhaustive]
    HoldExceeded {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
        /// The limit.
        max_hold: Duration,
    },
    /// A session-level lock was no longer held when the body returned `Ok`: the connection was
    /// lost, or the lock was released. What the body committed stays committed.
    #[non_exhaustive]
    LockLost {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
        /// The error from which the loss was noticed.
        source: Option<DieselError>,
    },
    /// The call must be outside of a transaction, and one is open: a session-level lock would be
    /// released before the commit, `isolation` cannot change an open transaction, or the call has
    /// `nested = "refuse"`. No SQL was sent.
    #[non_exhaustive]
    InTransaction {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
    },
    /// The server is a standby; sessions on the primary do not see its locks. Found by
    /// [`session::verify`](crate::session::verify), and in debug builds by every call outside of a
    /// transaction.
    #[non_exhaustive]
    Standby {
        /// The key pattern, or the key; empty from [`session::verify`](crate::session::verify).
        lock: Cow<'static, str>,
    },
    /// The connection has no session of its own, or is not known to have one.
    ///
    /// Either [`session::verify`](crate::session::verify) or the setting `advisory.pooler` has
    /// shown a pooler in transaction mode; or neither has shown that the pooler is in session mode,
    /// and the process id that the connection received at its start is missing, or is not the
    /// server's. There, transaction-level locks work under READ COMMITTED only, and session-level
    /// locks do not work.
    #[non_exhaustive]
    PooledSession {
        /// The key pattern, or the key; empty from [`session::verify`](crate::session::verify).
        lock: Cow<'static, str>,
    },
    /// The server granted one lock to two sessions at once. Found by
    /// [`session::verify`](crate::session::verify).
    UnsupportedServer,
    /// The server is a worker node of Citus; sessions at other nodes do not see its locks.
    /// Found by [`session::verify`](crate::session::verify).
    NotCoordinator,
    /// The pool could not provide a connection.
    Pool(PoolError),
    /// The server ended this call to resolve a deadlock (SQLSTATE 40P01). The body did not run.
    #[non_exhaustive]
    Deadlock {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
        /// The server's answer.
        source: DieselError,
    },
    /// The server's lock table, which all sessions share, is full (SQLSTATE 53200): it has
    /// `max_locks_per_transaction` entries for each possible connection. The body did not run. A
    /// session-level call, and one with [`isolation`](crate::Request::isolation), closes its
    /// connection.
    #[non_exhaustive]
    LockTableFull {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
        /// The server's answer.
        source: DieselError,
    },
    /// The body returned `Ok` although a statement of its transaction had failed, or a locked call
    /// inside it was dropped. Nothing was committed (SQLSTATE 25P02 at the commit).
    #[non_exhaustive]
    RolledBack {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
        /// The server's answer to the commit.
        source: DieselError,
    },
    /// The body ended the transaction itself, by `COMMIT` or `ROLLBACK`, so the lock was not held
    /// to the end of the body. What the body committed stays committed. If the body also began
    /// another transaction, only debug builds notice, and roll that transaction back.
    #[non_exhaustive]
    TransactionEnded {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
    },
    /// The commit may or may not have happened: the connection was lost before the answer, or the
    /// server sent no answer within `max_hold` and a few seconds, or it sent an error that does not
    /// prove a rollback.
    ///
    /// A violated constraint (class 23), a conflict or a deadlock (40001, 40P01) and the error of a
    /// deferred trigger prove a rollback. Foreign servers and Citus commit parts of a transaction
    /// elsewhere: with them, a trigger's error can look like theirs, and a conflict (40001) can be
    /// found after they have committed, so both are `CommitUnknown`. So is an error that looks like
    /// a cancel request (57014) if the server logs durations.
    ///
    /// The call is not retried: look for the effect of the body before you run it again. A
    /// connection that was lost in the body, such as by `idle_in_transaction_session_timeout`, also
    /// gives this error.
    #[non_exhaustive]
    CommitUnknown {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
        /// The server's answer, or how the connection ended.
        source: DieselError,
    },
    /// The call is inside a REPEATABLE READ or SERIALIZABLE transaction with a snapshot older than
    /// the lock: the body would not see what earlier holders wrote. The body did not run.
    #[non_exhaustive]
    StaleSnapshot {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
    },
    /// A transaction that Diesel does not know of is open on the connection, such as after a
    /// `BEGIN` sent as plain SQL (SQLSTATE 25001 if it has run a query). The body did not run, and
    /// that transaction can only be rolled back. If it has not run a query, or is around a
    /// session-level lock, only debug builds notice.
    #[non_exhaustive]
    ForeignTransaction {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
    },
    /// An earlier statement of the open transaction failed, so the server refuses all others until
    /// the rollback (SQLSTATE 25P02). The body did not run.
    #[non_exhaustive]
    InFailedTransaction {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
        /// The server's answer.
        source: DieselError,
    },
    /// A `<ids*>` or an expression for `keys` is empty. The body, which would have no lock, did not
    /// run.
    #[non_exhaustive]
    NoKeys {
        /// The key pattern.
        lock: Cow<'static, str>,
        /// The name of the slice in the pattern.
        slice: &'static str,
    },
    /// A `<ids*>` or an expression for `keys` asks for more locks than `max_keys` allows. No SQL
    /// was sent. All sessions share the server's lock table: once it is full, no session gets a
    /// lock (SQLSTATE 53200).
    #[non_exhaustive]
    TooManyKeys {
        /// The key pattern.
        lock: Cow<'static, str>,
        /// The number of different keys.
        keys: usize,
        /// The limit.
        max: usize,
    },
    /// `permits` is not a number from 1 to 1,000. No SQL was sent.
    #[non_exhaustive]
    InvalidPermits {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
        /// The requested number.
        permits: i128,
    },
    /// The connection is closed, because an earlier locked call on it was dropped or panicked
    /// before its end, or because the connection was lost. The body did not run. A pool replaces
    /// such a connection; open one of your own again.
    #[non_exhaustive]
    BrokenConnection {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
    },
    /// [`xact::lock`](crate::xact::lock) was called outside of a transaction, where the lock would
    /// be released at once. No SQL was sent.
    #[non_exhaustive]
    NotInTransaction {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
    },
    /// [`LockGuard::holding`](crate::LockGuard::holding) was called with a lock that the guard does
    /// not hold, holds only in shared mode, or holds a permit of. No SQL was sent.
    #[non_exhaustive]
    NotHeld {
        /// The requested key pattern.
        lock: Cow<'static, str>,
    },
    /// Any other error of the database: of the begin, of the commit, such as a deferred constraint,
    /// or of a statement in a body that returns this error. Nothing was committed, except by the
    /// body of a session-level lock.
    Database(DieselError),
}

impl Error {
    /// Returns `true` if others hold the lock or wait for it, so that a later try can succeed:
    /// [`Error::NotAvailable`], [`Error::TimedOut`], [`Error::QueueFull`].
    ///
    /// Neither a deadlock nor an exhausted pool counts.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        matches!(
            self,
            Self::NotAvailable { .. } | Self::TimedOut { .. } | Self::QueueFull { .. }
        )
    }

    /// Returns the database's error in this one, with its kind, message and constraint.
    #[must_use]
    pub const fn database(&self) -> Option<&DieselError> {
        match self {
            Self::Database(source)
            | Self::Deadlock { source, .. }
            | Self::LockTableFull { source, .. }
            | Self::Cancelled { source, .. }
            | Self::RolledBack { source, .. }
            | Self::InFailedTransaction { source, .. }
            | Self::CommitUnknown { source, .. } => Some(source),
            Self::TimedOut { source, .. } | Self::LockLost { source, .. } => source.as_ref(),
            _ => None,
        }
    }
}

product_error!(Error);
