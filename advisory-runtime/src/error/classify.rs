//! Classifies the server's errors.
//!
//! Diesel hides the SQLSTATE, and messages are translated. Errors are recognized by what no
//! translation changes: our own markers, the names of commands, and the fields that an error has.

use diesel::result::{DatabaseErrorInformation, DatabaseErrorKind, Error as DieselError};
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
    /// In the order of the declaration. Our own statements fail with our own texts. The server's
    /// messages contain the command's name in every translation, such as
    /// `SET TRANSACTION ISOLATION LEVEL must be called before any query`.
    const TEXTS: [(Self, &'static str); 10] = [
        (Self::NotAvailable, "advisory:not-available"),
        (Self::LockLost, "advisory:lock-lost"),
        (Self::StaleSnapshot, "advisory:stale-snapshot"),
        (Self::ForeignTransaction, "advisory:foreign-transaction"),
        (Self::TransactionEnded, "advisory:transaction-ended"),
        (Self::Standby, "advisory:standby"),
        (Self::NotCoordinator, "advisory:not-coordinator"),
        (Self::PooledSession, "advisory:pooled-session"),
        (Self::NotDeferrable, "TRANSACTION [NOT] DEFERRABLE"),
        (Self::IsolationLevel, "SET TRANSACTION ISOLATION LEVEL"),
    ];

    pub(crate) const fn text(self) -> &'static str {
        Self::TEXTS[self as usize].1
    }

    /// The marker in the error of a message that runs only statements of this crate. A `COMMIT`
    /// also runs deferred triggers, and a body runs any statement: their errors can have the text
    /// of a marker, and must not be given to this function.
    pub(crate) fn of(error: &DieselError) -> Option<Self> {
        let is_in_message = |(_, text): &(Self, &str)| has_text(error, text);
        let found = Self::TEXTS.into_iter().find(is_in_message);
        found.map(|(marker, _)| marker)
    }
}

/// The server's answer, if Diesel has no kind of its own for the SQLSTATE.
fn unknown(error: &DieselError) -> Option<&(dyn DatabaseErrorInformation + Send + Sync)> {
    match error {
        DieselError::DatabaseError(DatabaseErrorKind::Unknown, answer) => Some(&**answer),
        _ => None,
    }
}

fn has_text(error: &DieselError, text: &str) -> bool {
    unknown(error).is_some_and(|answer| answer.message().contains(text))
}

/// Returns whether an error can be the server's answer to a savepoint outside of a transaction
/// (25P01): `SAVEPOINT can only be used in transaction blocks`, with the command's name in every
/// translation. A deferred trigger's error can look like it.
pub(crate) fn may_be_outside_transaction(error: &DieselError) -> bool {
    has_only_message(error) && has_text(error, "SAVEPOINT")
}

/// Returns whether two answers of one session have the same text.
pub(crate) fn is_same_answer(one: &DieselError, other: &DieselError) -> bool {
    matches!((one, other), (DieselError::DatabaseError(_, one), DieselError::DatabaseError(_, other))
        if one.message() == other.message())
}

/// Returns whether the connection is lost, as opposed to a refused statement.
///
/// diesel-async uses the first kind for errors that the server did not send.
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
/// Among the errors that end a lock statement, only 40P01 has both a detail and a hint: 55P03 and
/// 57014 have neither, 53200 has only a hint. Engines on top of PostgreSQL, such as Citus, send
/// neither with a deadlock between nodes; their messages are in English.
pub(crate) fn is_deadlock(error: &DieselError) -> bool {
    unknown(error).is_some_and(|answer| {
        answer.details().is_some() && answer.hint().is_some()
            || answer.message().to_ascii_lowercase().contains("deadlock")
    })
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

/// Returns whether an error can be the answer to a statement that was committed: it comes from the
/// server, is not about the statement's text, and is not known to roll back. A cancel request can
/// reach a commit, and a distributed engine can fail after it has committed on one of its servers.
pub(crate) fn may_follow_commit(error: &DieselError) -> bool {
    unknown(error).is_some_and(|answer| answer.statement_position().is_none())
        && !is_deadlock(error)
        && is_lock_timeout(error) != Some(true)
}

/// Returns whether a transaction was refused because of another one's reads and writes (40001).
/// Extensions make a commit on other servers a part of a transaction, and the server finds the
/// conflict after they have committed.
pub(crate) const fn is_conflict(error: &DieselError) -> bool {
    matches!(
        error,
        DieselError::DatabaseError(DatabaseErrorKind::SerializationFailure, _)
    )
}

/// Returns whether an interrupted statement reached its `lock_timeout` (55P03), as opposed to a
/// cancel request or `statement_timeout` (57014). `None` if the server does not speak English: the
/// texts of other languages are not known.
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
    has_text(error, name)
}

/// Returns whether the error of a `ROLLBACK TO SAVEPOINT` says that no transaction is open (25P01).
/// Every translation has the command's name.
pub(crate) fn is_outside_transaction(error: &DieselError) -> bool {
    has_text(error, "ROLLBACK TO SAVEPOINT")
}

/// The error of a connection whose server has not answered for this long, while no packet said that
/// the connection was lost.
pub(crate) fn no_answer(time: Duration) -> DieselError {
    let message = format!("the server has not answered within {time:.1?}");
    DieselError::DatabaseError(DatabaseErrorKind::UnableToSendCommand, Box::new(message))
}

/// Returns whether the server's lock table is full (53200). The hint contains the setting's name in
/// every translation.
pub(crate) fn is_lock_table_full(error: &DieselError) -> bool {
    let hint = unknown(error).and_then(DatabaseErrorInformation::hint);
    hint.is_some_and(|hint| hint.contains("max_locks_per_transaction"))
}

/// Returns whether a refused statement may succeed later without a change: after a timeout or a
/// cancel request, a deadlock, a conflict, the end of the session (57P01), and on a server that is
/// read only for a while. Many lasting errors look like a timeout, such as missing rights (42501),
/// and a timeout before the statement is planned has a position, like an unknown column.
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

/// The planner's refusals of a statement on a table that Citus distributes (0A000). Its messages
/// are not translated.
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
/// 0A000 too, but another connection can run it.
pub(crate) fn is_refused_by_citus(error: &DieselError) -> bool {
    CITUS_REFUSALS
        .iter()
        .any(|refusal| has_text(error, refusal))
}

/// Returns whether a lock statement was ended by a timeout or a cancel request: 55P03, 57014. Their
/// messages contain no name and no number in any translation. Other errors without further fields
/// do: a missing right (42501) names the function, an internal error (XX000) a number or a file.
pub(crate) fn is_interrupted(error: &DieselError) -> bool {
    let is_of_a_name =
        |letter: char| letter.is_ascii_digit() || matches!(letter, '_' | '"' | '«' | '„' | '“');
    has_only_message(error)
        && unknown(error).is_some_and(|answer| !answer.message().contains(is_of_a_name))
}

/// Returns whether the server has sent nothing but a message. Errors in a statement's text have a
/// position, and many others a hint.
pub(crate) fn has_only_message(error: &DieselError) -> bool {
    unknown(error).is_some_and(|answer| {
        answer.details().is_none()
            && answer.hint().is_none()
            && answer.statement_position().is_none()
    })
}

#[cfg(test)]
mod tests {
    use super::{Marker, is_refused_by_citus};
    use diesel::result::{DatabaseErrorKind, Error as DieselError};

    #[test]
    fn each_marker_has_its_text() {
        for (at, (marker, _)) in Marker::TEXTS.into_iter().enumerate() {
            assert_eq!(marker as usize, at);
        }
    }

    /// Three answers to claims, and two that pass: on another connection, and in another call.
    #[test]
    fn only_lasting_refusals_of_citus_count() {
        let lasting = [
            "functions used in UPDATE queries on distributed tables must not be VOLATILE",
            "could not run distributed query with FOR UPDATE/SHARE commands",
            "recursive CTEs are only supported when they contain a filter on the distribution column",
        ];
        let passing = [
            "cached plan must not change result type",
            "canceling the transaction since it was involved in a distributed deadlock",
        ];
        let is_refused = |text: &str| {
            let answer = Box::new(text.to_owned());
            is_refused_by_citus(&DieselError::DatabaseError(
                DatabaseErrorKind::Unknown,
                answer,
            ))
        };
        assert_eq!(lasting.map(is_refused), [true; 3]);
        assert_eq!(passing.map(is_refused), [false; 2]);
    }
}
