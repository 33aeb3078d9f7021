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

/// A connection that runs typed queries.
pub(crate) trait Queries: Driver {
    /// Loads every row of the answer.
    fn load<Q, R, S>(&mut self, query: Q) -> impl Future<Output = QueryResult<Vec<R>>> + Send
    where
        Q: Query<SqlType: CompatibleType<R, Pg, SqlType = S>> + QueryFragment<Pg> + QueryId,
        Q: Send,
        R: FromSqlRow<S, Pg> + Send + 'static,
        S: 'static,
        Pg: QueryMetadata<Q::SqlType>;

    /// Executes a statement, and returns how many rows it found or changed.
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
