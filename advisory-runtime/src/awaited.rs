//! diesel-async's connection as a [`Link`], and the one request that travels beside it: to cancel what runs.

use crate::link::{Cancel, Link, Sent};
use crate::prepared::Session;
use crate::{error, sql};
use diesel::QueryResult;
use diesel::connection::TransactionManagerStatus;
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Nullable, Text};
use diesel_async::{
    AnsiTransactionManager, AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection,
    TransactionManager,
};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tokio::runtime::Handle;

impl Link for AsyncPgConnection {
    type Runtime = Option<Handle>;

    fn runtime() -> Option<Handle> {
        Handle::try_current().ok()
    }

    fn session(&mut self) -> Option<Session> {
        crate::cancel::session(&self.cancel_token())
    }

    async fn execute(&mut self, message: &str) -> QueryResult<()> {
        self.batch_execute(message).await
    }

    async fn ask(&mut self, question: &str) -> QueryResult<Option<String>> {
        diesel::dsl::sql::<Nullable<Text>>(question)
            .get_result(self)
            .await
    }

    async fn execute_and_ask(
        &mut self,
        message: &str,
        all: &str,
    ) -> QueryResult<QueryResult<Option<String>>> {
        if crate::cancel::is_pooled(&self.cancel_token()) {
            return Box::pin(execute_and_check(self, message, all)).await;
        }
        let (mut first, mut second) = (&*self, &*self);
        let mut sent = pin!(first.batch_execute(message));
        let mut answer = pin!(RunQueryDsl::get_result(Step, &mut second));
        let (mut done, mut step) = (None, None);
        // Polled in this order, so that they are sent in this order.
        poll_fn(|context| {
            if done.is_none()
                && let Poll::Ready(result) = sent.as_mut().poll(context)
            {
                done = Some(result);
            }
            if step.is_none()
                && let Poll::Ready(result) = answer.as_mut().poll(context)
            {
                step = Some(result);
            }
            if done.is_some() && step.is_some() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        done.unwrap_or(Ok(()))?;
        Ok(step.unwrap_or(Ok(None)))
    }

    fn status(&mut self) -> &mut TransactionManagerStatus {
        <AnsiTransactionManager as TransactionManager<Self>>::transaction_manager_status_mut(self)
    }

    fn is_broken(&mut self) -> bool {
        <AnsiTransactionManager as TransactionManager<Self>>::is_broken_transaction_manager(self)
    }

    fn reset(&mut self) {
        *self.transaction_state() = AnsiTransactionManager::default();
    }

    fn can_cancel(&mut self, runtime: &Option<Handle>) -> Cancel {
        if runtime.is_some() && crate::cancel::is_possible(&self.cancel_token()) {
            Cancel::Possible
        } else {
            Cancel::Impossible
        }
    }

    async fn settle(&mut self) {
        if !crate::cancel::is_any_left() {
            return;
        }
        let token = self.cancel_token();
        if crate::cancel::is_left(&token) && self.batch_execute(sql::PROBE).await.is_ok() {
            crate::cancel::forget_left(&token);
        }
    }

    /// Polled once, a message is on its way.
    fn enqueue(&mut self, message: &str) {
        let sent = pin!(self.batch_execute(message));
        drop(sent.poll(&mut Context::from_waker(Waker::noop())));
    }

    fn cancel(&mut self, runtime: Option<Handle>) -> Sent {
        crate::cancel::note_left(&self.cancel_token());
        let request = crate::cancel::request(self.cancel_token());
        let spawned = runtime.map(|runtime| runtime.spawn(request));
        Box::pin(async move {
            match spawned {
                Some(spawned) => matches!(spawned.await, Ok(true)),
                None => false,
            }
        })
    }
}

/// As one message, which a miss fails. A pooler that tracks no prepared statements may lend a backend that knows nothing of ours, or
/// another program's by its name.
async fn execute_and_check(
    conn: &mut AsyncPgConnection,
    message: &str,
    all: &str,
) -> QueryResult<QueryResult<Option<String>>> {
    let message = format!("{message};{}", sql::step_is(all));
    match conn.batch_execute(&message).await {
        Ok(()) => Ok(Ok(Some(all.to_owned()))),
        Err(error) if error::has_marker(&error, sql::SAID) => Ok(Ok(None)),
        Err(error) => Err(error),
    }
}

/// [`sql::STEP`] as a statement that is prepared once.
#[derive(QueryId)]
struct Step;

impl Query for Step {
    type SqlType = Nullable<Text>;
}

impl QueryFragment<Pg> for Step {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(sql::STEP);
        Ok(())
    }
}
