//! The error of a call under a lease.

mod message;
#[cfg(any(feature = "tracing", feature = "metrics"))]
mod observed;

use super::sql::Texts;
use crate::error::{PoolError, product_error};
use diesel::result::Error as DieselError;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why a call under a lease failed, apart from the error of its own body.
///
/// A function that returns its own error type receives this through
/// `From<advisory_runtime::lease::Error>`; one that only has `From<diesel::result::Error>`, such as
/// a `QueryResult` function, receives one of Diesel's errors with this one inside, which
/// [`Error::find`] finds; see [`guide::diesel_errors`](crate::guide::diesel_errors).
///
/// ```
/// use advisory_runtime::lease::Error;
///
/// fn status(error: &Error) -> u16 {
///     match error {
///         Error::Done { .. } => 200,
///         Error::Held { .. } => 409,
///         Error::CommitUnknown { .. } => 502,
///         _ => 500,
///     }
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else held the key until the call's `wait` was over, or at the one try of a call that
    /// does not wait. A later try can succeed. The body did not run.
    #[non_exhaustive]
    Held {
        /// The key pattern, or the start of the key's hash.
        lock: Cow<'static, str>,
        /// For [`monitor::holders`](crate::monitor::holders).
        busy: BusyKey,
        /// How long this process waited, by its own clock; zero if the call does not wait
        /// ([`Wait::Never`](crate::Wait::Never)).
        waited: Duration,
    },
    /// The work under the key is done: a call with `keep` has returned `Ok`, or the transaction of
    /// [`Lease::complete`](super::Lease::complete) was committed. Until `keep` has passed, each call
    /// gets this answer at once, whatever its `wait`. The body did not run.
    #[non_exhaustive]
    Done {
        /// The key pattern, or the start of the key's hash.
        lock: Cow<'static, str>,
        /// How long the key stays done, by the server's clock when it answered.
        remaining: Duration,
    },
    /// The lease was lost before the body returned: a renewal was refused, or the server could not
    /// be reached before it expired. The body was dropped, unless it blocked its thread. What it
    /// committed stays committed.
    #[non_exhaustive]
    Lost {
        /// The key pattern, or the start of the key's hash.
        lock: Cow<'static, str>,
        /// Why the last renewal failed, if it did.
        source: Option<DieselError>,
    },
    /// The body ran for longer than the request's `max_hold`. It was dropped, and the lease was
    /// released.
    #[non_exhaustive]
    HoldExceeded {
        /// The key pattern, or the start of the key's hash.
        lock: Cow<'static, str>,
        /// How long it may be held.
        max_hold: Duration,
    },
    /// The body returned `Ok`, but the transaction of [`Lease::complete`](super::Lease::complete)
    /// was rolled back. The key was released.
    #[non_exhaustive]
    RolledBack {
        /// The key pattern, or the start of the key's hash.
        lock: Cow<'static, str>,
        /// Diesel's error for a rollback.
        source: DieselError,
    },
    /// At the end of the call the server could not be reached to say whether the transaction of
    /// [`Lease::complete`](super::Lease::complete) was committed, or the body did not return in
    /// time after it. Look for the effect of the body before you run it again.
    #[non_exhaustive]
    CommitUnknown {
        /// The key pattern, or the start of the key's hash.
        lock: Cow<'static, str>,
        /// How the connection ended.
        source: DieselError,
    },
    /// The call would wait for a lease that its own task holds. Found only in debug builds, and
    /// only if the call is made inside the body that holds the lease. The body did not run.
    #[non_exhaustive]
    SelfDeadlock {
        /// The key pattern, or the start of the key's hash.
        lock: Cow<'static, str>,
    },
    /// A transaction is open, and its rollback would undo the call. No SQL was sent.
    #[non_exhaustive]
    InTransaction {
        /// The key pattern, or the start of the key's hash; for
        /// [`Table::sweep`](super::Table::sweep) the table.
        lock: Cow<'static, str>,
    },
    /// A write under a fencing token needs an open transaction: the token stays current until its
    /// end. No SQL was sent.
    #[non_exhaustive]
    NotInTransaction {
        /// The key pattern, or the start of the key's hash.
        lock: Cow<'static, str>,
    },
    /// [`LeaseGuard::run_holding`](super::LeaseGuard::run_holding) was called with another lock
    /// than the lease's. The body did not run.
    #[non_exhaustive]
    NotHeld {
        /// The key pattern of the request.
        lock: Cow<'static, str>,
    },
    /// The key has more bytes than the lease table takes. No SQL was sent.
    #[non_exhaustive]
    KeyTooLong {
        /// The key pattern, or the start of the key's hash.
        lock: Cow<'static, str>,
        /// The length of the rendered key in bytes.
        bytes: usize,
        /// The largest length in bytes.
        max: usize,
    },
    /// The request's times or key are not valid, or `complete` was called without a `keep`. No SQL
    /// was sent.
    #[non_exhaustive]
    Invalid {
        /// The key pattern, or the start of the key's hash.
        lock: Cow<'static, str>,
        /// What is wrong, and what to write.
        reason: &'static str,
    },
    /// The name for the holder is not valid. No SQL was sent.
    #[non_exhaustive]
    InvalidHolder {
        /// As it was given.
        holder: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The name for the lease table is not valid. No SQL was sent.
    #[non_exhaustive]
    InvalidTable {
        /// As it was given.
        table: String,
        /// What is wrong, and what to write.
        reason: &'static str,
    },
    /// The database has no lease table (SQLSTATE 42P01).
    #[non_exhaustive]
    MissingTable {
        /// The table, with its schema.
        table: String,
        /// The server's answer.
        source: DieselError,
    },
    /// The role lacks a right that a grant needs (SQLSTATE 42501). `UPDATE` on the sequence is
    /// needed only to move it: at the first grant of a server, after a failover, and if it is
    /// behind the tokens in the table, such as after logical replication. Nothing is granted until
    /// it is moved.
    #[non_exhaustive]
    MissingRights {
        /// The table, with its schema.
        table: String,
        /// The server's answer.
        source: DieselError,
    },
    /// The call was made outside of a tokio runtime with a timer, or, for a blocking call, the
    /// thread that renews could not be started. No SQL was sent.
    #[non_exhaustive]
    NoRuntime {
        /// The key pattern, or the start of the key's hash.
        lock: Cow<'static, str>,
        /// What is missing.
        reason: &'static str,
    },
    /// The server is a standby, which grants nothing.
    #[non_exhaustive]
    Standby {
        /// The key pattern, or the start of the key's hash.
        lock: Cow<'static, str>,
    },
    /// The connection is closed: an earlier call on it was dropped before its end, or the
    /// connection was lost. A pool replaces such a connection; open one of your own again.
    #[non_exhaustive]
    BrokenConnection {
        /// The key pattern, or the start of the key's hash.
        lock: Cow<'static, str>,
    },
    /// The pool could not provide a connection, or the server did not answer in time.
    Pool(PoolError),
    /// Any other error of the database, or of a statement in a body that returns this error.
    Database(DieselError),
}

impl Error {
    /// Returns `true` if somebody else holds the key, so that a later try can succeed:
    /// [`Error::Held`].
    #[must_use]
    pub const fn is_held(&self) -> bool {
        matches!(self, Self::Held { .. })
    }

    /// Returns `true` if the work under the key is already done: [`Error::Done`].
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self, Self::Done { .. })
    }

    /// Returns the error of the database, if that is the cause: its kind, message and constraint.
    #[must_use]
    pub const fn database(&self) -> Option<&DieselError> {
        match self {
            Self::Database(source)
            | Self::RolledBack { source, .. }
            | Self::CommitUnknown { source, .. }
            | Self::MissingTable { source, .. }
            | Self::MissingRights { source, .. } => Some(source),
            Self::Lost { source, .. } => source.as_ref(),
            _ => None,
        }
    }
}

product_error!(Error);

/// The key that a call did not get, for [`monitor::holders`](crate::monitor::holders).
#[derive(Clone)]
pub struct BusyKey {
    /// The names of its table.
    pub(super) texts: Arc<Texts>,
    pub(crate) key_hash: Box<[u8; 32]>,
}

/// Without the hash: it can be that of personal data.
impl fmt::Debug for BusyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BusyKey").finish_non_exhaustive()
    }
}
