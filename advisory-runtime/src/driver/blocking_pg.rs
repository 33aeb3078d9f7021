//! Diesel's blocking connection as a [`Driver`]: every future is ready when it is first polled.

use super::{Driver, Queries, mark_transaction_closed};
use crate::error::is_interrupted;
use crate::sql::{self, try_lock::TryLock, unlock::Unlock};
use diesel::connection::{
    AnsiTransactionManager, Connection, Instrumentation, SimpleConnection, TransactionManager,
    TransactionManagerStatus,
};
use diesel::pg::PgConnection;
use diesel::sql_types::{Nullable, Text};
use diesel::{QueryResult, RunQueryDsl};
use std::num::NonZeroU32;
use std::time::Duration;

impl Driver for PgConnection {
    async fn execute(&mut self, message: &str) -> QueryResult<()> {
        self.batch_execute(message)
    }

    /// libpq waits in the kernel, which `tcp_user_timeout` in the address of the database bounds.
    async fn timeout<F: Future<Output: Send> + Send>(_: Duration, answers: F) -> Option<F::Output> {
        Some(answers.await)
    }

    async fn query_text(&mut self, query: &str) -> QueryResult<Option<String>> {
        diesel::dsl::sql::<Nullable<Text>>(query).get_result(self)
    }

    async fn execute_and_query(
        &mut self,
        message: &str,
        query: &str,
    ) -> QueryResult<QueryResult<usize>> {
        self.batch_execute(message)?;
        Ok(diesel::sql_query(query).execute(self))
    }

    async fn try_lock(&mut self, query: TryLock) -> QueryResult<Option<String>> {
        self.query_text(&query.text()).await
    }

    async fn unlock(&mut self, query: Unlock) -> QueryResult<usize> {
        Queries::count(self, query).await
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "not a test: a call that polls waits for a time"
    )]
    async fn pause(time: Duration) {
        std::thread::sleep(time);
    }

    fn status(&mut self) -> &mut TransactionManagerStatus {
        AnsiTransactionManager::transaction_manager_status_mut(self)
    }

    fn instrumentation(&mut self) -> &mut dyn Instrumentation {
        Connection::instrumentation(self)
    }

    fn set_instrumentation(&mut self, instrumentation: impl Instrumentation) {
        Connection::set_instrumentation(self, instrumentation);
    }

    fn is_broken(&mut self) -> bool {
        AnsiTransactionManager::is_broken_transaction_manager(self)
    }

    /// libpq knows it (`PQbackendPID`), but Diesel does not give access to libpq's connection.
    fn startup_process_id(&mut self) -> Option<u32> {
        None
    }

    async fn server_process(&mut self) -> Option<u32> {
        let answer = self.query_text(sql::probe::PID).await.ok()??;
        answer.parse().ok()
    }

    /// Diesel checks the connection after each statement of the body.
    async fn lost(&mut self) -> Option<diesel::result::Error> {
        let lost = self.batch_execute(sql::probe::ALIVE).err();
        lost.filter(crate::error::is_connection_lost)
    }

    /// No statement of a blocking connection is ever interrupted.
    fn forget_interruption(&mut self) {}

    /// No statement runs while a panic unwinds through the call, so the connection is rolled back,
    /// the locks are released, and it stays usable.
    fn abandon(&mut self, outer: Option<NonZeroU32>, release: Option<&str>, _: bool) {
        let undone = match outer {
            // A test's transaction, which the session-level locks are not part of.
            Some(_) if release.is_some() => Ok(()),
            Some(outer) => self.batch_execute(&sql::rollback_to_savepoint(outer)),
            None => self.batch_execute(sql::ROLLBACK),
        };
        let released = release.map_or(Ok(()), |release| self.batch_execute(release));
        if undone.is_ok() && released.is_ok() && self.status().transaction_depth().is_ok() {
            mark_transaction_closed(self, outer);
        } else {
            self.close(false);
        }
    }

    async fn wait_until_closed(&mut self) {}

    fn close(&mut self, _: bool) {
        // A cancel request can hit this message too.
        for _ in 0..CLOSE_TRIES {
            // Always an error: the last statement fails on purpose.
            match self.batch_execute(sql::POISON) {
                Err(error) if is_interrupted(&error) => {}
                _ => break,
            }
        }
        // At last: Diesel takes an interrupted message, after which no transaction is open, for a
        // repair.
        self.status().set_in_error();
    }
}

/// How often to send the message that closes a session. Each cancel request interrupts one.
const CLOSE_TRIES: usize = 16;
