//! Classifies the server's errors.
//!
//! Diesel hides the SQLSTATE, and messages are translated. So errors are recognized by what
//! translations do not change: our own markers, the names of commands, and which fields the error
//! has.

use diesel::result::{DatabaseErrorKind, Error as DieselError};
use std::time::Duration;

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
    /// The server is a worker node of Citus.
    NotCoordinator,
    /// The session is not, or is not known to be, the client's own.
    PooledSession,
    /// `SET TRANSACTION … NOT DEFERRABLE` came after a query (25001).
    NotDeferrable,
    /// The outer transaction has a stricter level, and `SET TRANSACTION` came too late to change it
    /// (25001).
    IsolationLevel,
}

impl Marker {
    const ALL: [Self; 10] = [
        Self::NotAvailable,
        Self::LockLost,
        Self::StaleSnapshot,
        Self::ForeignTransaction,
        Self::TransactionEnded,
        Self::Standby,
        Self::NotCoordinator,
        Self::PooledSession,
        Self::NotDeferrable,
        Self::IsolationLevel,
    ];

    /// Our own statements fail with our own texts. The server's messages contain the command's name
    /// in every translation, such as
    /// `SET TRANSACTION ISOLATION LEVEL must be called before any query`.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::NotAvailable => "advisory:not-available",
            Self::LockLost => "advisory:lock-lost",
            Self::StaleSnapshot => "advisory:stale-snapshot",
            Self::ForeignTransaction => "advisory:foreign-transaction",
            Self::TransactionEnded => "advisory:transaction-ended",
            Self::Standby => "advisory:standby",
            Self::NotCoordinator => "advisory:not-coordinator",
            Self::PooledSession => "advisory:pooled-session",
            Self::NotDeferrable => "TRANSACTION [NOT] DEFERRABLE",
            Self::IsolationLevel => "SET TRANSACTION ISOLATION LEVEL",
        }
    }

    /// The marker in the error of a message that runs statements of this crate and nothing else. A
    /// `COMMIT` also runs deferred triggers, and a statement of the body anything: their errors can
    /// have any text, also that of a marker, and are not given to this function.
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

/// Returns whether an error has the form of the server's answer to a savepoint outside of a
/// transaction (25P01): `SAVEPOINT can only be used in transaction blocks`, with the command's name
/// in every translation. So can a deferred trigger's error.
pub(crate) fn may_be_outside_transaction(error: &DieselError) -> bool {
    has_only_message(error)
        && matches!(error, DieselError::DatabaseError(_, answer) if answer.message().contains("SAVEPOINT"))
}

/// Returns whether two answers of one session have the same text.
pub(crate) fn is_same_answer(one: &DieselError, other: &DieselError) -> bool {
    matches!((one, other), (DieselError::DatabaseError(_, one), DieselError::DatabaseError(_, other))
        if one.message() == other.message())
}

/// Returns whether the connection is lost, as opposed to a refused statement.
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

/// Returns whether a statement was ended to resolve a deadlock.
///
/// Of the errors that end a lock statement only 40P01 has both a detail and a hint: 55P03 and 57014
/// have neither, 53200 has only a hint. Engines on top of PostgreSQL, such as Citus, send neither
/// with a deadlock between nodes; their messages are in English.
pub(crate) fn is_deadlock(error: &DieselError) -> bool {
    matches!(error, DieselError::DatabaseError(DatabaseErrorKind::Unknown, answer)
        if answer.details().is_some() && answer.hint().is_some()
            || answer.message().to_ascii_lowercase().contains("deadlock"))
}

/// Returns whether the error's class says that the transaction was rolled back: 23, 40P01.
pub(crate) fn is_rollback(error: &DieselError) -> bool {
    use DatabaseErrorKind as Kind;
    let is_known_kind = matches!(
        error,
        DieselError::DatabaseError(
            Kind::UniqueViolation
                | Kind::ForeignKeyViolation
                | Kind::NotNullViolation
                | Kind::CheckViolation
                | Kind::RestrictViolation
                | Kind::ExclusionViolation,
            _
        )
    );
    is_known_kind || is_deadlock(error)
}

/// Returns whether an error can be the answer of a statement that was committed: one of the
/// server's, neither for its text nor known to roll back. A cancel request can reach a commit, and
/// a distributed engine can fail after it has committed on one of its servers.
pub(crate) fn may_follow_commit(error: &DieselError) -> bool {
    matches!(error, DieselError::DatabaseError(DatabaseErrorKind::Unknown, answer)
        if answer.statement_position().is_none())
        && !is_deadlock(error)
        && is_lock_timeout(error) != Some(true)
}

/// Returns whether a transaction was refused because of another one's reads and writes (40001). The
/// server finds that out after other servers, of which extensions make a commit a part, have
/// committed.
pub(crate) const fn is_conflict(error: &DieselError) -> bool {
    matches!(
        error,
        DieselError::DatabaseError(DatabaseErrorKind::SerializationFailure, _)
    )
}

/// Returns whether an interrupted statement has waited for as long as its `lock_timeout` (55P03),
/// as opposed to a cancel request or `statement_timeout` (57014). `None` if the server does not
/// speak English, where the texts of both are not known.
pub(crate) fn is_lock_timeout(error: &DieselError) -> Option<bool> {
    let DieselError::DatabaseError(_, answer) = error else {
        return None;
    };
    let reason = answer
        .message()
        .strip_prefix("canceling statement due to ")?;
    Some(reason == "lock timeout")
}

/// Returns whether the error says that a savepoint of this name does not exist (3B001): a
/// transaction is open. Every translation has the name.
pub(crate) fn is_of_savepoint(error: &DieselError, name: &str) -> bool {
    matches!(error, DieselError::DatabaseError(DatabaseErrorKind::Unknown, answer) if answer.message().contains(name))
}

/// Returns whether the error of a `ROLLBACK TO SAVEPOINT` says that no transaction is open (25P01).
/// Every translation has the command's name.
pub(crate) fn is_outside_transaction(error: &DieselError) -> bool {
    is_of_savepoint(error, "ROLLBACK TO SAVEPOINT")
}

/// The error of a connection whose server has not answered for this long. No packet said that it
/// was lost.
pub(crate) fn no_answer(time: Duration) -> DieselError {
    let message = format!("the server has not answered within {time:.1?}");
    DieselError::DatabaseError(DatabaseErrorKind::UnableToSendCommand, Box::new(message))
}

/// Returns whether the server's lock table is full (53200). The hint contains the setting's name in
/// every translation.
pub(crate) fn is_lock_table_full(error: &DieselError) -> bool {
    matches!(error, DieselError::DatabaseError(DatabaseErrorKind::Unknown, answer)
        if answer.hint().is_some_and(|hint| hint.contains("max_locks_per_transaction")))
}

/// Returns whether a refused statement may succeed later without a change: after a timeout or a
/// cancel request, a deadlock, a conflict, the end of the session (57P01), and on a server that is
/// read only for a while. Many lasting errors look like a timeout, such as missing rights (42501).
/// A timeout before the statement is planned has a position, as an unknown column has.
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

/// How the planner of Citus refuses a statement on a table that it distributes (0A000). Its
/// messages are not translated.
const CITUS_REFUSALS: [&str; 6] = [
    "could not run distributed query",
    "cannot perform distributed planning",
    "must not be VOLATILE",
    "non-IMMUTABLE functions",
    "recursive CTEs are only supported",
    "complex joins are only supported",
];

/// Returns whether Citus does not support the statement on this kind of table, on any connection
/// and at any time. PostgreSQL's own refusal of a prepared statement whose result has changed is
/// 0A000 too, and passes with another connection.
pub(crate) fn is_refused_by_citus(error: &DieselError) -> bool {
    matches!(error, DieselError::DatabaseError(DatabaseErrorKind::Unknown, answer)
        if CITUS_REFUSALS.iter().any(|refusal| answer.message().contains(refusal)))
}

/// Returns whether a lock statement was ended by a timeout or a cancel request: 55P03, 57014. In
/// every translation their messages contain no name and no number. Other errors without further
/// fields do: a missing right (42501) names the function, and an internal error (XX000) has a
/// number or a file.
pub(crate) fn is_interrupted(error: &DieselError) -> bool {
    let is_of_a_name =
        |letter: char| letter.is_ascii_digit() || matches!(letter, '_' | '"' | '«' | '„' | '“');
    has_only_message(error)
        && matches!(error, DieselError::DatabaseError(_, answer) if !answer.message().contains(is_of_a_name))
}

/// Returns whether the server has sent nothing but a message. Errors in a statement's text have a
/// position, and many others a hint.
pub(crate) fn has_only_message(error: &DieselError) -> bool {
    matches!(error, DieselError::DatabaseError(DatabaseErrorKind::Unknown, answer)
        if answer.details().is_none() && answer.hint().is_none() && answer.statement_position().is_none())
}

#[cfg(test)]
mod tests {
    use super::is_refused_by_citus;
    use diesel::result::{DatabaseErrorKind, Error as DieselError};

    /// The answers to the claims, and two that pass: with another connection, and by calling again.
    #[test]
    fn what_citus_refuses_is_told_from_what_passes() {
        for (answer, is_refused) in [
            (
                "functions used in UPDATE queries on distributed tables must not be VOLATILE",
                true,
            ),
            (
                "could not run distributed query with FOR UPDATE/SHARE commands",
                true,
            ),
            (
                "recursive CTEs are only supported when they contain a filter on the distribution column",
                true,
            ),
            ("cached plan must not change result type", false),
            (
                "canceling the transaction since it was involved in a distributed deadlock",
                false,
            ),
        ] {
            let error =
                DieselError::DatabaseError(DatabaseErrorKind::Unknown, Box::new(answer.to_owned()));
            assert_eq!(is_refused_by_citus(&error), is_refused, "{answer}");
        }
    }
}
