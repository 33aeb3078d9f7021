//! Transaction-level locks at REPEATABLE READ and SERIALIZABLE, outside of a transaction.
//!
//! The first statement of such a transaction takes its snapshot, before it waits. So the wait comes
//! before the transaction: the session takes the keys, and hands them over to the transaction that
//! follows, which ends like any other.

use super::acquire_sql::AcquireSql;
use super::message::{LockTimeout, Message, pooled_session_sql};
use super::refusal::{self, SessionState};
use super::session::{check_none, check_pooler};
use super::transaction::BEGIN;
use crate::driver::Driver;
use crate::error::{Marker, is_connection_lost};
use crate::lock::call::{Call, CallPhase};
use crate::request::Scope;
use crate::sql::{self, lock_function, unlock_function};
use crate::{Error, Isolation, Request, Wait};
use diesel::result::Error as DieselError;

/// Takes the keys and opens the transaction, in one message. A first transaction takes the keys
/// twice, for itself and for the session: if the wait is refused, the session holds none of them.
///
/// The message fails with [`Marker::PooledSession`], and takes nothing, if `process` is not the
/// backend.
fn strict_sql(request: &Request, process: Option<i32>) -> AcquireSql {
    let mut message = Message::new(request);
    message.statement(BEGIN);
    message.select_own_client_check(request);
    let pooled_session = pooled_session_sql(process);
    message.select_locks(
        request,
        Scope::Xact,
        LockTimeout::Leave,
        Some(&pooled_session),
    );
    let lock = lock_function(Scope::Session, request.mode);
    message.call_each(request, lock, None);
    message.statement("COMMIT");
    push_transaction(&mut message, request, None);
    message.into_text().into()
}

/// Opens the transaction after a try that took the keys for the session. It fails if `process` is
/// not the backend, which holds none of them: it would wait for the one that does.
fn open_message(call: &Call) -> String {
    let request = match call.permit {
        Some(permit) => &call.request.of_permit(permit),
        None => &call.request,
    };
    let mut message = Message::new(request);
    push_transaction(&mut message, request, call.process);
    message.into_text()
}

/// A role's defaults can make a SERIALIZABLE transaction wait for a safe snapshot: read only and
/// deferrable. The session holds the keys by then, and `lock_timeout` does not bound that wait.
fn push_transaction(message: &mut Message, request: &Request, process: Option<i32>) {
    message.statement(match request.isolation {
        Isolation::Serializable => "BEGIN ISOLATION LEVEL SERIALIZABLE NOT DEFERRABLE",
        Isolation::RepeatableRead => "BEGIN ISOLATION LEVEL REPEATABLE READ NOT DEFERRABLE",
        Isolation::ReadCommitted => BEGIN,
    });
    message.select_own_client_check(request);
    // The session holds the keys, so this does not wait.
    let lock = lock_function(Scope::Xact, request.mode);
    message.call_each(request, lock, process);
    message.call_each(request, unlock_function(request.mode), None);
    message.set_xact_timeouts(request);
}

pub(super) async fn begin<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    call.phase = CallPhase::Open;
    if call.request.budget() == Wait::Never {
        return begin_try(conn, call).await;
    }
    let acquire = strict_sql(&call.request, call.process);
    match acquire.send(conn, call).await {
        Ok(_) => Ok(()),
        Err(error) => Err(refused(conn, call, error.into_source()).await),
    }
}

/// The try is a message of its own, so that a miss is not an error. Its session-level lock must be
/// on the session that then opens the transaction.
async fn begin_try<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    // Fails if the setting `advisory.pooler` is `transaction`, if the call's process is not the
    // backend, and inside a transaction that Diesel does not know of and that has run a query.
    let check = check_pooler(call.process);
    let check = format!("SET TRANSACTION NOT DEFERRABLE;{check}");
    if let Err(source) = conn.execute(&check).await {
        return Err(refused(conn, call, source).await);
    }
    let source = match AcquireSql::session_try("").send(conn, call).await {
        Ok(false) => return Err(refusal::missed(call)),
        Ok(true) => match conn.execute(&open_message(call)).await {
            Ok(()) => return Ok(()),
            Err(source) => source,
        },
        Err(error) => error.into_source(),
    };
    if is_connection_lost(&source) {
        return Err(refused(conn, call, source).await);
    }
    // The session may hold the keys.
    call.close(conn).await;
    let lock = call.lock_name();
    Err(match Marker::of(&source) {
        Some(Marker::IsolationLevel) => Error::ForeignTransaction { lock },
        Some(Marker::PooledSession) => Error::PooledSession { lock },
        _ => refusal::database(call, source),
    })
}

/// The connection stays usable after a refused wait that is known to have left no lock. Any other
/// error may have come between the two halves of the message, while the session holds the keys, and
/// closes it.
async fn refused<D: Driver>(conn: &mut D, call: &mut Call, source: DieselError) -> Error {
    let lock = call.lock_name();
    let marker = Marker::of(&source);
    if let Some(Marker::NotDeferrable | Marker::IsolationLevel) = marker {
        call.phase = CallPhase::Idle;
        return Error::ForeignTransaction { lock };
    }
    match refusal::probe(conn, &source).await {
        SessionState::Lost => {
            call.phase = CallPhase::Idle;
            return Error::Database(source);
        }
        SessionState::HadFailed => {
            call.close(conn).await;
            return Error::ForeignTransaction { lock };
        }
        SessionState::Alive | SessionState::Aborted => {}
    }
    let is_undone = conn.execute(sql::ROLLBACK).await.is_ok();
    let error = match marker {
        Some(Marker::PooledSession) => Error::PooledSession { lock },
        _ => refusal::classify(conn, call, source).await,
    };
    let may_go_on = match error {
        // The check comes before the keys.
        Error::PooledSession { .. } => is_undone,
        Error::TimedOut { .. } | Error::Deadlock { .. } if is_undone => {
            let check = check_none(&call.request.keys, call.request.mode);
            conn.execute(&check).await.is_ok()
        }
        _ => false,
    };
    if may_go_on {
        call.phase = CallPhase::Idle;
    } else {
        call.close(conn).await;
    }
    error
}
