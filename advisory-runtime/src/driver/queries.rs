//! Diesel's typed queries on either kind of connection.

use super::Driver;
use diesel::QueryResult;
#[cfg(feature = "postgres")]
use diesel::connection::{Connection, DefaultLoadingMode, LoadConnection};
use diesel::deserialize::FromSqlRow;
use diesel::expression::QueryMetadata;
use diesel::pg::Pg;
use diesel::query_builder::{Query, QueryFragment, QueryId};
use diesel::query_dsl::CompatibleType;
#[cfg(feature = "diesel-async")]
use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll},
};

#[doc(hidden)]
pub trait Queries: Driver {
    fn load<Q, R, S>(&mut self, query: Q) -> impl Future<Output = QueryResult<Vec<R>>> + Send
    where
        Q: Query<SqlType: CompatibleType<R, Pg, SqlType = S>> + QueryFragment<Pg> + QueryId,
        Q: Send,
        R: FromSqlRow<S, Pg> + Send + 'static,
        S: 'static,
        Pg: QueryMetadata<Q::SqlType>;

    /// Loads the rows of two queries, which are sent without waiting in between if the connection
    /// can; `around` are the messages before and after them. A query that the connection has to
    /// prepare first can arrive after the messages that follow it. After an error, the transaction
    /// may be open.
    fn load_both<Q, W, A, B, S, U>(
        &mut self,
        around: Option<[&str; 2]>,
        first: Q,
        second: W,
    ) -> impl Future<Output = QueryResult<(Vec<A>, Vec<B>)>> + Send
    where
        Q: Query<SqlType: CompatibleType<A, Pg, SqlType = S>> + QueryFragment<Pg> + QueryId + Send,
        W: Query<SqlType: CompatibleType<B, Pg, SqlType = U>> + QueryFragment<Pg> + QueryId + Send,
        A: FromSqlRow<S, Pg> + Send + 'static,
        B: FromSqlRow<U, Pg> + Send + 'static,
        S: 'static,
        U: 'static,
        Pg: QueryMetadata<Q::SqlType> + QueryMetadata<W::SqlType>,
    {
        async move {
            let [begin, end] = around.unwrap_or_default();
            if around.is_some() {
                self.execute(begin).await?;
            }
            let answers = (self.load(first).await?, self.load(second).await?);
            if around.is_some() {
                self.execute(end).await?;
            }
            Ok(answers)
        }
    }

    fn count<Q>(&mut self, query: Q) -> impl Future<Output = QueryResult<usize>> + Send
    where
        Q: QueryFragment<Pg> + QueryId + Send;
}

#[cfg(feature = "diesel-async")]
impl Queries for diesel_async::AsyncPgConnection {
    async fn load<Q, R, S>(&mut self, query: Q) -> QueryResult<Vec<R>>
    where
        Q: Query<SqlType: CompatibleType<R, Pg, SqlType = S>> + QueryFragment<Pg> + QueryId,
        Q: Send,
        R: FromSqlRow<S, Pg> + Send + 'static,
        S: 'static,
        Pg: QueryMetadata<Q::SqlType>,
    {
        diesel_async::RunQueryDsl::load(query, self).await
    }

    async fn load_both<Q, W, A, B, S, U>(
        &mut self,
        around: Option<[&str; 2]>,
        first: Q,
        second: W,
    ) -> QueryResult<(Vec<A>, Vec<B>)>
    where
        Q: Query<SqlType: CompatibleType<A, Pg, SqlType = S>> + QueryFragment<Pg> + QueryId + Send,
        W: Query<SqlType: CompatibleType<B, Pg, SqlType = U>> + QueryFragment<Pg> + QueryId + Send,
        A: FromSqlRow<S, Pg> + Send + 'static,
        B: FromSqlRow<U, Pg> + Send + 'static,
        S: 'static,
        U: 'static,
        Pg: QueryMetadata<Q::SqlType> + QueryMetadata<W::SqlType>,
    {
        use diesel_async::{RunQueryDsl, SimpleAsyncConnection};
        let handles = (&mut &*self, &mut &*self, &mut &*self, &mut &*self);
        let [begin, end] = around.unwrap_or_default();
        let mut opened = pin!(handles.0.batch_execute(begin));
        let mut first = pin!(RunQueryDsl::load(first, handles.1));
        let mut second = pin!(RunQueryDsl::load(second, handles.2));
        let mut closed = pin!(handles.3.batch_execute(end));
        let mut begin_answer = around.is_none().then_some(Ok(()));
        let mut end_answer = around.is_none().then_some(Ok(()));
        let (mut first_answer, mut second_answer) = (None, None);
        // Polled in this order, so that they are sent in this order.
        poll_fn(|context| {
            let answers = [
                poll_once(&mut begin_answer, opened.as_mut(), context),
                poll_once(&mut first_answer, first.as_mut(), context),
                poll_once(&mut second_answer, second.as_mut(), context),
                poll_once(&mut end_answer, closed.as_mut(), context),
            ];
            if answers == [true; 4] {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        begin_answer.unwrap_or(Ok(()))?;
        let first = first_answer.unwrap_or(Ok(Vec::new()))?;
        let second = second_answer.unwrap_or(Ok(Vec::new()))?;
        end_answer.unwrap_or(Ok(()))?;
        Ok((first, second))
    }

    async fn count<Q>(&mut self, query: Q) -> QueryResult<usize>
    where
        Q: QueryFragment<Pg> + QueryId + Send,
    {
        diesel_async::AsyncConnectionCore::execute_returning_count(self, query).await
    }
}

#[cfg(feature = "postgres")]
impl Queries for diesel::PgConnection {
    async fn load<Q, R, S>(&mut self, query: Q) -> QueryResult<Vec<R>>
    where
        Q: Query<SqlType: CompatibleType<R, Pg, SqlType = S>> + QueryFragment<Pg> + QueryId,
        Q: Send,
        R: FromSqlRow<S, Pg> + Send + 'static,
        S: 'static,
        Pg: QueryMetadata<Q::SqlType>,
    {
        let rows = LoadConnection::<DefaultLoadingMode>::load(self, query)?;
        let rows = rows.map(|row| {
            R::build_from_row(&row?).map_err(diesel::result::Error::DeserializationError)
        });
        rows.collect()
    }

    async fn count<Q>(&mut self, query: Q) -> QueryResult<usize>
    where
        Q: QueryFragment<Pg> + QueryId + Send,
    {
        Connection::execute_returning_count(self, &query)
    }
}

/// Polls a future that has not answered yet, and tells whether it has now.
#[cfg(feature = "diesel-async")]
pub(super) fn poll_once<F: Future>(
    answer: &mut Option<F::Output>,
    future: Pin<&mut F>,
    context: &mut Context<'_>,
) -> bool {
    if answer.is_none()
        && let Poll::Ready(output) = future.poll(context)
    {
        *answer = Some(output);
    }
    answer.is_some()
}
