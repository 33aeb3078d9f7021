//! Transaction-level locks inside an open transaction: under a savepoint, or without a body in the
//! transaction itself.
//!
//! The savepoint has its own name. Diesel's savepoints remain after a rollback to them, so a
//! rollback to one of Diesel's names could silently undo the caller's work.

use super::acquire_sql::{AcquireSql, TryQuery};
use super::message::{LockTimeout, Message, XACT_TIMEOUTS};
use super::refusal::{self, SessionState};
use crate::driver::{Driver, can_be_of_a_process, mark_transaction_closed};
use crate::error::{
    Marker, is_connection_lost, is_interrupted, is_of_savepoint, is_outside_transaction,
    may_be_outside_transaction,
};
use crate::lock::call::{Call, CallPhase, Way};
use crate::request::Scope;
use crate::sql::own_locks::own_count;
use crate::sql::try_lock::TryLock;
use crate::sql::{self, put};
use crate::{Error, Request, Wait, debug};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use std::num::NonZeroU32;

/// The requirement on the outer transaction's snapshot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Snapshot {
    /// The transaction must be READ COMMITTED. At other levels the snapshot is older than the lock,
    /// and the body would not see what earlier holders wrote: the server refuses
    /// `SET TRANSACTION` there (25001), which does nothing under READ COMMITTED.
    Fresh,
    /// The level is another, but the transaction has held the keys since before its snapshot; or it
    /// is READ UNCOMMITTED, which PostgreSQL treats as READ COMMITTED.
    HeldBefore,
}

/// Sets the savepoint and takes the keys, or asks for them. For a lock without a body, a message
/// that waits also releases the savepoint, so that the outer transaction holds the keys.
fn savepoint_sql(outer: NonZeroU32, call: &Call, snapshot: Snapshot) -> AcquireSql {
    let request = &call.request;
    let mut message = open_message(outer, request, snapshot);
    let try_query = if request.budget() == Wait::Never {
        if request.max_hold.is_some() {
            message.select();
        }
        Some(TryQuery::Xact {
            one_key: TryLock::of(request).filter(|_| snapshot == Snapshot::Fresh),
            undo: sql::rollback_to_savepoint(outer).into(),
        })
    } else {
        message.select_locks(request, Scope::Xact, LockTimeout::Restore, None);
        None
    };
    if let Some(max_hold) = request.max_hold {
        message.continue_select();
        message.push_timeout(XACT_TIMEOUTS[0], max_hold, Scope::Xact);
    }
    if matches!(call.way, Way::Within(_)) && try_query.is_none() {
        message.statement(&release_savepoint_sql(outer, false));
    }
    AcquireSql {
        message: message.into_text().into(),
        try_query,
    }
}

fn open_message(outer: NonZeroU32, request: &Request, snapshot: Snapshot) -> Message {
    let mut message = Message::new(request);
    message.statement(&format!("SAVEPOINT {}", sql::savepoint(outer)));
    match snapshot {
        Snapshot::Fresh => message.statement("SET TRANSACTION ISOLATION LEVEL READ COMMITTED"),
        Snapshot::HeldBefore => {
            let (keys, held) = (request.keys.len(), own_count(&request.keys, request.mode));
            message.select();
            message.column(format_args!(
                "CAST(CASE WHEN pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read uncommitted' \
                 OR ({keys} OPERATOR(pg_catalog.=) {held}) THEN '1' ELSE '{}' END AS pg_catalog.int4)",
                Marker::StaleSnapshot.text()
            ));
        }
    }
    message.keep_rows(request);
    if request.max_hold.is_some() {
        message.select();
        for setting in BOUNDING {
            message.column(format_args!(
                "pg_catalog.set_config('advisory.{setting}_{outer}',pg_catalog.current_setting('{setting}'),true)"
            ));
        }
        message.select_client_check(Scope::Xact);
    }
    message
}

/// The settings that `max_hold` changes, and [`release_savepoint_sql`] restores.
const BOUNDING: [&str; 2] = [XACT_TIMEOUTS[0], "client_connection_check_interval"];

/// Keeps what the body did; the keys stay locked until the end of the outer transaction. The
/// savepoint is released last, so that it can still be rolled back if a setting cannot be restored.
/// After `RESET ALL` in the body there is nothing to restore.
fn release_savepoint_sql(outer: NonZeroU32, is_bounded: bool) -> String {
    let mut sql = String::new();
    if is_bounded {
        for setting in BOUNDING {
            put!(
                sql,
                "SELECT CASE WHEN pg_catalog.current_setting('advisory.{setting}_{outer}') OPERATOR(pg_catalog.<>) '' \
                 THEN pg_catalog.set_config('{setting}',pg_catalog.current_setting('advisory.{setting}_{outer}'),true) END;"
            );
        }
    }
    put!(sql, "RELEASE SAVEPOINT {}", sql::savepoint(outer));
    sql
}

pub(super) async fn begin<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    outer: NonZeroU32,
) -> Result<(), Error> {
    match begin_under(conn, call, outer, Snapshot::Fresh).await {
        Err(Error::StaleSnapshot { .. }) => {
            Box::pin(begin_under(conn, call, outer, Snapshot::HeldBefore)).await
        }
        begun => begun,
    }
}

async fn begin_under<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    outer: NonZeroU32,
    snapshot: Snapshot,
) -> Result<(), Error> {
    match savepoint_sql(outer, call, snapshot).send(conn, call).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(refusal::missed(call)),
        Err(error) => Err(Box::pin(refused(conn, call, outer, error.into_source())).await),
    }
}

pub(super) async fn lock<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    outer: NonZeroU32,
) -> Result<(), Error> {
    begin(conn, call, outer).await?;
    if call.request.budget() == Wait::Never {
        let released = conn.execute(&release_savepoint_sql(outer, false)).await;
        released.map_err(Error::Database)?;
    }
    call.phase = CallPhase::Idle;
    Ok(())
}

/// Like [`lock`], for a request that does not wait. One key takes only a query, which has nothing
/// to undo after a miss.
///
/// Goes through [`lock`] if the query does not support the request, and if there is certainly a
/// pooler, which may not track prepared statements. Behind a pooler that is not recognized, an
/// error or the answer of another statement fails the transaction.
pub(super) async fn try_lock<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    outer: NonZeroU32,
) -> Result<(), Error> {
    let may_be_direct = conn.startup_process_id().is_none_or(can_be_of_a_process);
    if let Some(query) = TryLock::of(&call.request).filter(|_| may_be_direct)
        && debug::is_open(conn).await
    {
        call.phase = CallPhase::Open;
        let answer = conn.try_lock(query).await;
        call.record_time();
        match answer.and_then(|answer| query.is_taken(answer.as_deref())) {
            Ok(None) => {}
            Ok(Some(is_taken)) => {
                call.phase = CallPhase::Idle;
                return if is_taken {
                    Ok(())
                } else {
                    Err(call.not_available())
                };
            }
            Err(source) => return Err(Box::pin(try_failed(conn, call, source)).await),
        }
    }
    Box::pin(lock(conn, call, outer)).await
}

/// Classifies the error of a try, which has failed the transaction unless it had failed before.
async fn try_failed<D: Driver>(conn: &mut D, call: &mut Call, source: DieselError) -> Error {
    // A drop in the middle closes the connection, as in `refused`.
    call.phase = CallPhase::Finishing;
    let state = refusal::probe(conn, &source).await;
    if state == SessionState::Alive {
        // Diesel counts a transaction that the server does not have, or another statement has run
        // in it.
        conn.close(false);
    }
    call.phase = CallPhase::Idle;
    if state == SessionState::HadFailed {
        let lock = call.lock_name();
        return Error::InFailedTransaction { lock, source };
    }
    refusal::database(call, source)
}

/// Undoes the savepoint, so that the outer transaction goes on.
async fn refused<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    outer: NonZeroU32,
    source: DieselError,
) -> Error {
    // A drop in the middle closes the connection, so that nobody takes the open transaction for its
    // own.
    call.phase = CallPhase::Finishing;
    let error = roll_back_and_classify(conn, call, outer, source).await;
    call.phase = CallPhase::Idle;
    error
}

async fn roll_back_and_classify<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    outer: NonZeroU32,
    source: DieselError,
) -> Error {
    if is_connection_lost(&source) || send_rollback(conn, outer).await.is_err() {
        return match refusal::probe(conn, &source).await {
            // Diesel's own ROLLBACK ends it.
            SessionState::HadFailed => {
                let lock = call.lock_name();
                Error::InFailedTransaction { lock, source }
            }
            SessionState::Aborted => refusal::classify(conn, call, source).await,
            // There is no transaction, though Diesel counts one.
            SessionState::Alive => {
                conn.close(false);
                Error::Database(source)
            }
            SessionState::Lost => Error::Database(source),
        };
    }
    let lock = call.lock_name();
    match Marker::of(&source) {
        Some(Marker::NotAvailable) => call.not_available(),
        Some(Marker::StaleSnapshot | Marker::IsolationLevel) => Error::StaleSnapshot { lock },
        _ => refusal::classify(conn, call, source).await,
    }
}

/// Keeps what the body did. The keys stay locked until the end of the outer transaction.
pub(super) async fn release<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    outer: NonZeroU32,
) -> Result<(), Error> {
    let message = release_savepoint_sql(outer, call.request.max_hold.is_some());
    let depth = outer.saturating_add(1);
    if let Err(source) = debug::check_mark(conn, &call.checks, depth).await {
        let is_ended = Marker::of(&source) == Some(Marker::TransactionEnded);
        return Err(Box::pin(release_refused(conn, call, outer, source, is_ended)).await);
    }
    match conn.execute(&message).await {
        Ok(()) => {
            mark_transaction_closed(conn, Some(outer));
            call.checks.locks.hand_to_transaction(outer);
            Ok(())
        }
        Err(source) => Err(Box::pin(release_refused(conn, call, outer, source, false)).await),
    }
}

/// With `is_ended`, a check has found that the savepoint is not the one that the call set.
async fn release_refused<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    outer: NonZeroU32,
    source: DieselError,
    is_ended: bool,
) -> Error {
    let (lock, name) = (call.lock_name(), sql::savepoint(outer));
    let may_be_ended_by_body =
        is_ended || is_of_savepoint(&source, &name) || may_be_outside_transaction(&source);
    match send_rollback(conn, outer).await {
        Ok(()) => mark_transaction_closed(conn, Some(outer)),
        Err(undone) if is_connection_lost(&undone) => {
            conn.status().set_in_error();
            return Error::Database(source);
        }
        Err(undone) => {
            // The savepoint is gone, and so may be the transaction that Diesel counts.
            conn.close(false);
            if is_outside_transaction(&undone)
                || (may_be_ended_by_body && is_of_savepoint(&undone, &name))
            {
                return Error::TransactionEnded { lock };
            }
            if !is_of_savepoint(&undone, &name) {
                return Error::CommitUnknown { lock, source };
            }
            // The server was interrupted after it had released the savepoint. The transaction that
            // had it is closed.
        }
    }
    if is_ended {
        Error::TransactionEnded { lock }
    } else {
        Error::RolledBack { lock, source }
    }
}

/// Rolls back to the savepoint of the call, and tries again after a cancel request or a timeout,
/// which interrupts one message and says nothing of the savepoint.
async fn send_rollback<D: Driver>(conn: &mut D, outer: NonZeroU32) -> QueryResult<()> {
    let message = sql::rollback_to_savepoint(outer);
    for _ in 0..ROLLBACK_TRIES {
        match conn.execute(&message).await {
            Err(error) if is_interrupted(&error) && !is_outside_transaction(&error) => {}
            undone => return undone,
        }
    }
    conn.execute(&message).await
}

/// The maximum number of interrupted rollbacks.
const ROLLBACK_TRIES: usize = 16;
