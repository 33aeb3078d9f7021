//! Ours: the attribute in each of its forms, around one cached query.

use crate::rivals::diesel_async::{connect, one};
use crate::rivals::diesel_blocking::one_blocking;
use crate::side::{Blocking, Open, Operation};
use advisory_runtime::advisory_lock;
use diesel::{Connection, PgConnection, QueryResult};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};

#[advisory_lock(key = "bench:<number>")]
pub(crate) async fn locked(conn: &mut AsyncPgConnection, number: i64) -> QueryResult<i32> {
    one(conn).await
}

/// A write without a table, so that its commit has to reach the disk.
#[advisory_lock(key = "bench-write:<number>")]
async fn locked_write(conn: &mut AsyncPgConnection, number: i64) -> QueryResult<usize> {
    let write = "SELECT pg_logical_emit_message(true, 'bench', '')";
    diesel::sql_query(write).execute(conn).await
}

#[advisory_lock(key = "bench-bounded:<number>", max_hold = "30s")]
async fn locked_bounded(conn: &mut AsyncPgConnection, number: i64) -> QueryResult<i32> {
    one(conn).await
}

#[advisory_lock(key = "bench-wait:<number>", wait = "5s")]
async fn locked_wait(conn: &mut AsyncPgConnection, number: i64) -> QueryResult<i32> {
    one(conn).await
}

#[advisory_lock(key = "bench-never:<number>", wait = "never")]
async fn locked_never(conn: &mut AsyncPgConnection, number: i64) -> QueryResult<i32> {
    one(conn).await
}

#[advisory_lock(key = "bench-poll:<number>", poll = "250ms")]
async fn locked_poll(conn: &mut AsyncPgConnection, number: i64) -> QueryResult<i32> {
    one(conn).await
}

#[advisory_lock(key = "bench-permits:<number>", permits = 3, poll = "250ms")]
async fn locked_permits(conn: &mut AsyncPgConnection, number: i64) -> QueryResult<i32> {
    one(conn).await
}

#[advisory_lock(keys = ["bench-first:<number>", "bench-second:<number>"])]
async fn locked_two(conn: &mut AsyncPgConnection, number: i64) -> QueryResult<i32> {
    one(conn).await
}

#[advisory_lock(key = "bench-repeatable:<number>", isolation = "repeatable read")]
async fn locked_repeatable(conn: &mut AsyncPgConnection, number: i64) -> QueryResult<i32> {
    one(conn).await
}

#[advisory_lock(key = "bench-session:<number>", scope = "session")]
async fn locked_session(conn: &mut AsyncPgConnection, number: i64) -> QueryResult<i32> {
    one(conn).await
}

#[advisory_lock(key = "bench-session-wait:<number>", scope = "session", wait = "5s")]
async fn locked_session_wait(conn: &mut AsyncPgConnection, number: i64) -> QueryResult<i32> {
    one(conn).await
}

#[advisory_lock(
    key = "bench-session-never:<number>",
    scope = "session",
    wait = "never"
)]
async fn locked_session_never(conn: &mut AsyncPgConnection, number: i64) -> QueryResult<i32> {
    one(conn).await
}

#[advisory_lock(key = "bench-blocking:<number>")]
fn locked_blocking(conn: &mut PgConnection, number: i64) -> QueryResult<i32> {
    one_blocking(conn)
}

#[advisory_lock(key = "bench-blocking-wait:<number>", wait = "5s")]
fn locked_blocking_wait(conn: &mut PgConnection, number: i64) -> QueryResult<i32> {
    one_blocking(conn)
}

#[advisory_lock(key = "bench-blocking-session:<number>", scope = "session")]
fn locked_blocking_session(conn: &mut PgConnection, number: i64) -> QueryResult<i32> {
    one_blocking(conn)
}

/// Inside a transaction that the caller opened.
async fn nested(conn: &mut AsyncPgConnection, number: i64) -> QueryResult<i32> {
    conn.transaction(async |conn| locked(conn, number).await)
        .await
}

/// Sides that call a locked function on a connection of their own.
macro_rules! sides {
    ($($(#[$doc:meta])* $side:ident awaits $function:ident;)*) => { $(
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
    ($($(#[$doc:meta])* $side:ident blocks $function:ident;)*) => { $(
        $(#[$doc])*
        pub(crate) struct $side {
            conn: PgConnection,
            number: i64,
        }

        impl Blocking for $side {
            fn open(url: &str, number: i64) -> Self {
                let conn = PgConnection::establish(url).expect("a connection");
                Self { conn, number }
            }

            fn operate(&mut self) {
                $function(&mut self.conn, self.number).expect("the lock");
            }
        }
    )* };
}

sides! {
    /// A transaction that holds the lock.
    Xact awaits locked;
    /// A transaction that writes.
    XactWrite awaits locked_write;
    /// A transaction with `max_hold`.
    XactBounded awaits locked_bounded;
    /// A transaction with `wait`.
    XactWait awaits locked_wait;
    /// A transaction with `wait = "never"`.
    XactNever awaits locked_never;
    /// A transaction that polls.
    XactPoll awaits locked_poll;
    /// A transaction with one of three permits.
    XactPermits awaits locked_permits;
    /// A transaction that holds two locks.
    XactTwo awaits locked_two;
    /// A transaction at REPEATABLE READ.
    XactRepeatable awaits locked_repeatable;
    /// A lock inside the caller's transaction.
    Nested awaits nested;
    /// A session-level lock.
    Session awaits locked_session;
    /// A session-level lock with `wait`.
    SessionWait awaits locked_session_wait;
    /// A session-level lock with `wait = "never"`.
    SessionNever awaits locked_session_never;
}

sides! {
    /// A transaction that holds the lock, on a blocking connection.
    XactBlocking blocks locked_blocking;
    /// The same with `wait`.
    XactBlockingWait blocks locked_blocking_wait;
    /// A session-level lock.
    SessionBlocking blocks locked_blocking_session;
}
