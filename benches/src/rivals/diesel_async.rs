//! diesel-async by hand: a transaction, and the lock as a query of its own. What its users write today.

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
        let key = self.key;
        let done: QueryResult<i32> = self
            .conn
            .transaction(async |conn| {
                diesel::sql_query("SELECT pg_advisory_xact_lock($1)")
                    .bind::<BigInt, _>(key)
                    .execute(conn)
                    .await?;
                one(conn).await
            })
            .await;
        done.expect("the lock");
    }
}

/// What is done under the lock; prepared once.
pub(crate) async fn one(conn: &mut AsyncPgConnection) -> QueryResult<i32> {
    diesel::select(1.into_sql::<Integer>())
        .get_result(conn)
        .await
}

pub(crate) async fn connect(url: &str) -> AsyncPgConnection {
    let conn = AsyncPgConnection::establish(url).await;
    conn.expect("a connection")
}
