//! Classifies the server's errors.
//!
//! Diesel hides the SQLSTATE, and messages are translated. So errors are recognized by what translations do not change: our own
//! markers, the names of commands, and which fields the error has.

use diesel::result::{DatabaseErrorKind, Error as DieselError};

/// A text in an error message that identifies the failure of a statement of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    /// A try by text found the lock held.
    NotAvailable,
    /// A session-level lock was no longer held when it was released.
    LockLost,
    /// The outer transaction reads from a snapshot older than the lock.
    StaleSnapshot,
    /// A transaction is open that Diesel does not know of.
    ForeignTransaction,
    /// The transaction is not the one that begin opened.
    TransactionEnded,
    Standby,
    /// The session is not, or is not known to be, the client's own.
    PooledSession,
    /// `SET TRANSACTION … NOT DEFERRABLE` came after a query (25001).
    NotDeferrable,
    /// The outer transaction has a stricter level, and `SET TRANSACTION` came too late to change it (25001).
    IsolationLevel,
}

impl Marker {
    const ALL: [Self; 9] = [
        Self::NotAvailable,
        Self::LockLost,
        Self::StaleSnapshot,
        Self::ForeignTransaction,
        Self::TransactionEnded,
        Self::Standby,
        Self::PooledSession,
        Self::NotDeferrable,
        Self::IsolationLevel,
    ];

    /// Our own statements fail with our own texts. The server's messages contain the command's name in every translation, such as
    /// `SET TRANSACTION ISOLATION LEVEL must be called before any query`.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::NotAvailable => "advisory:not-available",
            Self::LockLost => "advisory:lock-lost",
            Self::StaleSnapshot => "advisory:stale-snapshot",
            Self::ForeignTransaction => "advisory:foreign-transaction",
            Self::TransactionEnded => "advisory:transaction-ended",
            Self::Standby => "advisory:standby",
            Self::PooledSession => "advisory:pooled-session",
            Self::NotDeferrable => "TRANSACTION [NOT] DEFERRABLE",
            Self::IsolationLevel => "SET TRANSACTION ISOLATION LEVEL",
        }
    }

    /// The marker in the error of a message that runs statements of this crate and nothing else. A `COMMIT` also runs deferred triggers,
    /// and a statement of the body anything: their errors can have any text, also that of a marker, and are not given to this function.
    pub(crate) fn of(error: &DieselError) -> Option<Self> {
        let DieselError::DatabaseError(DatabaseErrorKind::Unknown, answer) = error else {
            return None;
        };
        let message = answer.message();
        Self::ALL
            .into_iter()
            .find(|marker| message.contains(marker.text()))
    }
}

/// Whether an error has the form of the server's answer to a savepoint outside of a transaction (25P01): `SAVEPOINT can only be used in
/// transaction blocks`, with the command's name in every translation. So can a deferred trigger's error.
pub(crate) fn may_be_outside_transaction(error: &DieselError) -> bool {
    is_interrupted(error)
        && matches!(error, DieselError::DatabaseError(_, answer) if answer.message().contains("SAVEPOINT"))
}

/// Whether two answers of one session have the same text.
pub(crate) fn is_same_answer(one: &DieselError, other: &DieselError) -> bool {
    matches!((one, other), (DieselError::DatabaseError(_, one), DieselError::DatabaseError(_, other))
        if one.message() == other.message())
}

/// Whether the connection is lost, as opposed to a refused statement.
///
/// diesel-async uses this kind for errors that the server did not send.
pub(crate) fn is_connection_lost(error: &DieselError) -> bool {
    matches!(
        error,
        DieselError::DatabaseError(
            DatabaseErrorKind::UnableToSendCommand | DatabaseErrorKind::ClosedConnection,
            _
        )
    )
}

/// Whether a lock statement was ended to resolve a deadlock.
///
/// Of the errors that end a lock statement only 40P01 has both a detail and a hint: 55P03 and 57014 have neither, 53200 has only a
/// hint.
pub(crate) fn is_deadlock(error: &DieselError) -> bool {
    matches!(error, DieselError::DatabaseError(DatabaseErrorKind::Unknown, answer)
        if answer.details().is_some() && answer.hint().is_some())
}

/// Whether a refused statement may succeed later without a change: after a timeout or a cancel request, a deadlock, a conflict, the end
/// of the session (57P01), and on a server that is read only for a while. Many lasting errors look like a timeout, such as missing rights
/// (42501). A timeout before the statement is planned has a position, as an unknown column has.
pub(crate) const fn may_pass(error: &DieselError) -> bool {
    matches!(
        error,
        DieselError::DatabaseError(
            DatabaseErrorKind::Unknown
                | DatabaseErrorKind::ReadOnlyTransaction
                | DatabaseErrorKind::SerializationFailure,
            _
        )
    )
}

/// Whether a lock statement was ended by a timeout or a cancel request: 55P03, 57014. Errors in a statement's text have a position.
pub(crate) fn is_interrupted(error: &DieselError) -> bool {
    matches!(error, DieselError::DatabaseError(DatabaseErrorKind::Unknown, answer)
        if answer.details().is_none() && answer.hint().is_none() && answer.statement_position().is_none())
}
