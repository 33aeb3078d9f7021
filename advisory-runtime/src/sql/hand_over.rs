//! Transaction-level locks at REPEATABLE READ and SERIALIZABLE.
//!
//! The snapshot of such a transaction is that of its first statement, taken before that statement waits. So the wait comes before
//! the transaction: the session takes the keys, and hands them over to the transaction that follows.

use super::message::{Lasts, LockTimeout, Message, Scope, lock_function, unlock_function};
use super::session::select_pooler_check;
use super::xact::BEGIN;
use super::{Acquisition, Question};
use crate::{Isolation, Request, Wait};

/// Takes the keys and opens the transaction, in one message. In the first transaction the keys are taken twice, for it and for the
/// session: if the wait is refused, the session holds none of them.
///
/// It fails with [`Marker::PooledSession`](crate::error::Marker::PooledSession), and takes nothing, if `process` is not the backend.
pub(crate) fn begin(request: &Request, process: Option<i32>) -> Acquisition {
    if request.budget() == Wait::Never {
        return Acquisition {
            message: "".into(),
            question: Some(Question {
                sql: Message::question(request, Scope::Session, process),
                undo: None,
            }),
        };
    }
    let mut message = Message::new(request);
    message.statement(BEGIN);
    select_pooler_check(&mut message, process);
    if request.max_hold.is_some() {
        message.select_client_check(Lasts::Transaction);
    }
    message.select_locks(request, Scope::Xact, LockTimeout::Leave, None);
    let lock = lock_function(Scope::Session, request.mode);
    message.select_each(request, lock, None);
    message.statement("COMMIT");
    push_transaction(&mut message, request, None);
    message.finish().into()
}

/// Precedes a try: fails as the setting `advisory.pooler` says, if `process` is not the backend, and inside a transaction that Diesel
/// does not know of and that has run a query.
pub(crate) fn check_try(process: Option<i32>) -> String {
    let mut message = Message::empty();
    message.statement("SET TRANSACTION NOT DEFERRABLE");
    select_pooler_check(&mut message, process);
    message.finish()
}

/// Opens the transaction after a try that took the keys for the session. It fails if `process` is not the backend, which holds none of
/// them: it would wait for the one that does.
pub(crate) fn open(request: &Request, process: Option<i32>) -> String {
    let mut message = Message::new(request);
    push_transaction(&mut message, request, process);
    message.finish()
}

/// A role's defaults can make a SERIALIZABLE transaction wait for a safe snapshot: read only and deferrable. The session holds the
/// keys by then, and `lock_timeout` does not bound that wait.
fn push_transaction(message: &mut Message, request: &Request, process: Option<i32>) {
    message.statement(match request.isolation {
        Isolation::Serializable => "BEGIN ISOLATION LEVEL SERIALIZABLE NOT DEFERRABLE",
        Isolation::RepeatableRead => "BEGIN ISOLATION LEVEL REPEATABLE READ NOT DEFERRABLE",
        Isolation::ReadCommitted => BEGIN,
    });
    if request.max_hold.is_some() {
        message.select_client_check(Lasts::Transaction);
    }
    // The session holds the keys, so this does not wait.
    let lock = lock_function(Scope::Xact, request.mode);
    message.select_each(request, lock, process);
    message.select_each(request, unlock_function(request.mode), None);
    if request.max_hold.is_some() {
        message.select();
        message.push_xact_timeouts(request);
    }
}
