//! diesel-async's connection as a [`Driver`].

use super::queries::execute_any;
use super::{Driver, Queries as _, can_be_of_a_process, cancel, in_order, timeout};
use crate::error::is_connection_lost;
use crate::sql::{self, try_lock::TryLock, unlock::Unlock};
use diesel::QueryResult;
use diesel::connection::{Instrumentation, TransactionManagerStatus};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::sql_types::{Nullable, Text};
use diesel_async::{
    AnsiTransactionManager, AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection,
    TransactionManager,
};
use futures_util::Stream as _;
use std::future::{pending, poll_fn};
use std::num::NonZeroU32;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The time that a call waits for the end of its session. With a lost packet, the answer may never
/// come.
const CLOSING: Duration = Duration::from_secs(1);

impl Driver for AsyncPgConnection {
    async fn execute(&mut self, message: &str) -> QueryResult<()> {
        let executed = self.batch_execute(message).await;
        with_reason(self, executed)
    }

    async fn timeout<F: Future<Output: Send> + Send>(
        limit: Duration,
        answers: F,
    ) -> Option<F::Output> {
        timeout(limit, answers).await
    }

    async fn query_text(&mut self, query: &str) -> QueryResult<Option<String>> {
        let answer = diesel::dsl::sql::<Nullable<Text>>(query)
            .get_result(self)
            .await;
        with_reason(self, answer)
    }

    async fn execute_and_query(
        &mut self,
        message: &str,
        query: &str,
    ) -> QueryResult<QueryResult<usize>> {
        let mut conn = &*self;
        let answer = async { RunQueryDsl::execute(diesel::sql_query(query), &mut conn).await };
        let answers = send_both(self, message, answer).await;
        with_reason(self, answers)
    }

    async fn execute_and_try(
        &mut self,
        message: &str,
        query: TryLock,
    ) -> QueryResult<QueryResult<Option<String>>> {
        let mut conn = &*self;
        let answer = async { query.get_result(&mut conn).await };
        let answers = send_both(self, message, answer).await;
        with_reason(self, answers)
    }

    async fn try_lock(&mut self, query: TryLock) -> QueryResult<Option<String>> {
        let answer = query.get_result(self).await;
        with_reason(self, answer)
    }

    async fn unlock(&mut self, query: Unlock) -> QueryResult<usize> {
        let released = self.count(query).await;
        with_reason(self, released)
    }

    async fn pause(time: Duration) {
        timeout(time, pending::<()>()).await;
    }

    fn status(&mut self) -> &mut TransactionManagerStatus {
        <AnsiTransactionManager as TransactionManager<Self>>::transaction_manager_status_mut(self)
    }

    fn instrumentation(&mut self) -> &mut dyn Instrumentation {
        AsyncConnection::instrumentation(self)
    }

    fn set_instrumentation(&mut self, instrumentation: impl Instrumentation) {
        AsyncConnection::set_instrumentation(self, instrumentation);
    }

    fn is_broken(&mut self) -> bool {
        <AnsiTransactionManager as TransactionManager<Self>>::is_broken_transaction_manager(self)
    }

    fn startup_process_id(&mut self) -> Option<u32> {
        Some(cancel::startup_process_id(&self.cancel_token()).unwrap_or(0))
    }

    async fn server_process(&mut self) -> Option<u32> {
        cancel::startup_process_id(&self.cancel_token())
            .filter(|process| can_be_of_a_process(*process))
    }

    /// diesel-async does not check the connection after a statement.
    async fn lost(&mut self) -> Option<DieselError> {
        None
    }

    fn forget_interruption(&mut self) {
        // Without a transaction only an interruption makes a valid manager broken.
        let status = std::mem::take(self.status());
        if self.is_broken() {
            *self.transaction_state() = AnsiTransactionManager::default();
        }
        *self.status() = status;
    }

    fn abandon(&mut self, _: Option<NonZeroU32>, _: Option<&str>, cancels: bool) {
        self.close(cancels);
    }

    /// The session ends right after the statement that a cancel request hits, so a request cannot
    /// hit a statement of another caller.
    fn close(&mut self, cancels: bool) {
        // A cancel request can hit these messages too, and the server signals a process twice for
        // one request.
        for _ in 0..3 {
            let mut sent = pin!(self.batch_execute(sql::TERMINATE));
            // One poll sends the message.
            drop(sent.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        }
        self.status().set_in_error();
        if cancels {
            cancel::send(self.cancel_token());
        }
    }

    async fn wait_until_closed(&mut self) {
        drop(timeout(CLOSING, self.batch_execute(sql::probe::ALIVE)).await);
    }
}

/// Replaces the error of a connection that has ended by the server's reason, if the server gave
/// one, such as a timeout (25P03) or a shutdown (57P01). The server sends it while the connection
/// is idle, and the connection's task then leaves it in the stream of notifications, of which this
/// discards the rest.
fn with_reason<T>(conn: &mut AsyncPgConnection, answer: QueryResult<T>) -> QueryResult<T> {
    let Err(error) = &answer else {
        return answer;
    };
    if !is_connection_lost(error) {
        return answer;
    }
    let mut notifications = pin!(conn.notifications_stream());
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(next)) = notifications.as_mut().poll_next(&mut context) {
        if let Err(DieselError::DatabaseError(DatabaseErrorKind::Unknown, reason)) = next {
            let kind = DatabaseErrorKind::ClosedConnection;
            return Err(DieselError::DatabaseError(kind, reason));
        }
    }
    answer
}

/// Sends a message and then a query, and waits for both answers. The outer error is the message's.
/// Diesel's instrumentation sees a query when it is made, so neither is made before it is sent.
async fn send_both<T>(
    conn: &AsyncPgConnection,
    message: &str,
    query: impl Future<Output = QueryResult<T>>,
) -> QueryResult<QueryResult<T>> {
    let (executed, answer) = in_order(pin!(execute_any(conn, message)), pin!(query)).await;
    executed.map(|()| answer)
}

/// Waits until the connection's own task has ended, and with it the connection.
///
/// The stream of notifications ends with the task. A connection without a task has a stream whose
/// size hint is zero: there it asks the server.
pub(crate) async fn until_ended(conn: &mut AsyncPgConnection) {
    loop {
        let is_ended = {
            let mut notifications = pin!(conn.notifications_stream());
            if notifications.size_hint().1 == Some(0) {
                break;
            }
            let next = poll_fn(|context| notifications.as_mut().poll_next(context)).await;
            !matches!(next, Some(Ok(_)))
        };
        if is_ended {
            return;
        }
    }
    while !matches!(conn.batch_execute(sql::probe::ALIVE).await, Err(error) if is_connection_lost(&error))
    {
        timeout(ASKING, pending::<()>()).await;
    }
}

/// The interval of the questions on a connection without a task.
const ASKING: Duration = Duration::from_secs(1);
