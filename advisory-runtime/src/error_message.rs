//! What each error says: what happened, to what, and what to do.

use crate::Error;
use std::fmt;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAvailable { lock } => {
                write!(f, "advisory lock `{lock}` is held by another session")
            }
            Self::QueueFull { lock, limit } => write!(
                f,
                "advisory lock `{lock}`: {limit} calls of this process wait for it already"
            ),
            Self::SelfDeadlock { lock } => write!(
                f,
                "advisory lock `{lock}` is held by this task itself, outside of this call: pass its connection on, or take it once"
            ),
            Self::Cancelled { lock, .. } => write!(
                f,
                "advisory lock `{lock}`: the wait was ended by a cancel request or by `statement_timeout`"
            ),
            Self::HoldExceeded { lock, max_hold } => write!(
                f,
                "the call under advisory lock `{lock}` took longer than {max_hold:?}: its open transaction was rolled back"
            ),
            Self::LockLost { lock, .. } => write!(
                f,
                "`{lock}` was lost before the work under it had ended: somebody else may have run beside it"
            ),
            Self::InTransaction { lock } => write!(
                f,
                "advisory lock `{lock}` was asked for inside an open transaction: call the function outside of it"
            ),
            Self::Standby { lock } => write!(
                f,
                "advisory lock `{lock}` was asked for on a standby, where it keeps nobody out: connect to the primary"
            ),
            Self::PooledSession { lock } => write!(
                f,
                "advisory lock `{lock}` needs a session of its own, and this connection goes through a pooler in transaction \
                 mode: connect to the server itself, or use `scope = \"xact\"` under READ COMMITTED"
            ),
            Self::UnsupportedServer { lock } => write!(
                f,
                "advisory lock `{lock}` was granted to two sessions at once: the server's advisory locks keep nobody out"
            ),
            Self::Pool(error) => write!(f, "the pool lent no connection: {error}"),
            Self::TimedOut { lock, waited, .. } => {
                write!(
                    f,
                    "advisory lock `{lock}` is held by another session: gave up after {waited:.1?}"
                )
            }
            Self::Deadlock { lock, .. } => write!(
                f,
                "advisory lock `{lock}`: the wait was ended to break a deadlock"
            ),
            Self::RolledBack { lock, .. } => write!(
                f,
                "the call under advisory lock `{lock}` returned `Ok`, but its transaction had failed: nothing was committed"
            ),
            Self::TransactionEnded { lock } => write!(
                f,
                "the call under advisory lock `{lock}` ended its transaction itself: the lock was not held to the end"
            ),
            Self::CommitUnknown { lock, .. } => write!(
                f,
                "the connection was lost while the call under advisory lock `{lock}` committed: it may be committed or not"
            ),
            Self::StaleSnapshot { lock } => write!(
                f,
                "advisory lock `{lock}` was asked for inside a REPEATABLE READ or SERIALIZABLE transaction, which would not \
                 see what the holder before wrote: take the lock outside of it, or begin it READ COMMITTED where it is the \
                 role's default that is stricter"
            ),
            Self::ForeignTransaction { lock } => write!(
                f,
                "advisory lock `{lock}`: a transaction is open that Diesel does not know of; begin it with Diesel's \
                 `transaction` instead of by SQL"
            ),
            Self::NoKeys { lock, slice } => write!(
                f,
                "advisory lock `{lock}`: `{slice}` is empty, so there is nothing to lock; return before the call"
            ),
            Self::TooManyKeys { lock, keys, max } => write!(
                f,
                "advisory lock `{lock}` would take {keys} locks, and {max} are allowed; take one lock on what they have in \
                 common, or write `max_keys = {keys}`"
            ),
            Self::BrokenConnection { lock } => write!(
                f,
                "advisory lock `{lock}`: this connection is broken or closed; take another from the pool or \
                 connect anew"
            ),
            Self::Database(error) => fmt::Display::fmt(error, f),
            Self::KeyTooLong { .. }
            | Self::InvalidLease { .. }
            | Self::InvalidTable { .. }
            | Self::MissingTable { .. }
            | Self::NotInTransaction { .. } => self.fmt_lease(f),
        }
    }
}

impl Error {
    /// What leases alone have.
    fn fmt_lease(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyTooLong { lock, bytes, max } => write!(
                f,
                "the key of `{lock}` has {bytes} bytes, and a lease's key has at most {max}: put a hash of the long part into it"
            ),
            Self::InvalidLease { lock, reason } => write!(f, "`{lock}` can't be leased: {reason}"),
            Self::InvalidTable { table, reason } => {
                write!(f, "the lease table `{table}`: {reason}")
            }
            Self::MissingTable { table, .. } => write!(
                f,
                "the database has no lease table `{table}`: run the migration of `advisory_runtime::lease::Schema`, or its \
                 `set_up` in development"
            ),
            Self::NotInTransaction { lock } => write!(
                f,
                "a write under the fencing token of `{lock}` needs a transaction: call `fence` first inside one"
            ),
            // Said above.
            _ => Ok(()),
        }
    }
}
