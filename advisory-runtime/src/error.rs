//! What can go wrong with a lock, told apart so that a program can act on it.

mod answer;
mod busy;
mod diesel_error;
mod fallible;
mod lock_name;
mod message;

pub(crate) use answer::{Marker, is_connection_lost, is_deadlock, is_interrupted};
pub(crate) use busy::Busy;
pub use busy::BusyLock;
pub use diesel_error::ErrorRef;
pub use fallible::{Fallible, never};
pub(crate) use lock_name::LockName;
#[cfg(feature = "diesel-async")]
pub(crate) use message::LEASE;
pub(crate) use message::Subject;

use diesel::result::Error as DieselError;
use std::borrow::Cow;
use std::time::Duration;

/// Why a locked call failed, apart from the error of its own body.
///
/// A function that returns its own error type receives this through `From<advisory_runtime::Error>`; one that only has
/// `From<diesel::result::Error>`, such as `QueryResult` functions, receives it as one of Diesel's: what the database has answered as
/// [`DatabaseError`](diesel::result::Error::DatabaseError) of the same kind, and what it has not as
/// [`QueryBuilderError`](diesel::result::Error::QueryBuilderError). [`Error::find`] finds it in either; see
/// [`guide::diesel_errors`](crate::guide::diesel_errors).
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else holds the lock, and the call does not wait ([`Wait::Never`](crate::Wait::Never)). No SQLSTATE:
    /// `pg_try_advisory_*` answers `false`. The body did not run.
    NotAvailable {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
        /// For [`holders`](Self::holders).
        busy: BusyLock,
    },
    /// The lock did not come within the call's `wait`, or without one within the session's `lock_timeout` (SQLSTATE 55P03),
    /// which counts for each key of the call. The body did not run.
    TimedOut {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
        /// For [`holders`](Self::holders).
        busy: BusyLock,
        /// How long this process waited, by its own clock.
        waited: Duration,
        /// The server's answer; none where the wait ended in this process: in its queue, or between two tries of a call that polls.
        source: Option<DieselError>,
    },
    /// More calls of this process wait for the key than `queue` allows. The body did not run.
    QueueFull {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
        /// How many may wait.
        limit: usize,
    },
    /// The call waits for a lock that its own task holds on another connection, or for a lease that it holds, and would wait for
    /// ever. Found in debug builds only, and only where the call stands inside the body that holds it. The body did not run.
    SelfDeadlock {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
    },
    /// The server ended the wait before its time: by a cancel request (`pg_cancel_backend`) or the session's
    /// `statement_timeout` (SQLSTATE 57014). The source says which, in the server's language. The body did not run. A session-level
    /// call has closed its connection, since the lock may have been granted.
    Cancelled {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
        /// The server's answer.
        source: DieselError,
    },
    /// The body held the lock for longer than `max_hold`. It was dropped, or its result was refused; its transaction was
    /// rolled back. What the body of a session-level lock has committed stays.
    HoldExceeded {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
        /// How long it may be held.
        max_hold: Duration,
    },
    /// A session-level lock was not held any more when the body had returned `Ok`: the connection was lost, or somebody
    /// released it. Of a lease: a renewal was refused, or the server was not reached until it expired; then the body was dropped.
    /// Of a [`claim`](crate::claim): it has expired, was taken over, or was finished before, and nothing was changed. What the
    /// body committed stays committed.
    LockLost {
        /// The key pattern, or the key; of a claim the table, and what stood in `locked_by`.
        lock: Cow<'static, str>,
        /// How it was found out.
        source: Option<DieselError>,
    },
    /// A transaction is open, and the call needs to be outside of one: a session-level lock would be released before its
    /// commit, `isolation` comes too late, or `nested = "refuse"` says so. No SQL was sent.
    InTransaction {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
    },
    /// The server is a standby: its locks are its own, and nobody on the primary sees them. Found by
    /// [`session::verify`](crate::session::verify), and in debug builds by every call outside of a transaction.
    Standby {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
    },
    /// The connection has no session of its own, or none that is known to be: [`session::verify`](crate::session::verify) or the setting
    /// `advisory.pooler` has found a pooler in transaction mode; or the process id that the session was told is made up or missing, as
    /// behind a pooler, and neither has said that it is in session mode. Transaction-level locks under READ COMMITTED work there; session-level ones, and the stricter levels, do not.
    PooledSession {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
    },
    /// The server grants the lock to two sessions at once.
    UnsupportedServer {
        /// The key.
        lock: Cow<'static, str>,
    },
    /// The pool did not lend a connection.
    Pool(Box<dyn std::error::Error + Send + Sync>),
    /// The server chose this call to end a deadlock (SQLSTATE 40P01). The body did not run.
    Deadlock {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
        /// The server's answer.
        source: DieselError,
    },
    /// The body returned `Ok` after a statement of its transaction had failed, or after a locked call inside it was
    /// dropped: nothing was committed (SQLSTATE 25P02 at the commit).
    RolledBack {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
        /// The server's answer to the commit.
        source: DieselError,
    },
    /// The body ended the transaction itself, by `COMMIT` or `ROLLBACK`: the lock was not held to the end of the body.
    /// What the body committed stays committed. A body that also began another transaction is found in debug builds only, where
    /// that transaction is rolled back.
    TransactionEnded {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
    },
    /// The connection was lost before the commit was answered: it may have happened or not. Never retried here; look for
    /// the effect of the body before you run it again. A connection that was lost in the body already, such as by
    /// `idle_in_transaction_session_timeout`, looks the same from here. Of a lease: at the end of the call the server could not be
    /// reached to say whether the transaction of [`Lease::complete`](crate::lease::Lease::complete) was committed.
    CommitUnknown {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
        /// How the connection ended.
        source: DieselError,
    },
    /// The call stands inside a REPEATABLE READ or SERIALIZABLE transaction, whose snapshot is older than the lock: it
    /// would not see what the holder before it wrote. The body did not run.
    StaleSnapshot {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
    },
    /// A transaction is open on the connection that Diesel does not know of, such as a `BEGIN` sent as plain SQL (SQLSTATE 25001
    /// where it has run a query). The body did not run, and that transaction can only be rolled back. One that has run no query yet,
    /// and one around a session-level lock, are found in debug builds only.
    ForeignTransaction {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
    },
    /// A statement of the open transaction had failed before, so that the server refuses every other until it is rolled back (SQLSTATE
    /// 25P02). The body did not run.
    InFailedTransaction {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
        /// The server's answer.
        source: DieselError,
    },
    /// The slice of a `<ids*>` has no element: without a lock the body would run unprotected, so it did not run.
    NoKeys {
        /// The key pattern.
        lock: Cow<'static, str>,
        /// The slice, as the pattern calls it.
        slice: &'static str,
    },
    /// The slice of a `<ids*>` asks for more locks than `max_keys` allows. No SQL was sent. The server's lock table is
    /// shared by everybody: once it is full, nobody gets a lock (SQLSTATE 53200).
    TooManyKeys {
        /// The key pattern.
        lock: Cow<'static, str>,
        /// How many different keys there were.
        keys: usize,
        /// How many are allowed.
        max: usize,
    },
    /// The connection is closed: an earlier locked call on it was dropped or panicked before its end, or the connection was lost.
    /// The body did not run. Pools replace such a connection; one of your own has to be opened again.
    BrokenConnection {
        /// The key pattern, or the key.
        lock: Cow<'static, str>,
    },
    /// A lease's key has more bytes than the lease table takes. No SQL was sent.
    KeyTooLong {
        /// The key pattern, or the key's hash.
        lock: Cow<'static, str>,
        /// How long the rendered key is.
        bytes: usize,
        /// How long it may be.
        max: usize,
    },
    /// A lease was asked for with times, or with a key, that make no sense. No SQL was sent.
    InvalidLease {
        /// The key pattern, or the key's hash.
        lock: Cow<'static, str>,
        /// What is wrong, and what to write.
        reason: &'static str,
    },
    /// The name of a holder of leases cannot be what was given. No SQL was sent.
    InvalidHolder {
        /// As it was given.
        holder: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A lease is renewed on a tokio runtime with a timer, and there is none. No SQL was sent.
    NoRuntime {
        /// The key pattern, or the key's hash.
        lock: Cow<'static, str>,
        /// What is missing.
        reason: &'static str,
    },
    /// The lease table cannot have the name that was given. No SQL was sent.
    InvalidTable {
        /// As it was given.
        table: String,
        /// What is wrong, and what to write.
        reason: &'static str,
    },
    /// The database has no lease table (SQLSTATE 42P01).
    MissingTable {
        /// The table, with its schema.
        table: String,
        /// The server's answer.
        source: DieselError,
    },
    /// The call needs an open transaction, and none is open: a write under a fencing token, which stays current to the transaction's
    /// end, or [`xact::lock`](crate::xact::lock), whose lock would be released at once. No SQL was sent.
    NotInTransaction {
        /// The key pattern, the key, or the key's hash.
        lock: Cow<'static, str>,
    },
    /// [`Held::holding`](crate::Held::holding) was asked for a lock that the guard does not hold, or holds in shared mode only. No SQL
    /// was sent.
    NotHeld {
        /// What was asked for: its key pattern.
        lock: Cow<'static, str>,
    },
    /// Any other answer of the database to the begin or to the commit, such as a deferred constraint; or a statement's of a
    /// body that returns this error. Nothing was committed.
    Database(DieselError),
}

impl Error {
    /// Whether others hold the lock or wait for it, so that a later try can succeed: [`Error::NotAvailable`],
    /// [`Error::TimedOut`], [`Error::QueueFull`].
    ///
    /// A deadlock is none of these, nor a pool that has no connection left.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        matches!(
            self,
            Self::NotAvailable { .. } | Self::TimedOut { .. } | Self::QueueFull { .. }
        )
    }

    /// The database's answer that this error is about, if there is one: its kind, its message, its constraint.
    #[must_use]
    pub const fn database(&self) -> Option<&DieselError> {
        match self {
            Self::Database(source)
            | Self::Deadlock { source, .. }
            | Self::Cancelled { source, .. }
            | Self::RolledBack { source, .. }
            | Self::MissingTable { source, .. }
            | Self::InFailedTransaction { source, .. }
            | Self::CommitUnknown { source, .. } => Some(source),
            Self::TimedOut { source, .. } | Self::LockLost { source, .. } => source.as_ref(),
            _ => None,
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // They print these.
            Self::Pool(error) => error.source(),
            Self::Database(error) => error.source(),
            error => error.database().map(|source| source as _),
        }
    }
}
