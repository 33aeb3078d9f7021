//! Blocking Diesel by hand: a transaction, and the lock as a query of its own.

use crate::side::Blocking;
use diesel::IntoSql;
use diesel::sql_types::BigInt;
use diesel::sql_types::Integer;
use diesel::{Connection, PgConnection, QueryResult, RunQueryDsl};

pub(crate) struct ByHand {
    conn: PgConnection,
    key: i64,
}

impl Blocking for ByHand {
    fn open(url: &str, key: i64) -> Self {
        let conn = PgConnection::establish(url).expect("a connection");
        Self { conn, key }
    }

    fn operate(&mut self) {
        let key = self.key;
        let done: QueryResult<i32> = self.conn.transaction(|conn| {
            diesel::sql_query("SELECT pg_advisory_xact_lock($1)")
                .bind::<BigInt, _>(key)
                .execute(conn)?;
            one_blocking(conn)
        });
        done.expect("the lock");
    }
}

/// The body of blocking sides.
pub(crate) fn one_blocking(conn: &mut PgConnection) -> QueryResult<i32> {
    diesel::select(1.into_sql::<Integer>()).get_result(conn)
}
