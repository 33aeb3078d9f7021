//! Transaction-level locks at REPEATABLE READ and SERIALIZABLE.
//!
//! The snapshot of such a transaction is that of its first statement, taken before that statement waits. So the wait comes before
//! the transaction: the session takes the keys, and hands them over to the transaction that follows.

use super::message::{LockTimeout, Message, Scope, lock_function, unlock_function};
use super::session::select_pooler_check;
use super::xact::BEGIN;
use super::{Acquisition, Question};
use crate::{Isolation, Request, Wait};

/// Takes the keys and opens the transaction, in one message. In the first transaction the keys are taken twice, for it and for the
/// session: if the wait is refused, the session holds none of them.
pub(crate) fn begin(request: &Request) -> Acquisition {
    if request.budget() == Wait::Never {
        return Acquisition {
            message: "".into(),
            question: Some(Question {
                sql: Message::question(request, Scope::Session),
                undo: None,
            }),
        };
    }
    let mut message = Message::new(request);
    message.statement(BEGIN);
    select_pooler_check(&mut message);
    if request.max_hold.is_some() {
        message.select_client_check();
    }
    message.select_locks(request, Scope::Xact, LockTimeout::Leave);
    let lock = lock_function(Scope::Session, request.mode);
    message.select_each(request, lock);
    message.statement("COMMIT");
    push_transaction(&mut message, request);
    message.finish().into()
}

/// Precedes a try: fails as the setting `advisory.pooler` says, and inside a transaction that Diesel does not know of and that has run
/// a query.
pub(crate) fn check_try() -> String {
    let mut message = Message::empty();
    message.statement("SET TRANSACTION NOT DEFERRABLE");
    select_pooler_check(&mut message);
    message.finish()
}

/// Opens the transaction after a try that took the keys for the session.
pub(crate) fn open(request: &Request) -> String {
    let mut message = Message::new(request);
    push_transaction(&mut message, request);
    message.finish()
}

fn push_transaction(message: &mut Message, request: &Request) {
    message.statement(match request.isolation {
        Isolation::Serializable => "BEGIN ISOLATION LEVEL SERIALIZABLE",
        Isolation::RepeatableRead => "BEGIN ISOLATION LEVEL REPEATABLE READ",
        Isolation::ReadCommitted => "BEGIN ISOLATION LEVEL READ COMMITTED",
    });
    if request.max_hold.is_some() {
        message.select_client_check();
    }
    // The session holds the keys, so this does not wait.
    message.select_each(request, lock_function(Scope::Xact, request.mode));
    message.select_each(request, unlock_function(request.mode));
    if request.max_hold.is_some() {
        message.select();
        message.push_xact_timeouts(request);
    }
}
