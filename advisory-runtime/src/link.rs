//! How messages reach the server, so that everything above is written once: awaited on diesel-async's connection, or answered
//! at once on Diesel's blocking one.

use crate::prepared::Session;
use diesel::QueryResult;
use diesel::connection::{TransactionDepthChange, TransactionManagerStatus};
use std::num::NonZeroU32;
use std::pin::Pin;

/// Whether a request was sent, once that is known.
pub(crate) type Sent = Pin<Box<dyn Future<Output = bool> + Send>>;

/// Whether what runs can be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Cancel {
    Possible,
    Impossible,
    /// Nothing runs.
    Needless,
}

/// A connection, as far as a lock needs it.
#[doc(hidden)]
pub trait Link: Send + Sized {
    /// Where cancel requests are sent from.
    type Runtime: Send;

    fn runtime() -> Self::Runtime;

    /// Which session of the server it is, where that can be told, and where it is known not to be a pooler's.
    fn session(&mut self) -> Option<Session>;

    /// Sends one message of several statements.
    fn execute(&mut self, message: &str) -> impl Future<Output = QueryResult<()>> + Send;

    /// Sends a message and reads a text.
    fn ask(&mut self, question: &str) -> impl Future<Output = QueryResult<Option<String>>> + Send;

    /// Sends a message and asks [`sql::STEP`](crate::sql::STEP) behind it, without waiting in between where that is possible.
    /// The error of the message, or what became of the question: behind a pooler it may be told no more than whether the answer
    /// is `all`.
    fn execute_and_ask(
        &mut self,
        message: &str,
        all: &str,
    ) -> impl Future<Output = QueryResult<QueryResult<Option<String>>>> + Send;

    fn status(&mut self) -> &mut TransactionManagerStatus;

    /// Whether Diesel would have a pool discard the connection; an open transaction counts too, unless a test began it.
    fn is_broken(&mut self) -> bool;

    /// How the connection was lost, where that is a reason for Diesel to call it broken.
    fn lost(&mut self) -> Option<diesel::result::Error> {
        None
    }

    /// Tells Diesel that no transaction is open.
    fn reset(&mut self);

    /// How [`cancel`](Self::cancel) would fare.
    fn can_cancel(&mut self, runtime: &Self::Runtime) -> Cancel;

    /// Waits for what a dropped call has left to run: a cancel request of the next one would hit that instead.
    fn settle(&mut self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Sends messages behind what runs, without waiting for an answer where that would take an `await`.
    fn enqueue(&mut self, message: &str);

    /// Asks the server to end what runs. The answer: whether the request was sent.
    fn cancel(&mut self, runtime: Self::Runtime) -> Pin<Box<dyn Future<Output = bool> + Send>>;
}

/// The depth of the open transaction, `Err` when the connection is broken.
pub(crate) fn depth<L: Link>(conn: &mut L) -> QueryResult<Option<NonZeroU32>> {
    conn.status().transaction_depth()
}

/// Tells Diesel that the transaction (or savepoint) above `outer` is over.
pub(crate) fn return_to<L: Link>(conn: &mut L, outer: Option<NonZeroU32>) {
    if outer.is_none() {
        return conn.reset();
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
}

/// Tells Diesel that a transaction (or savepoint) was opened.
pub(crate) fn enter<L: Link>(conn: &mut L) -> QueryResult<()> {
    match conn.status() {
        TransactionManagerStatus::Valid(valid) => {
            valid.change_transaction_depth(TransactionDepthChange::IncreaseDepth)
        }
        TransactionManagerStatus::InError => Err(diesel::result::Error::BrokenTransactionManager),
    }
}
