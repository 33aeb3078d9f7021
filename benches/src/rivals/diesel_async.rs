//! diesel-async by hand, as its users write it today: a transaction, and the lock as a query of its
//! own.

use crate::side::{Open, Operation};
use diesel::sql_types::{BigInt, Integer};
use diesel::{IntoSql, QueryResult};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};

pub(crate) struct ByHand {
    conn: AsyncPgConnection,
    key: i64,
}

impl Open for ByHand {
    async fn open(url: &str, key: i64) -> Self {
        let conn = connect(url).await;
        Self { conn, key }
    }
}

impl Operation for ByHand {
    async fn operate(&mut self) {
        let done = locked(&mut self.conn, self.key).await;
        done.expect("the lock");
    }
}

/// The same inside a transaction that the caller opened, so with a savepoint.
pub(crate) struct Nested(ByHand);

impl Open for Nested {
    async fn open(url: &str, key: i64) -> Self {
        Self(ByHand::open(url, key).await)
    }
}

impl Operation for Nested {
    async fn operate(&mut self) {
        let ByHand { conn, key } = &mut self.0;
        let done: QueryResult<i32> = conn
            .transaction(async |conn| locked(conn, *key).await)
            .await;
        done.expect("the lock");
    }
}

async fn locked(conn: &mut AsyncPgConnection, key: i64) -> QueryResult<i32> {
    conn.transaction(async |conn| {
        diesel::sql_query("SELECT pg_advisory_xact_lock($1)")
            .bind::<BigInt, _>(key)
            .execute(conn)
            .await?;
        one(conn).await
    })
    .await
}

/// The query under the lock, prepared once.
pub(crate) async fn one(conn: &mut AsyncPgConnection) -> QueryResult<i32> {
    diesel::select(1.into_sql::<Integer>())
        .get_result(conn)
        .await
}

pub(crate) async fn connect(url: &str) -> AsyncPgConnection {
    let conn = AsyncPgConnection::establish(url).await;
    conn.expect("a connection")
}
