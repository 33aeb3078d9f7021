//! The promises of both async and blocking Diesel: the tests of `suite` are compiled once for each
//! driver.
//!
//! `async_pg` and `blocking_pg` define the same names, which the tests take from `super::super`. The
//! names of the blocking driver are `async fn` too, and block when they are polled, so a test has
//! one body.
#![allow(
    clippy::duplicate_mod,
    reason = "each file is a module of both drivers"
)]

use std::pin::Pin;

type BoxFuture<'f, T> = Pin<Box<dyn Future<Output = T> + Send + 'f>>;

/// Locked functions that insert a booking, one for each kind of lock.
macro_rules! functions {
    ($insert:path, [$($asynchronous:tt)?], [$($await:tt)*]) => {
        pub(crate) mod functions {
            use super::*;
            functions!(@ plain, scope = "xact", $insert, [$($asynchronous)?], [$($await)*]);
            functions!(@ outermost, nested = "refuse", $insert, [$($asynchronous)?], [$($await)*]);
            functions!(@ committed, isolation = "read committed", $insert, [$($asynchronous)?], [$($await)*]);
            functions!(@ repeatable, isolation = "repeatable read", $insert, [$($asynchronous)?], [$($await)*]);
            functions!(@ strict, isolation = "serializable", $insert, [$($asynchronous)?], [$($await)*]);
            functions!(@ lasting, scope = "session", $insert, [$($asynchronous)?], [$($await)*]);
        }
    };
    (@ $name:ident, $kind:ident = $value:literal, $insert:path, [$($asynchronous:tt)?], [$($await:tt)*]) => {
        pub(crate) async fn $name(conn: &mut Conn, room: i64) -> QueryResult<usize> {
            #[advisory_lock(key = "room:<room>", name = "room", $kind = $value)]
            $($asynchronous)? fn $name(conn: &mut Conn, room: i64) -> QueryResult<usize> {
                $insert(conn, room, stringify!($name))$($await)*
            }
            $name(conn, room)$($await)*
        }
    };
}

pub(crate) mod async_pg;
pub(crate) mod blocking_pg;
