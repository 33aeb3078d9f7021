//! The message of each error: what happened, to which lock, and what to do.

use super::Error;
use advisory_pattern::MOST_PERMITS;
use std::fmt;

impl fmt::Display for Error {
    #[expect(clippy::too_many_lines, reason = "one message for each variant")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHeld { lock } => write!(
                f,
                "this guard does not hold `{lock}` exclusively: ask for a lock that its request named, without `permits`, \
                 and call `holding_shared` for a shared one"
            ),
            Self::NotAvailable { lock, .. } => write!(
                f,
                "advisory lock `{lock}` is held by another session, and the call does not wait: try again later, or give it \
                 a `wait`; `monitor::holders` says who holds it"
            ),
            Self::QueueFull { lock, limit } => write!(
                f,
                "advisory lock `{lock}`: {limit} calls of this process are already waiting for it, the most that `queue` \
                 allows; try again later"
            ),
            Self::Cancelled { lock, .. } => write!(
                f,
                "advisory lock `{lock}`: the server ended the wait early, by a cancel request or by `statement_timeout`; if \
                 nobody cancelled it, write a `wait` below `statement_timeout`"
            ),
            Self::InTransaction { lock } => common(CommonMessage::InTransaction, lock, f),
            Self::Pool(error) => fmt::Display::fmt(error, f),
            Self::TimedOut { lock, waited, .. } => write!(
                f,
                "advisory lock `{lock}` is held by another session: gave up after {waited:.1?}; `monitor::holders` and `cargo advisory locks` \
                 say who holds it"
            ),
            Self::StaleSnapshot { lock } => write!(
                f,
                "advisory lock `{lock}` was requested inside a REPEATABLE READ or SERIALIZABLE transaction, which would not \
                 see what earlier holders wrote: take the lock before the transaction, or begin it as READ COMMITTED if the \
                 level is only the role's default"
            ),
            Self::ForeignTransaction { lock } => write!(
                f,
                "advisory lock `{lock}`: a transaction that Diesel does not know of is open; begin it with Diesel's \
                 `transaction` instead of by SQL"
            ),
            Self::InFailedTransaction { lock, .. } => write!(
                f,
                "advisory lock `{lock}`: an earlier statement of the open transaction failed, so the server refuses everything until it is rolled \
                 back; return that statement's error, or run what may fail in a `transaction` of its own"
            ),
            Self::NoKeys { lock, slice } => write!(
                f,
                "advisory lock `{lock}`: `{slice}` is empty, so there is nothing to lock; return before the call"
            ),
            Self::TooManyKeys { lock, keys, max } => write!(
                f,
                "advisory lock `{lock}` would take {keys} locks, and the limit is {max}; take one lock on what they have in \
                 common{}",
                // A lock with permits has one key.
                if *max == 1 {
                    String::new()
                } else {
                    format!(", or write `max_keys = {keys}`")
                }
            ),
            Self::InvalidPermits { lock, permits } => write!(
                f,
                "advisory lock `{lock}` can't have {permits} permits: `permits` must be a number from 1 to {MOST_PERMITS}"
            ),
            Self::Database(error) => fmt::Display::fmt(error, f),
            Self::LockTableFull { lock, .. } => write!(
                f,
                "advisory lock `{lock}`: the server's table of locks is full; take one lock on what many keys have in common, \
                 or raise `max_locks_per_transaction`"
            ),
            Self::SelfDeadlock { lock } => write!(
                f,
                "advisory lock `{lock}` is already held by this task, on another connection: pass that connection to this call, or take the \
                 lock once"
            ),
            Self::TaskDeadlock { lock, cycle } => write!(
                f,
                "advisory lock `{lock}`: tasks of this process wait for each other, which the server cannot see: {cycle}; take the \
                 locks in the same order everywhere, or in one call, and give each call a `wait`"
            ),
            Self::Deadlock { lock, .. } => write!(
                f,
                "advisory lock `{lock}`: the server ended the wait to resolve a deadlock; call it again, and take locks in \
                 the same order everywhere"
            ),
            Self::Standby { lock } if lock.is_empty() => f.write_str(
                "the server is a standby, whose advisory locks sessions on the primary do not see: connect to the primary; if the URL \
                 has several hosts, add `target_session_attrs=read-write`",
            ),
            Self::Standby { lock } => common(CommonMessage::Standby, lock, f),
            Self::PooledSession { lock } if lock.is_empty() => f.write_str(
                "other clients get the server sessions of these connections, as behind a pooler in transaction mode: connect to the \
                 server itself, or to a pooler in session mode; without a session of its own, use transaction-level locks under READ \
                 COMMITTED (`scope = \"xact\"`), or a lease",
            ),
            Self::PooledSession { lock } => write!(
                f,
                "advisory lock `{lock}` needs a session of its own, but this connection goes through a pooler in transaction \
                 mode, or one whose mode is not known (its process id is not the server's, or is missing): connect to the server \
                 itself, or use `scope = \"xact\"` under READ COMMITTED; if the pooler is in session mode, call `session::verify` \
                 with two of its connections when the program starts"
            ),
            Self::UnsupportedServer => f.write_str(
                "this server granted one advisory lock to two sessions at once, so its advisory locks do not exclude anyone: connect \
                 to PostgreSQL itself, or use a lease",
            ),
            Self::NotCoordinator => f.write_str(
                "the server is a worker node of Citus, whose advisory locks sessions at other nodes do not see: connect to the \
                 coordinator",
            ),
            Self::BrokenConnection { lock } => common(CommonMessage::BrokenConnection, lock, f),
            Self::HoldExceeded { lock, max_hold } => write!(
                f,
                "the call under advisory lock `{lock}` took longer than {max_hold:?}, and its open transaction was rolled back; do less \
                 under the lock, or raise `max_hold`"
            ),
            Self::LockLost { lock, .. } => common(CommonMessage::Lost, lock, f),
            Self::RolledBack { lock, .. } => common(CommonMessage::RolledBack, lock, f),
            Self::TransactionEnded { lock } => write!(
                f,
                "the call under advisory lock `{lock}` ended its transaction itself, so the lock was not held until the \
                 end: remove COMMIT and ROLLBACK from it"
            ),
            Self::CommitUnknown { lock, .. } => common(CommonMessage::CommitUnknown, lock, f),
            Self::NotInTransaction { lock } => write!(
                f,
                "advisory lock `{lock}` was requested outside of a transaction, where it would be released at once: call \
                 `lock` inside `transaction`, or open one that holds it with `begin`"
            ),
        }
    }
}

/// The messages that the errors of several products share.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CommonMessage {
    InTransaction,
    Standby,
    BrokenConnection,
    Lost,
    RolledBack,
    CommitUnknown,
}

impl CommonMessage {
    pub(crate) fn write(
        self,
        f: &mut fmt::Formatter<'_>,
        subject: &dyn fmt::Display,
    ) -> fmt::Result {
        match self {
            Self::InTransaction => write!(
                f,
                "{subject} was requested inside an open transaction: call the function outside of it"
            ),
            Self::Standby => write!(
                f,
                "{subject} was requested on a standby, whose locks sessions on the primary do not see: connect to the primary"
            ),
            Self::BrokenConnection => write!(
                f,
                "{subject}: this connection is closed, because an earlier locked call on it was dropped before its end, or the \
                 connection was lost; take another one from the pool, or connect again"
            ),
            Self::Lost => write!(
                f,
                "{subject} was lost before the work under it had ended: another process may have worked at the same time, so check \
                 what was written before you run it again"
            ),
            Self::RolledBack => write!(
                f,
                "the call under {subject} returned `Ok`, but its transaction had failed: nothing was committed; return the error \
                 of the statement that failed"
            ),
            Self::CommitUnknown => write!(
                f,
                "the commit of the call under {subject} was interrupted: it may or may not be committed, so look for its effect \
                 before you run it again"
            ),
        }
    }
}

fn common(message: CommonMessage, lock: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    message.write(f, &format_args!("advisory lock `{lock}`"))
}
