//! Transaction-level locks at REPEATABLE READ and SERIALIZABLE.
//!
//! The snapshot of such a transaction is that of its first statement, taken before that statement waits. So the wait is outside:
//! the session takes the keys, and hands them over to the transaction that follows.

use super::columns::{
    LockTimeout, Scope, lock_function, select_client_check, select_each, select_locks,
    unlock_function,
};
use super::message::Message;
use super::session::select_pooler_check;
use super::xact::push_timeouts;
use crate::{Isolation, Request};

/// Takes the keys and opens the transaction, in one message. In the first transaction the keys are taken twice, for it and for the
/// session behind it: where the wait is refused, the session holds none of them.
pub(crate) fn begin(request: &Request) -> String {
    let mut message = Message::new(request);
    message.statement("BEGIN ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE");
    select_pooler_check(&mut message);
    if request.max_hold.is_some() {
        select_client_check(&mut message);
    }
    select_locks(&mut message, request, Scope::Xact, LockTimeout::Leave);
    let lock = lock_function(Scope::Session, request.mode);
    select_each(&mut message, request, lock);
    message.statement("COMMIT");
    push_transaction(&mut message, request);
    message.finish()
}

/// Opens the transaction behind a [`session::try_question`](super::session::try_question) that took the keys.
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
        select_client_check(message);
    }
    // The session holds them, so none waits.
    select_each(message, request, lock_function(Scope::Xact, request.mode));
    select_each(message, request, unlock_function(request.mode));
    if request.max_hold.is_some() {
        message.select();
        push_timeouts(message, request);
    }
}
