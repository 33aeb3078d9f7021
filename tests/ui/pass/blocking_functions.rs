//! Every shape of plain `fn`, with every argument, under the strictest lints: nothing of the expansion is the user's to allow.
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

#[advisory_lock(
    key = "room:<room>",
    name = "room",
    mode = "shared",
    isolation = "serializable",
    nested = "refuse"
)]
fn generic<C: Connection>(conn: &mut C, room: i64) -> QueryResult<usize> {
    insert(conn, room)
}

#[advisory_lock(key = "room:<rooms*>", name = "room", scope = "session", wait = "5s", on_held = Ok(0))]
fn session(conn: &mut PgConnection, rooms: &[i64]) -> QueryResult<usize> {
    Ok(rooms.len())
}

#[advisory_lock(key = "room:<room>", name = "room")]
fn lent<'a>(
    conn: &mut PgConnection,
    room: i64,
    guests: &'a mut Vec<i64>,
) -> QueryResult<&'a mut [i64]> {
    guests.push(room);
    insert(conn, room)?;
    Ok(&mut guests[..])
}

#[advisory_lock(key = "room:<room>", name = "room", wait = "never", on_held = Ok(""))]
fn borrowed<'a>(conn: &mut PgConnection, room: i64, guest: &'a str) -> QueryResult<&'a str> {
    insert(conn, room)?;
    Ok(guest)
}

#[advisory_lock(key = "room:<room>", name = "room", wait = "never", on_held = Ok(None))]
fn opaque(
    conn: &mut impl Connection,
    room: i64,
    shift: impl Fn(i64) -> i64,
) -> QueryResult<Option<impl Iterator<Item = usize>>> {
    Ok(Some(std::iter::once(insert(conn, shift(room))?)))
}

#[advisory_lock(key = "room:<a>:<b>", name = "pair")]
fn patterns<const N: usize, T>(
    conn: &mut PgConnection,
    (a, b): (i64, i64),
    Wrapped([first, _]): Wrapped<[i64; 2]>,
    all: [i64; N],
    mut more: T,
    other: T,
) -> Result<Box<dyn std::fmt::Debug>, Box<dyn std::error::Error>>
where
    T: Into<i64> + Clone,
{
    more.clone_from(&other);
    Ok(Box::new(insert(
        conn,
        a + b + first + more.into() + all[0],
    )?))
}

#[advisory_lock(key = "room:<room>", name = "room")]
fn recursive(conn: &mut PgConnection, room: i64) -> QueryResult<i64> {
    if room == 0 {
        return Ok(0);
    }
    Ok(1 + recursive(conn, room - 1)?)
}

struct Wrapped<T>(T);

struct Rooms {
    pool: Pool<ConnectionManager<PgConnection>>,
    conn: PgConnection,
    prefix: String,
}

trait Books {
    fn book(&mut self, room: i64) -> QueryResult<Option<usize>>;
}

impl Books for Rooms {
    #[advisory_lock(key = "room:<room>", name = "room", conn = self.conn, wait = "never", on_held = Ok(None))]
    fn book(&mut self, room: i64) -> QueryResult<Option<usize>> {
        let prefix = self.prefix.len();
        insert(&mut self.conn, room).map(|rows| Some(rows + prefix))
    }
}

impl Rooms {
    #[advisory_lock(key = "prefix:<self.prefix>:<room>", conn = self.pool.get()?, queue = 64, wait = "5s", on_held = Err(AppError::Busy))]
    fn pooled(&self, room: i64) -> Result<usize, AppError> {
        Ok(insert(conn, room)?)
    }

    #[advisory_lock(key = "polled:<room>", conn = self.pool.get()?, queue = 64, wait = "5s", poll = "250ms", on_held = Err(AppError::Busy))]
    fn polled(&self, room: i64) -> Result<usize, AppError> {
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
