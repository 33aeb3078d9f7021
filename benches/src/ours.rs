//! Ours: the attribute, around one cached query.

use crate::rivals::diesel_async::{connect, one};
use crate::side::{Blocking, Open, Operation};
use advisory_runtime::advisory_lock;
use diesel::sql_types::Integer;
use diesel::{Connection, IntoSql, PgConnection, QueryResult, RunQueryDsl};
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "bench:<number>")]
pub(crate) async fn locked(conn: &mut AsyncPgConnection, number: i64) -> QueryResult<i32> {
    one(conn).await
}

#[advisory_lock(key = "bench-bounded:<number>", max_hold = "30s")]
async fn locked_bounded(conn: &mut AsyncPgConnection, number: i64) -> QueryResult<i32> {
    one(conn).await
}

#[advisory_lock(key = "bench-session:<number>", scope = "session")]
async fn locked_session(conn: &mut AsyncPgConnection, number: i64) -> QueryResult<i32> {
    one(conn).await
}

#[advisory_lock(key = "bench-blocking:<number>")]
fn locked_blocking(conn: &mut PgConnection, number: i64) -> QueryResult<i32> {
    one_blocking(conn)
}

/// What blocking sides do under the lock.
pub(crate) fn one_blocking(conn: &mut PgConnection) -> QueryResult<i32> {
    diesel::select(1.into_sql::<Integer>()).get_result(conn)
}

/// Sides that call a locked function on a connection of their own.
macro_rules! sides {
    ($($(#[$doc:meta])* $side:ident calls $function:ident;)*) => { $(
        $(#[$doc])*
        pub(crate) struct $side {
            conn: AsyncPgConnection,
            number: i64,
        }

        impl Open for $side {
            async fn open(url: &str, number: i64) -> Self {
                let conn = connect(url).await;
                Self { conn, number }
            }
        }

        impl Operation for $side {
            async fn operate(&mut self) {
                $function(&mut self.conn, self.number).await.expect("the lock");
            }
        }
    )* };
}

sides! {
    /// A transaction that holds the lock.
    Xact calls locked;
    /// One that holds it for so long at most.
    XactBounded calls locked_bounded;
    /// A lock of the session.
    Session calls locked_session;
}

/// A transaction that holds the lock, on a connection that blocks.
pub(crate) struct XactBlocking {
    conn: PgConnection,
    number: i64,
}

impl Blocking for XactBlocking {
    fn open(url: &str, number: i64) -> Self {
        let conn = PgConnection::establish(url).expect("a connection");
        Self { conn, number }
    }

    fn operate(&mut self) {
        locked_blocking(&mut self.conn, self.number).expect("the lock");
    }
}
