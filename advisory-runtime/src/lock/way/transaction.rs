//! Transaction-level locks outside of a transaction, at READ COMMITTED: the SQL, the meaning of a
//! refusal, and the commit.

use super::acquire_sql::{AcquireError, AcquireSql, TryQuery};
use super::message::{LockTimeout, Message};
use super::refusal::{self, SessionState};
use crate::driver::{Driver, mark_transaction_closed};
use crate::error::{
    Marker, is_conflict, is_interrupted, is_rollback, is_same_answer, may_be_outside_transaction,
};
use crate::lock::call::{Call, CallPhase};
use crate::request::Scope;
use crate::sql::{self, ROLLBACK, try_lock::TryLock};
use crate::{Error, Request, Wait, debug};
use diesel::result::Error as DieselError;
use std::num::NonZeroU32;

/// Names the level, since a role can have another default. `NOT DEFERRABLE` is refused (25001)
/// inside a transaction that has run a query. Diesel does not know of that transaction, and this
/// message must not become part of it.
const SET_LEVEL: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE";

/// Begins a transaction at that level, before its lock.
pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE";

/// Opens a transaction that holds the keys, in one message.
///
/// A message of several statements is one implicit transaction, and the `BEGIN` at its end turns
/// that into an explicit one, which keeps the locks. An error before it leaves the session idle,
/// with nothing to roll back. The lock has a statement of its own, because anything else in that
/// statement would read from a snapshot taken before the wait.
///
/// A try is a query inside the transaction, so that a miss is not an error.
fn transaction_sql(request: &Request) -> AcquireSql {
    if request.budget() == Wait::Never {
        return AcquireSql {
            message: Message::before_try(BEGIN, request),
            try_query: Some(TryQuery::Xact {
                one_key: TryLock::of(request),
                undo: ROLLBACK.into(),
            }),
        };
    }
    let mut message = Message::new(request);
    message.statement(SET_LEVEL);
    message.set_client_check(request);
    message.keep_rows(request);
    message.select_locks(request, Scope::Xact, LockTimeout::Restore, None);
    message.set_xact_timeouts(request);
    message.statement("BEGIN");
    message.into_text().into()
}

/// Commits. The savepoint makes it fail in an aborted transaction (25P02), where `COMMIT` alone
/// would roll back without an error, and outside of a transaction (25P01).
const COMMIT: &str = "SAVEPOINT advisory_alive;COMMIT";

/// The statement of [`COMMIT`] that fails outside of a transaction.
const SAVEPOINT: &str = "SAVEPOINT advisory_alive";

pub(super) async fn begin<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    match transaction_sql(&call.request).send(conn, call).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(refusal::missed(call)),
        // Rare paths are boxed, so that a call's future is only as large as the common path needs.
        Err(error) => Err(Box::pin(refused(conn, call, error)).await),
    }
}

async fn refused<D: Driver>(conn: &mut D, call: &mut Call, error: AcquireError) -> Error {
    let source = match error {
        AcquireError::Query(source) => {
            drop(conn.execute(ROLLBACK).await);
            source
        }
        AcquireError::Message(source) => source,
    };
    // The message was refused or rolled back, or the connection was closed: no lock is left.
    call.phase = CallPhase::Idle;
    let lock = call.lock_name();
    match Marker::of(&source) {
        Some(Marker::NotAvailable) => call.not_available(),
        Some(Marker::NotDeferrable | Marker::IsolationLevel) => Error::ForeignTransaction { lock },
        _ => match refusal::probe(conn, &source).await {
            SessionState::Lost => Error::Database(source),
            // Closed, so that no pool keeps it and no later statement runs outside of the
            // transaction that its author relies on.
            SessionState::HadFailed => {
                conn.close(false);
                Error::ForeignTransaction { lock }
            }
            // The message was refused after its `BEGIN`.
            SessionState::Aborted => {
                conn.close(false);
                refusal::classify(conn, call, source).await
            }
            SessionState::Alive => refusal::classify(conn, call, source).await,
        },
    }
}

pub(super) async fn commit<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    if let Err(source) = debug::check_mark(conn, &call.checks, NonZeroU32::MIN).await {
        let is_ended = Marker::of(&source) == Some(Marker::TransactionEnded);
        return Err(Box::pin(commit_refused(conn, call, source, is_ended)).await);
    }
    match conn.execute(COMMIT).await {
        Ok(()) => {
            mark_transaction_closed(conn, None);
            Ok(())
        }
        Err(source) => Err(Box::pin(commit_refused(conn, call, source, false)).await),
    }
}

/// With `is_ended`, a check has found that the transaction is not the one that the call began.
async fn commit_refused<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    source: DieselError,
    is_ended: bool,
) -> Error {
    let lock = call.lock_name();
    match refusal::probe(conn, &source).await {
        SessionState::Lost => return Error::CommitUnknown { lock, source },
        SessionState::Aborted | SessionState::HadFailed => {
            if conn.execute(ROLLBACK).await.is_ok() {
                mark_transaction_closed(conn, None);
            } else {
                conn.close(false);
            }
            return if is_ended {
                Error::TransactionEnded { lock }
            } else {
                Error::RolledBack { lock, source }
            };
        }
        SessionState::Alive => mark_transaction_closed(conn, None),
    }
    if is_ended {
        return Error::TransactionEnded { lock };
    }
    // An error aborts an open transaction, so none is open now. Either none was open before, or a
    // deferred trigger has failed with any text. To tell them apart, the error is compared with the
    // server's answer to a savepoint outside of a transaction, in the session's language.
    if may_be_outside_transaction(&source)
        && let Err(outside) = conn.execute(SAVEPOINT).await
        && is_same_answer(&source, &outside)
    {
        return Error::TransactionEnded { lock };
    }
    // The commit was refused, or the server failed after it.
    let is_rollback = if is_conflict(&source) {
        conn.execute(&sql::probe::commits_alone()).await.is_ok()
    } else {
        is_rollback(&source) || {
            let check = sql::probe::check_rollback_sql(is_interrupted(&source));
            conn.execute(&check).await.is_ok()
        }
    };
    if is_rollback {
        Error::Database(source)
    } else {
        Error::CommitUnknown { lock, source }
    }
}

#[cfg(test)]
mod tests {
    use super::{COMMIT, transaction_sql};
    use crate::request::one;
    use advisory_pattern::Derivation;

    /// The guide's page is the snapshot of the messages of one call.
    #[test]
    fn the_page_shows_the_messages() {
        let page = include_str!("../../../docs/expansion.md");
        let shown = page.split("```sql").skip(1).map(|block| {
            let (statements, _) = block.split_once("```").unwrap_or_default();
            statements.split_whitespace().collect::<String>()
        });
        let key = Derivation::Sha256.key("room:7");
        let request = one("room:<room>", key.into());
        let sent = [
            transaction_sql(&request).message.into_owned(),
            COMMIT.to_owned(),
        ];
        let sent = sent.map(|sent| sent.replace(' ', ""));
        assert_eq!(shown.collect::<Vec<_>>(), sent);
    }
}
