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
use diesel::result::Error as DieselError;
#[cfg(feature = "diesel-async")]
use diesel_async::{AsyncConnectionCore, AsyncPgConnection, SimpleAsyncConnection as _};
#[cfg(feature = "diesel-async")]
use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::Poll,
};

#[doc(hidden)]
pub trait Queries: Driver {
    fn load<Q, R, S>(&mut self, query: Q) -> impl Future<Output = QueryResult<Vec<R>>> + Send
    where
        Q: Query<SqlType: CompatibleType<R, Pg, SqlType = S>> + QueryFragment<Pg> + QueryId + Send,
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
impl Queries for AsyncPgConnection {
    async fn load<Q, R, S>(&mut self, query: Q) -> QueryResult<Vec<R>>
    where
        Q: Query<SqlType: CompatibleType<R, Pg, SqlType = S>> + QueryFragment<Pg> + QueryId + Send,
        R: FromSqlRow<S, Pg> + Send + 'static,
        S: 'static,
        Pg: QueryMetadata<Q::SqlType>,
    {
        load_on(self, query).await
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
        let [begin, end] = around.unwrap_or_default();
        let opened = pin!(execute_any(self, begin));
        let first = pin!(load_on(self, first));
        let second = pin!(load_on(self, second));
        let closed = pin!(execute_any(self, end));
        let last = pin!(in_order(second, closed));
        let rest = pin!(in_order(first, last));
        let (opened, (first, (second, closed))) = in_order(opened, rest).await;
        opened?;
        let answers = (first?, second?);
        closed?;
        Ok(answers)
    }

    async fn count<Q>(&mut self, query: Q) -> QueryResult<usize>
    where
        Q: QueryFragment<Pg> + QueryId + Send,
    {
        AsyncConnectionCore::execute_returning_count(self, query).await
    }
}

/// Loads rows like [`diesel_async::RunQueryDsl::load`], whose futures are compiled again for each
/// query and each type of row.
#[cfg(feature = "diesel-async")]
async fn load_on<Q, R, S>(mut conn: &AsyncPgConnection, query: Q) -> QueryResult<Vec<R>>
where
    Q: Query<SqlType: CompatibleType<R, Pg, SqlType = S>> + QueryFragment<Pg> + QueryId + Send,
    R: FromSqlRow<S, Pg> + Send + 'static,
    S: 'static,
    Pg: QueryMetadata<Q::SqlType>,
{
    let mut loaded = Vec::new();
    let rows = AsyncConnectionCore::load(&mut conn, query).await?;
    let read = &mut |row: &Row| {
        loaded.push(R::build_from_row(row).map_err(DieselError::DeserializationError)?);
        Ok(())
    };
    read_each(rows, read).await?;
    Ok(loaded)
}

#[cfg(feature = "diesel-async")]
type Row = <AsyncPgConnection as AsyncConnectionCore>::Row<'static, 'static>;
#[cfg(feature = "diesel-async")]
type Rows = <AsyncPgConnection as AsyncConnectionCore>::Stream<'static, 'static>;

#[cfg(feature = "diesel-async")]
async fn read_each(
    mut rows: Rows,
    read: &mut (dyn FnMut(&Row) -> QueryResult<()> + Send),
) -> QueryResult<()> {
    while let Some(row) = poll_fn(|context| rows.as_mut().poll_next(context)).await {
        read(&row?)?;
    }
    Ok(())
}

#[cfg(feature = "postgres")]
impl Queries for diesel::PgConnection {
    async fn load<Q, R, S>(&mut self, query: Q) -> QueryResult<Vec<R>>
    where
        Q: Query<SqlType: CompatibleType<R, Pg, SqlType = S>> + QueryFragment<Pg> + QueryId + Send,
        R: FromSqlRow<S, Pg> + Send + 'static,
        S: 'static,
        Pg: QueryMetadata<Q::SqlType>,
    {
        let rows = LoadConnection::<DefaultLoadingMode>::load(self, query)?;
        let rows =
            rows.map(|row| R::build_from_row(&row?).map_err(DieselError::DeserializationError));
        rows.collect()
    }

    async fn count<Q>(&mut self, query: Q) -> QueryResult<usize>
    where
        Q: QueryFragment<Pg> + QueryId + Send,
    {
        Connection::execute_returning_count(self, &query)
    }
}

/// Polls both futures until they are ready, always the first one first: what they send is sent in
/// this order.
#[cfg(feature = "diesel-async")]
pub(crate) async fn in_order<A: Future, B: Future>(
    mut first: Pin<&mut A>,
    mut second: Pin<&mut B>,
) -> (A::Output, B::Output) {
    let mut other = None;
    let one = poll_fn(|context| {
        let one = first.as_mut().poll(context);
        if other.is_none()
            && let Poll::Ready(output) = second.as_mut().poll(context)
        {
            other = Some(output);
        }
        one
    })
    .await;
    match other {
        Some(other) => (one, other),
        None => (one, second.await),
    }
}

/// Sends a message, if it is not empty.
#[cfg(feature = "diesel-async")]
pub(super) async fn execute_any(mut conn: &AsyncPgConnection, message: &str) -> QueryResult<()> {
    if message.is_empty() {
        return Ok(());
    }
    conn.batch_execute(message).await
}
