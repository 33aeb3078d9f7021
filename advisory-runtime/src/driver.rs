//! The messages to the server: a trait for diesel-async's connection, and for Diesel's blocking
//! one, whose futures are always ready. So everything above is written once.

#[cfg(feature = "diesel-async")]
mod async_pg;
#[cfg(feature = "postgres")]
mod blocking_pg;
#[cfg(feature = "diesel-async")]
pub mod cancel;
#[cfg(feature = "diesel-async")]
mod cancel_key;
mod close_on_drop;
#[cfg(feature = "postgres")]
mod park;
mod queries;
#[cfg(feature = "diesel-async")]
mod timer_thread;

#[cfg(feature = "diesel-async")]
pub(crate) use async_pg::until_ended;
pub(crate) use close_on_drop::CloseOnDrop;
#[cfg(feature = "postgres")]
pub(crate) use park::{block_on, wait_at_most};
pub(crate) use queries::Queries;
#[cfg(feature = "diesel-async")]
pub(crate) use queries::in_order;
#[cfg(feature = "diesel-async")]
pub(crate) use timer_thread::timeout;

use crate::sql::try_lock::TryLock;
use crate::sql::unlock::Unlock;
use diesel::QueryResult;
use diesel::connection::{Instrumentation, TransactionDepthChange, TransactionManagerStatus};
use std::num::NonZeroU32;
use std::time::Duration;

/// The operations of a connection that a lock needs.
#[doc(hidden)]
pub trait Driver: Send + Sized {
    /// Sends one message of several statements.
    fn execute(&mut self, message: &str) -> impl Future<Output = QueryResult<()>> + Send;

    /// Waits for the answers of the connection, for at most this long. A blocking connection waits
    /// for as long as libpq does.
    fn timeout<F: Future<Output: Send> + Send>(
        limit: Duration,
        answers: F,
    ) -> impl Future<Output = Option<F::Output>> + Send;

    fn query_text(
        &mut self,
        query: &str,
    ) -> impl Future<Output = QueryResult<Option<String>>> + Send;

    /// Sends a message and then a query, without waiting in between if the connection can. Returns
    /// the number of rows of the query; the outer error is the message's.
    fn execute_and_query(
        &mut self,
        message: &str,
        query: &str,
    ) -> impl Future<Output = QueryResult<QueryResult<usize>>> + Send;

    /// Like [`execute_and_query`](Self::execute_and_query), for a try.
    fn execute_and_try(
        &mut self,
        message: &str,
        query: TryLock,
    ) -> impl Future<Output = QueryResult<QueryResult<Option<String>>>> + Send {
        async move {
            self.execute(message).await?;
            Ok(self.try_lock(query).await)
        }
    }

    fn try_lock(
        &mut self,
        query: TryLock,
    ) -> impl Future<Output = QueryResult<Option<String>>> + Send;

    /// Releases one session-level lock. Returns how many it released.
    fn unlock(&mut self, query: Unlock) -> impl Future<Output = QueryResult<usize>> + Send;

    fn pause(time: Duration) -> impl Future<Output = ()> + Send;

    fn status(&mut self) -> &mut TransactionManagerStatus;

    fn instrumentation(&mut self) -> &mut dyn Instrumentation;

    fn set_instrumentation(&mut self, instrumentation: impl Instrumentation);

    /// Returns whether Diesel would make a pool discard the connection. An open transaction counts
    /// too, unless a test began it.
    fn is_broken(&mut self) -> bool;

    /// The process id that the connection received at its start, which is not the backend's if a
    /// pooler made it up; 0 if it received none. `None` for a blocking connection, which does not
    /// expose it.
    fn startup_process_id(&mut self) -> Option<u32>;

    /// The server's process that serves the connection; for the checks of debug builds. `None` if a
    /// pooler may be in front of it.
    fn server_process(&mut self) -> impl Future<Output = Option<u32>> + Send;

    /// How the connection was lost, if it was.
    fn lost(&mut self) -> impl Future<Output = Option<diesel::result::Error>> + Send;

    /// Tells Diesel that no `BEGIN`, `COMMIT` or savepoint of its own is on its way. diesel-async
    /// remembers one whose future was dropped, and its next one then panics in a debug build. The
    /// status stays as it is.
    fn forget_interruption(&mut self);

    /// Leaves a call that was dropped or panicked: an async connection is closed, a blocking one is
    /// rolled back to `outer`, the depth of the outer transaction, and runs `release`, the message
    /// that releases session-level locks. If `cancels`, a statement that still runs is cancelled.
    fn abandon(&mut self, outer: Option<NonZeroU32>, release: Option<&str>, cancels: bool);

    /// Makes the connection refuse every further statement, with no lock and no transaction left.
    /// An async connection is closed; if `cancels`, a statement that still runs is cancelled.
    fn close(&mut self, cancels: bool);

    /// Waits until the session of a closed connection has ended, for a second at most.
    fn wait_until_closed(&mut self) -> impl Future<Output = ()> + Send;
}

/// Returns whether a process can have the id that a connection received, as opposed to one that
/// only a pooler gives: Linux numbers processes up to 2^22, other systems lower, and 0 is none. A
/// pooler can give such an id too, which only the server knows, so no lock may depend on this.
pub(crate) fn can_be_of_a_process(id: u32) -> bool {
    (1..=1 << 22).contains(&id)
}

/// The depth of the open transaction; `Err` if the connection is broken.
pub(crate) fn depth<D: Driver>(conn: &mut D) -> QueryResult<Option<NonZeroU32>> {
    conn.status().transaction_depth()
}

/// Tells Diesel that the transaction (or savepoint) above `outer` is over, as the server has
/// answered, and with it every savepoint that a dropped body was setting or releasing.
pub(crate) fn mark_transaction_closed<D: Driver>(conn: &mut D, outer: Option<NonZeroU32>) {
    if outer.is_none() {
        *conn.status() = TransactionManagerStatus::default();
    }
    while let TransactionManagerStatus::Valid(valid) = conn.status()
        && valid.transaction_depth() > outer
    {
        if valid
            .change_transaction_depth(TransactionDepthChange::DecreaseDepth)
            .is_err()
        {
            conn.status().set_in_error();
        }
    }
    conn.forget_interruption();
}

pub(crate) fn mark_transaction_open<D: Driver>(conn: &mut D) -> QueryResult<()> {
    match conn.status() {
        TransactionManagerStatus::Valid(valid) => {
            valid.change_transaction_depth(TransactionDepthChange::IncreaseDepth)
        }
        TransactionManagerStatus::InError => Err(diesel::result::Error::BrokenTransactionManager),
    }
}
