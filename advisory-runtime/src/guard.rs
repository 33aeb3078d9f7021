//! What becomes of a connection when a locked call ends in no orderly way: dropped while it waits, dropped in the body,
//! or unwound by a panic.
//!
//! Without this the backend goes on waiting, gets the lock, and sits idle in transaction; and the next `transaction()` on
//! the connection becomes a savepoint that is never committed.

use crate::error::LockName;
use crate::sql;
use diesel::connection::{TransactionDepthChange, TransactionManagerStatus};
use diesel_async::{
    AnsiTransactionManager, AsyncConnection, AsyncPgConnection, SimpleAsyncConnection,
    TransactionManager,
};
use std::num::NonZeroU32;
use std::pin::pin;
use std::task::{Context, Waker};
use tokio::runtime::Handle;

/// From what the guard borrows to the connection. A function's address and not a closure's own type, so that a thousand lock
/// sites are compiled as one.
pub(crate) type Place<O> = fn(&mut O) -> &mut AsyncPgConnection;

/// A lock being taken, held or released, together with the place that the connection stands in.
///
/// Dropping it abandons the connection: a statement still running is cancelled, the transaction is rolled back, the
/// session ends, and Diesel is told that the connection is broken, so that a pool discards it.
#[must_use = "dropping a held lock rolls its transaction back"]
pub struct Held<'o, O: ?Sized> {
    owner: &'o mut O,
    place: Place<O>,
    /// The depth of the transaction around this one, by Diesel's count.
    pub(crate) outer: Option<NonZeroU32>,
    pub(crate) token: u64,
    pub(crate) lock: LockName,
    /// From the first message to the server's last answer.
    pub(crate) unfinished: bool,
    runtime: Option<Handle>,
}

impl<'o, O: ?Sized> Held<'o, O> {
    pub(crate) fn new(owner: &'o mut O, place: Place<O>, lock: LockName) -> Self {
        let runtime = Handle::try_current().ok();
        Self {
            owner,
            place,
            outer: None,
            token: 0,
            lock,
            unfinished: false,
            runtime,
        }
    }

    /// The connection that holds the lock, or what it is part of.
    pub fn conn(&mut self) -> &mut O {
        self.owner
    }

    pub(crate) fn pg(&mut self) -> &mut AsyncPgConnection {
        (self.place)(self.owner)
    }

    /// Leaves the transaction behind: cancelled, rolled back, and the connection closed.
    ///
    /// What runs is cancelled by a request of its own connection, which can arrive late. A connection that went on could
    /// have its next, innocent query cancelled, or commit it where the caller believes to be in a transaction; so the session
    /// rolls back and ends itself, and Diesel is told.
    pub(crate) fn abandon(&mut self) -> Option<tokio::task::JoinHandle<bool>> {
        self.unfinished = false;
        let runtime = self.runtime.take();
        let conn = self.pg();
        // Twice, since the request can hit the first.
        enqueue(conn, sql::TERMINATE);
        enqueue(conn, sql::TERMINATE);
        status(conn).set_in_error();
        let cancel = conn.cancel_token();
        Some(
            runtime?.spawn(async move { cancel.cancel_query(tokio_postgres::NoTls).await.is_ok() }),
        )
    }
}

impl<O: ?Sized> Drop for Held<'_, O> {
    fn drop(&mut self) {
        if self.unfinished {
            drop(self.abandon());
        }
    }
}

impl<O: ?Sized> std::fmt::Debug for Held<'_, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held")
            .field("lock", &self.lock.text())
            .field("outer", &self.outer)
            .finish_non_exhaustive()
    }
}

/// Puts a message into the connection's queue without waiting: polled once, it is on its way, behind whatever is running.
fn enqueue(conn: &mut AsyncPgConnection, sql: &str) {
    let sent = pin!(conn.batch_execute(sql));
    drop(sent.poll(&mut Context::from_waker(Waker::noop())));
}

pub(crate) fn status(conn: &mut AsyncPgConnection) -> &mut TransactionManagerStatus {
    <AnsiTransactionManager as TransactionManager<AsyncPgConnection>>::transaction_manager_status_mut(conn)
}

/// Whether Diesel would have a pool discard the connection. Ask at depth 0: an open transaction counts too.
pub(crate) fn is_broken(conn: &mut AsyncPgConnection) -> bool {
    <AnsiTransactionManager as TransactionManager<AsyncPgConnection>>::is_broken_transaction_manager(
        conn,
    )
}

/// The depth of the open transaction, `Err` when the connection is broken.
pub(crate) fn depth(
    conn: &mut AsyncPgConnection,
) -> Result<Option<NonZeroU32>, diesel::result::Error> {
    status(conn).transaction_depth()
}

/// Tells Diesel that the transaction (or savepoint) above `outer` is over.
pub(crate) fn return_to(conn: &mut AsyncPgConnection, outer: Option<NonZeroU32>) {
    if outer.is_none() {
        *conn.transaction_state() = AnsiTransactionManager::default();
        return;
    }
    while let TransactionManagerStatus::Valid(valid) = status(conn)
        && valid.transaction_depth() > outer
    {
        if valid
            .change_transaction_depth(TransactionDepthChange::DecreaseDepth)
            .is_err()
        {
            status(conn).set_in_error();
        }
    }
}

/// Tells Diesel that a transaction (or savepoint) was opened.
pub(crate) fn enter(conn: &mut AsyncPgConnection) -> Result<(), diesel::result::Error> {
    match status(conn) {
        TransactionManagerStatus::Valid(valid) => {
            valid.change_transaction_depth(TransactionDepthChange::IncreaseDepth)
        }
        TransactionManagerStatus::InError => Err(diesel::result::Error::BrokenTransactionManager),
    }
}
