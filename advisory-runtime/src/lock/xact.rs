//! Transaction-level locks outside of a transaction, at READ COMMITTED; and the commit of every transaction that a call opens.

use super::call::{Call, Phase};
use super::refusal;
use crate::driver::{Driver, mark_transaction_closed};
use crate::error::{
    Marker, is_connection_lost, is_interrupted, is_same_answer, may_be_outside_transaction,
};
use crate::sql::{self, xact};
use crate::{Error, debug};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use std::num::NonZeroU32;

pub(super) async fn begin<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    match call.send(conn, xact::begin(&call.request)).await {
        Ok(Ok(true)) => Ok(()),
        // Rare paths are boxed, so that a call's future is only as large as the common path needs.
        sent => Err(Box::pin(refused(conn, call, sent)).await),
    }
}

async fn refused<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    sent: QueryResult<QueryResult<bool>>,
) -> Error {
    let source = match sent {
        Ok(Ok(_)) => return refusal::missed(conn, call, Ok(())),
        Ok(Err(source)) => {
            drop(conn.execute(sql::ROLLBACK).await);
            source
        }
        Err(source) => source,
    };
    // The message was refused, so the session is idle again.
    call.phase = Phase::Idle;
    let lock = call.lock();
    match Marker::of(&source) {
        Some(Marker::NotAvailable) => call.not_available(),
        Some(Marker::NotDeferrable | Marker::IsolationLevel) => Error::ForeignTransaction { lock },
        _ => match refusal::probe(conn, &source).await {
            refusal::State::Lost => Error::Database(source),
            // A transaction that had already failed refuses everything; or the message was interrupted behind its `BEGIN`. Closed, so
            // that no pool keeps it, and no later statement runs as if there had been no transaction.
            refusal::State::Aborted => {
                conn.close(false);
                Error::ForeignTransaction { lock }
            }
            refusal::State::Alive => refusal::classify(conn, call, source).await,
        },
    }
}

/// Commits, or finds out why it cannot.
pub(super) async fn commit<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    if let Err(source) = debug::check_token(conn, &call.checks, NonZeroU32::MIN).await {
        let is_ended = Marker::of(&source) == Some(Marker::TransactionEnded);
        return Err(Box::pin(commit_refused(conn, call, source, is_ended)).await);
    }
    match conn.execute(xact::COMMIT).await {
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
    let lock = call.lock();
    let is_aborted = is_connection_lost(&source) || conn.execute(sql::probe::ALIVE).await.is_err();
    if is_aborted && conn.execute(sql::ROLLBACK).await.is_err() {
        conn.status().set_in_error();
        return Error::CommitUnknown { lock, source };
    }
    mark_transaction_closed(conn, None);
    if is_ended {
        return Error::TransactionEnded { lock };
    }
    if is_aborted {
        return Error::RolledBack { lock, source };
    }
    // An error aborts an open transaction, so none is open now. Either none was before, or a deferred trigger has failed, whose text can
    // be anything. The server's answer to a savepoint outside of a transaction, in the session's language, shows which.
    if may_be_outside_transaction(&source)
        && let Err(outside) = conn.execute(xact::SAVEPOINT).await
        && is_same_answer(&source, &outside)
    {
        return Error::TransactionEnded { lock };
    }
    if is_interrupted(&source) && conn.execute(sql::probe::LOGS_NO_COMMITS).await.is_err() {
        return Error::CommitUnknown { lock, source };
    }
    Error::Database(source)
}
