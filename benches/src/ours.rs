//! Ours: the attribute in each of its forms, around one cached query.

use crate::rivals::diesel_async::{connect, one};
use crate::rivals::diesel_blocking::one_blocking;
use crate::side::{Blocking, Open, Operation};
use advisory_runtime::advisory_lock;
use diesel::{Connection, PgConnection, QueryResult};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};

/// A side that calls a locked function on a connection of its own.
macro_rules! side {
    ($side:ident awaits $function:ident) => {
        pub(crate) struct $side(AsyncPgConnection, i64);

        impl Open for $side {
            async fn open(url: &str, number: i64) -> Self {
                Self(connect(url).await, number)
            }
        }

        impl Operation for $side {
            async fn operate(&mut self) {
                $function(&mut self.0, self.1).await.expect("the lock");
            }
        }
    };
    ($side:ident blocks $function:ident) => {
        pub(crate) struct $side(PgConnection, i64);

        impl Blocking for $side {
            fn open(url: &str, number: i64) -> Self {
                Self(PgConnection::establish(url).expect("a connection"), number)
            }

            fn operate(&mut self) {
                $function(&mut self.0, self.1).expect("the lock");
            }
        }
    };
}

/// Functions under locks with these arguments, and their sides.
macro_rules! locked {
    ($number:ident $($side:ident awaits $function:ident($($argument:tt)*);)*) => { $(
        #[advisory_lock($($argument)*)]
        pub(crate) async fn $function(
            conn: &mut AsyncPgConnection,
            $number: i64,
        ) -> QueryResult<i32> {
            one(conn).await
        }
        side!($side awaits $function);
    )* };
    ($number:ident $($side:ident blocks $function:ident($($argument:tt)*);)*) => { $(
        #[advisory_lock($($argument)*)]
        fn $function(conn: &mut PgConnection, $number: i64) -> QueryResult<i32> {
            one_blocking(conn)
        }
        side!($side blocks $function);
    )* };
}

locked! { number
    Xact awaits locked(key = "bench:<number>");
    XactBounded awaits locked_bounded(key = "bench-bounded:<number>", max_hold = "30s");
    XactWait awaits locked_wait(key = "bench-wait:<number>", wait = "5s");
    XactNever awaits locked_never(key = "bench-never:<number>", wait = "never");
    XactPoll awaits locked_poll(key = "bench-poll:<number>", poll = "250ms");
    XactPermits awaits locked_permits(key = "bench-permits:<number>", permits = 3, poll = "250ms");
    XactTwo awaits locked_two(keys = ["bench-first:<number>", "bench-second:<number>"]);
    XactRepeatable awaits locked_repeatable(
        key = "bench-repeatable:<number>",
        isolation = "repeatable read"
    );
    Session awaits locked_session(key = "bench-session:<number>", scope = "session");
    SessionWait awaits locked_session_wait(
        key = "bench-session-wait:<number>",
        scope = "session",
        wait = "5s"
    );
    SessionNever awaits locked_session_never(
        key = "bench-session-never:<number>",
        scope = "session",
        wait = "never"
    );
}

locked! { number
    XactBlocking blocks locked_blocking(key = "bench-blocking:<number>");
    XactBlockingWait blocks locked_blocking_wait(
        key = "bench-blocking-wait:<number>",
        wait = "5s"
    );
    SessionBlocking blocks locked_blocking_session(
        key = "bench-blocking-session:<number>",
        scope = "session"
    );
}

/// A write without a table, so that its commit has to reach the disk.
#[advisory_lock(key = "bench-write:<number>")]
async fn locked_write(conn: &mut AsyncPgConnection, number: i64) -> QueryResult<usize> {
    let write = "SELECT pg_logical_emit_message(true, 'bench', '')";
    diesel::sql_query(write).execute(conn).await
}
side!(XactWrite awaits locked_write);

/// Inside a transaction that the caller opened.
async fn nested(conn: &mut AsyncPgConnection, number: i64) -> QueryResult<i32> {
    conn.transaction(async |conn| locked(conn, number).await)
        .await
}
side!(Nested awaits nested);
