//! The message of each error of a lease: what happened, to which lease, and what to do.

use super::Error;
use crate::error::CommonMessage;
use std::fmt;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held { lock, waited, .. } if waited.is_zero() => write!(
                f,
                "lease `{lock}` is held by somebody else, and the call does not wait: try again later, or give it a `wait`; \
                 `monitor::holders` says who holds it"
            ),
            Self::Held { lock, waited, .. } => write!(
                f,
                "lease `{lock}` is held by somebody else: gave up after {waited:.1?}; `monitor::holders` and `cargo advisory locks` \
                 say who holds it"
            ),
            Self::Done { lock, remaining } => write!(
                f,
                "the work under lease `{lock}` is done, and its key is free in {remaining:.1?}: return what a repeated call should, \
                 as `on_done` does"
            ),
            Self::HoldExceeded { lock, max_hold } => write!(
                f,
                "the call under lease `{lock}` took longer than {max_hold:?}, and was dropped; do less under the lease, or raise \
                 `max_hold`"
            ),
            Self::SelfDeadlock { lock } => write!(
                f,
                "lease `{lock}` is already held by this task, which would wait for itself: acquire the lease once"
            ),
            Self::NotInTransaction { lock } => write!(
                f,
                "a write under the fencing token of lease `{lock}` needs a transaction: call `fence` or `complete` inside one"
            ),
            Self::NotHeld { lock } => write!(
                f,
                "this lease is not on `{lock}`: ask for the lock that its request named"
            ),
            Self::KeyTooLong { lock, bytes, max } => write!(
                f,
                "the key of lease `{lock}` has {bytes} bytes, but a lease's key has at most {max}: use a hash of the long part"
            ),
            Self::Invalid { lock, reason } | Self::NoRuntime { lock, reason } => {
                write!(f, "`{lock}` can't be leased: {reason}")
            }
            Self::InvalidHolder { reason, .. } => {
                write!(f, "this name of a lease holder can't be used: {reason}")
            }
            Self::InvalidTable { table, reason } => {
                write!(f, "the lease table `{table}`: {reason}")
            }
            Self::MissingTable { table, .. } => write!(
                f,
                "the database has no lease table `{table}`: run the SQL of `cargo advisory migration lease` or \
                 `advisory_runtime::lease::Table::up` as a migration, or `Table::set_up` in development"
            ),
            Self::MissingRights { table, .. } => write!(
                f,
                "this role lacks a right that leases in `{table}` need: run `GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO \
                 <role>` and `GRANT USAGE, UPDATE ON SEQUENCE {table}_token TO <role>`"
            ),
            Self::Lost { lock, .. } => common(f, CommonMessage::Lost, lock),
            Self::RolledBack { lock, .. } => common(f, CommonMessage::RolledBack, lock),
            Self::CommitUnknown { lock, .. } => common(f, CommonMessage::CommitUnknown, lock),
            Self::InTransaction { lock } => common(f, CommonMessage::InTransaction, lock),
            Self::Standby { lock } => common(f, CommonMessage::Standby, lock),
            Self::BrokenConnection { lock } => common(f, CommonMessage::BrokenConnection, lock),
            Self::Pool(error) => fmt::Display::fmt(error, f),
            Self::Database(error) => fmt::Display::fmt(error, f),
        }
    }
}

fn common(f: &mut fmt::Formatter<'_>, message: CommonMessage, lock: &str) -> fmt::Result {
    message.write(f, &format_args!("lease `{lock}`"))
}
