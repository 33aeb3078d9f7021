//! Shapes of plain `fn` that the combinations of arguments and parameters do not have, under strict lints: nothing of the expansion is
//! the user's to allow.
#![forbid(unsafe_code)]
#![deny(warnings)]
#![warn(let_underscore_drop, unused_qualifications)]
#![allow(dead_code, reason = "what is tested here is that it compiles")]

use advisory_runtime::{Error, advisory_lock, blocking::Connection};
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::{PgConnection, QueryResult, RunQueryDsl};
use std::time::Duration;

fn insert<C: Connection>(conn: &mut C, room: i64) -> QueryResult<usize> {
    diesel::sql_query("INSERT")
        .bind::<diesel::sql_types::BigInt, _>(room)
        .execute(conn)
}

enum AppError {
    Pool,
    Diesel,
    Lock,
    Busy,
    Number,
}
impl From<diesel::result::Error> for AppError {
    fn from(_: diesel::result::Error) -> Self {
        Self::Diesel
    }
}
impl From<Error> for AppError {
    fn from(_: Error) -> Self {
        Self::Lock
    }
}
impl From<std::num::ParseIntError> for AppError {
    fn from(_: std::num::ParseIntError) -> Self {
        Self::Number
    }
}

impl From<diesel::r2d2::PoolError> for AppError {
    fn from(_: diesel::r2d2::PoolError) -> Self {
        Self::Pool
    }
}

#[advisory_lock(key = "room:<room>", name = "room")]
fn plain(conn: &mut PgConnection, room: i64) -> QueryResult<usize> {
    insert(conn, room)
}

#[advisory_lock(key = "room:<room>", name = "room", wait = "never", on_held = Err(AppError::Busy).inspect(|_: &String| drop(name)), handle = lock, max_hold = "5s")]
fn moves(conn: &mut PgConnection, room: i64, name: String) -> Result<String, AppError> {
    insert(conn, room)?;
    insert(conn, room)?;
    if lock.waited() > Duration::ZERO {
        return Err(AppError::Busy);
    }
    let _: i64 = name.parse()?;
    Ok(name)
}

struct Rooms {
    pool: Pool<ConnectionManager<PgConnection>>,
    prefix: String,
}

impl Rooms {
    #[advisory_lock(key = "prefix:<self.prefix>:<room>", conn = self.pool.get()?, queue = 64, wait = "5s", on_held = Err(AppError::Busy))]
    fn pooled(&self, room: i64) -> Result<usize, AppError> {
        Ok(insert(conn, room)?)
    }

    #[advisory_lock(key = "polled", scope = "session", conn = self.pool.get()?, poll = "250ms", poll_max = "2s")]
    fn polled_for_session(&self) -> Result<usize, AppError> {
        Ok(self.prefix.len())
    }
}

/// A connection's type in other words than `&mut …`.
type Conn<'a> = &'a mut PgConnection;

#[advisory_lock(key = "room:<room>", name = "room")]
fn aliased(conn: Conn<'_>, room: i64) -> QueryResult<usize> {
    diesel::sql_query("INSERT").execute(conn)?;
    insert(conn, room)
}

#[advisory_lock(key = "room:<room>", name = "room")]
fn aliased_behind_a_reference(conn: &mut Conn<'_>, room: i64) -> QueryResult<usize> {
    diesel::sql_query("INSERT").execute(conn)?;
    insert(conn, room)
}

#[advisory_lock(key = "room:<room>", name = "room", wait = "never")]
fn aliased_and_mutable(mut conn: Conn<'_>, room: i64) -> QueryResult<usize> {
    insert(&mut *conn, room)?;
    conn = &mut *conn;
    insert(conn, room)
}

#[advisory_lock(key = "room:<room>", name = "room")]
fn owned(
    conn: diesel::r2d2::PooledConnection<ConnectionManager<PgConnection>>,
    room: i64,
) -> QueryResult<usize> {
    insert(conn, room)
}

#[advisory_lock(key = "room:<room>", name = "room")]
fn generic_by_value<C: Connection>(conn: C, room: i64) -> QueryResult<usize> {
    insert(conn, room)
}

macro_rules! typed {
    ($name:ident $conn:ident: $ty:ty, $room:ident: $room_ty:ty) => {
        #[advisory_lock(key = "room:<room>", name = "room")]
        fn $name($conn: $ty, $room: $room_ty) -> QueryResult<usize> {
            diesel::sql_query("INSERT").execute($conn)?;
            insert($conn, $room)
        }
    };
}
typed!(typed_reference conn: &mut PgConnection, room: i64);
typed!(typed_with_a_lifetime conn: &'static mut PgConnection, room: i64);

struct Request<'a> {
    db: &'a mut PgConnection,
    inner: Inner<'a>,
    room: i64,
}

struct Inner<'a>(Conn<'a>);

#[advisory_lock(key = "room:<request.room: int>", name = "room", conn = request.db)]
fn field(request: &mut Request<'_>) -> QueryResult<usize> {
    insert(request.db, request.room)
}

#[advisory_lock(key = "room:<request.room: int>", name = "room", conn = request.inner.0, scope = "session")]
fn field_by_value(request: Request<'_>) -> QueryResult<usize> {
    insert(request.inner.0, request.room)
}

#[advisory_lock(key = "room:<room>", name = "room", conn = std::convert::identity(&mut *request.db))]
fn expression(request: &mut Request<'_>, room: i64) -> QueryResult<usize> {
    diesel::sql_query("INSERT").execute(conn)?;
    insert(conn, room)
}

impl Request<'_> {
    #[advisory_lock(key = "room:<self.room: int>", name = "room", conn = self.db, wait = "5s", on_held = Ok(0))]
    fn own(&mut self) -> QueryResult<usize> {
        insert(self.db, self.room)
    }

    fn connection(&mut self) -> &mut PgConnection {
        self.db
    }

    #[advisory_lock(key = "room:<room>", name = "room", conn = self.connection(), poll = "50ms")]
    fn method(&mut self, room: i64) -> QueryResult<usize> {
        insert(conn, room)
    }
}

fn main() {}
