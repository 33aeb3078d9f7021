//! The error of a claim.

use crate::error::{CommonMessage, PoolError, product_error};
use diesel::result::Error as DieselError;
use std::fmt;

/// An error of a claim.
///
/// Your own error type needs `From<advisory_runtime::claim::Error>`. This error also converts into
/// one of Diesel's, in which [`Error::find`] finds it again.
///
/// ```
#[doc = example_of_jobs!()]
/// /// Returns `true` if the program should exit.
/// fn is_fatal(error: &Error) -> bool {
///     !matches!(error, Error::Lost { .. } | Error::Pool(_))
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The claim was lost: it had expired, was taken over, or was already finished. Nothing was
    /// changed, and another worker may have the row. The body was dropped, unless it blocked its
    /// thread.
    #[non_exhaustive]
    Lost {
        /// The table, and the value of `locked_by`.
        claim: String,
        /// Why the last renewal failed, if it did.
        source: Option<DieselError>,
    },
    /// The job may be completed or not. The statement that ends the claim got no answer, or it got
    /// an error that is possible after a commit, such as 57014 after a cancel request, and the
    /// claim no longer holds the row. Look for the job's effect before you run it again.
    #[non_exhaustive]
    CommitUnknown {
        /// The table, and the value of `locked_by`.
        claim: String,
        /// The error of the connection or of the server.
        source: DieselError,
    },
    /// A transaction is open, and its rollback would undo the renewal. No SQL was sent.
    #[non_exhaustive]
    InTransaction {
        /// The table, and the value of `locked_by`.
        claim: String,
    },
    /// The connection is closed: an earlier call on it was dropped before its end, or the
    /// connection was lost. No SQL was sent.
    #[non_exhaustive]
    BrokenConnection {
        /// The table, and the value of `locked_by`.
        claim: String,
    },
    /// The rows have a limit for each value of `per`, and the open transaction is REPEATABLE READ
    /// or SERIALIZABLE: its snapshot does not show which rows are running now. Nothing was claimed.
    /// Claim outside of the transaction, or in one that is READ COMMITTED.
    #[non_exhaustive]
    StaleSnapshot {
        /// The table.
        claim: String,
    },
    /// The pool could not provide a connection, or the server did not answer in time.
    Pool(PoolError),
    /// Any other error of the database, or of a statement in a body that returns this error.
    Database(DieselError),
}

impl Error {
    /// Returns the database's error that caused this one, if there is one, with its kind, message
    /// and constraint.
    #[must_use]
    pub const fn database(&self) -> Option<&DieselError> {
        match self {
            Self::Database(source) | Self::CommitUnknown { source, .. } => Some(source),
            Self::Lost { source, .. } => source.as_ref(),
            _ => None,
        }
    }
}

product_error!(Error);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (message, claim) = match self {
            Self::Lost { claim, .. } => (CommonMessage::Lost, claim),
            Self::CommitUnknown { claim, .. } => (CommonMessage::CommitUnknown, claim),
            Self::InTransaction { claim } => (CommonMessage::InTransaction, claim),
            Self::BrokenConnection { claim } => (CommonMessage::BrokenConnection, claim),
            Self::StaleSnapshot { claim } => {
                return write!(
                    f,
                    "claim on `{claim}`: inside a REPEATABLE READ or SERIALIZABLE transaction the limit of `per` can't be kept, because its \
                     snapshot does not show what others have claimed: claim before the transaction, or begin it as READ COMMITTED"
                );
            }
            Self::Pool(error) => return fmt::Display::fmt(error, f),
            Self::Database(error) => return fmt::Display::fmt(error, f),
        };
        message.write(f, &format_args!("claim `{claim}`"))
    }
}
