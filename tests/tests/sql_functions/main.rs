//! The migration for other programs: its functions compute the numbers that the Rust side locks,
//! and the server's hashes equal ours.
//!
//! A binary of its own, because a key that is only an address can equal any other key of its crate.
#![allow(
    clippy::unwrap_used,
    reason = "a helper of a test that cannot go on fails the test"
)]

mod holds;
mod locks;
mod numbers;
mod safety;
mod up_and_down;

use advisory_runtime::LockKey;
use advisory_runtime::sql_functions::ADVISORY_KEYS_UP;
use advisory_tests::Database;
use diesel::QueryResult;
use diesel::deserialize::FromSqlRow;
use diesel::dsl::sql;
use diesel::pg::Pg;
use diesel::sql_types::{Bool, HasSqlType, SingleValue};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

/// What `email_to_lock_id` and the two lock functions lock.
#[derive(LockKey)]
#[lock_key("<email|trim|lower|raw>", name = "email")]
pub(crate) struct EmailLock<'a> {
    pub(crate) email: &'a str,
}

/// A database with the migration's functions, and a connection.
pub(crate) async fn migrated() -> (Database, AsyncPgConnection) {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    migrate(&mut conn, ADVISORY_KEYS_UP).await.unwrap();
    (db, conn)
}

/// Runs one side of the migration as Diesel does: the whole file at once, in a transaction.
pub(crate) async fn migrate(conn: &mut AsyncPgConnection, side: &str) -> QueryResult<()> {
    conn.transaction(async |conn| conn.batch_execute(side).await)
        .await
}

/// The value of an expression.
pub(crate) async fn value<T, ST>(conn: &mut AsyncPgConnection, expression: &str) -> T
where
    ST: SingleValue + diesel::query_builder::QueryId + Send + 'static,
    Pg: HasSqlType<ST>,
    T: FromSqlRow<ST, Pg> + Send + 'static,
{
    sql::<ST>(&format!("SELECT {expression}"))
        .get_result(conn)
        .await
        .unwrap_or_else(|error| panic!("{expression}: {error}"))
}

pub(crate) async fn says(conn: &mut AsyncPgConnection, expression: &str) -> bool {
    value::<bool, Bool>(conn, expression).await
}
