//! Shapes of `async fn` that the combinations of arguments and parameters do not have, under strict lints: nothing of the expansion is
//! the user's to allow.
#![forbid(unsafe_code)]
#![deny(warnings)]
#![warn(let_underscore_drop, unused_qualifications)]
#![allow(dead_code, reason = "what is tested here is that it compiles")]

use advisory_runtime::{Connection, Error, advisory_lock};
use diesel::QueryResult;
use diesel_async::pooled_connection::deadpool;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use std::time::Duration;

async fn insert<C: Connection>(conn: &mut C, room: i64) -> QueryResult<usize> {
    diesel::sql_query("INSERT")
        .bind::<diesel::sql_types::BigInt, _>(room)
        .execute(conn)
        .await
}

enum AppError {
    Pool,
    Diesel,
    Lock,
    Busy,
    Number,
}
impl From<deadpool::PoolError> for AppError {
    fn from(_: deadpool::PoolError) -> Self {
        Self::Pool
    }
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

#[advisory_lock(key = "room:<room>", name = "room")]
async fn plain(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<usize> {
    insert(conn, room).await
}

/// What the body moves, `on_held` may use.
#[advisory_lock(key = "room:<room>", name = "room", wait = patience, on_held = Err((AppError::Busy, name)).map_err(|(error, _)| error))]
async fn moves(
    conn: &mut AsyncPgConnection,
    room: i64,
    name: String,
    patience: Duration,
) -> Result<String, AppError> {
    insert(conn, room).await?;
    let _number: i64 = name.parse()?;
    if room == 7 {
        return Err(AppError::Busy);
    }
    Ok(name)
}

/// However long it waits at the server.
#[advisory_lock(key = "room:<room>", name = "room", scope = "session", wait = "10m")]
async fn long_wait(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<usize> {
    insert(conn, room).await
}

#[advisory_lock(keys = ["room:<rooms*>", "hall"], name = "rooms", allow_overlap("room", "each is a room"), wait = "5s", max_keys = 3)]
async fn slice_and_more(conn: &mut AsyncPgConnection, rooms: Vec<i64>) -> QueryResult<usize> {
    insert(conn, rooms[0]).await
}

struct Rooms {
    pool: deadpool::Pool<AsyncPgConnection>,
}

impl Rooms {
    #[advisory_lock(key = "job", name = "job", scope = "session", conn = self.pool.get().await?, poll = "1s", poll_max = "1s")]
    async fn polls_for_session(&self) -> anyhow::Result<()> {
        tokio::task::yield_now().await;
        Ok(())
    }

    #[advisory_lock(key = "job", name = "job", scope = "session", conn = self.pool.get().await?, queue = 1, wait = "never", on_held = Ok(()))]
    async fn scheduler(&self) -> anyhow::Result<()> {
        tokio::task::yield_now().await;
        Ok(())
    }
}

#[async_trait::async_trait]
trait Books {
    async fn boxed(&self, room: i64) -> Result<Box<dyn std::fmt::Debug + Send>, AppError>;
    async fn only_the_lock_uses_it(&self, room: i64, day: i64, busy: usize) -> Result<usize, AppError>;
}

#[async_trait::async_trait]
impl Books for Rooms {
    #[advisory_lock(key = "room:<room>", name = "room", conn = self.pool.get().await?, queue = 3, wait = "never", on_held = Ok(Box::new(room)))]
    async fn boxed(&self, room: i64) -> Result<Box<dyn std::fmt::Debug + Send>, AppError> {
        insert(&mut conn, room).await?;
        Ok(Box::new("a"))
    }

    #[advisory_lock(key = "only_used:<room>:<days.0>", with(days = (day, 1)), conn = self.pool.get().await?, wait = "never", on_held = Ok(busy))]
    async fn only_the_lock_uses_it(&self, room: i64, day: i64, busy: usize) -> Result<usize, AppError> {
        insert(&mut conn, 7).await?;
        Ok(0)
    }
}

fn pool() -> deadpool::Pool<AsyncPgConnection> {
    unimplemented!() // Only compiled, never called.
}

/// What the message for `#[tokio::main]` and `#[tokio::test]` above the attribute recommends.
#[advisory_lock(key = "main", pool = pool())]
#[tokio::main]
async fn above_tokio_main() -> QueryResult<usize> {
    insert(conn, 7).await
}

/// What the message for an `Option` recommends.
#[advisory_lock(key = "optional:<is_known>:<owner>", with(is_known = owner.is_some(), owner = owner.unwrap_or_default()))]
async fn optional(conn: &mut AsyncPgConnection, owner: Option<i64>) -> QueryResult<usize> {
    insert(conn, owner.map_or(0, |owner| owner)).await
}

#[advisory_lock(key = "room:<room>", name = "room")]
async fn guards_something_else(_conn: &mut AsyncPgConnection, room: i64) -> QueryResult<i64> {
    Ok(room)
}

#[advisory_lock(key = "room:<room>", name = "room")]
async fn logged(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<i64> {
    macro_rules! pass {
        ($conn:ident) => {
            insert($conn, 2).await?
        };
    }
    pass!(conn);
    Ok(room)
}

/// The pattern is its caller's, the parameters are the macro's own.
macro_rules! made {
    ($name:ident $key:literal $(, $doubled:tt)?) => {
        #[advisory_lock(key = $key $(, with(doubled = $doubled * room))?)]
        async fn $name(
            conn: &mut AsyncPgConnection,
            room: i64,
            days: &[i64],
        ) -> QueryResult<usize> {
            insert(conn, room).await.map(|rows| rows + days.len())
        }
    };
}
made!(made_of_one "made:<room>");
made!(made_of_some "made:<room>:<days*>");
made!(made_of_what_is_computed "doubled:<doubled: int>", 2);

fn spawned(mut conn: AsyncPgConnection, rooms: Rooms) {
    tokio::spawn(async move {
        drop(plain(&mut conn, 1).await);
        drop(moves(&mut conn, 1, String::new(), Duration::ZERO).await);
        drop(long_wait(&mut conn, 1).await);
        drop(slice_and_more(&mut conn, vec![1]).await);
        drop(logged(&mut conn, 1).await);
        drop(made_of_one(&mut conn, 1, &[]).await);
        drop(made_of_some(&mut conn, 1, &[2]).await);
        drop(made_of_what_is_computed(&mut conn, 1, &[]).await);
        drop(rooms.polls_for_session().await);
        drop(rooms.scheduler().await);
        drop(rooms.boxed(1).await);
    });
}

/// A parameter's name that is meant as text.
#[advisory_lock(key = "cache:refresh", allow_ambiguous = "one refresh at a time, whatever is refreshed")]
async fn word_as_text(conn: &mut AsyncPgConnection, refresh: &str) -> QueryResult<usize> {
    insert(conn, i64::from(refresh.is_empty())).await
}

/// A connection's type in other words than `&mut …`.
type Conn<'a> = &'a mut AsyncPgConnection;

#[advisory_lock(key = "room:<room>", name = "room")]
async fn aliased(conn: Conn<'_>, room: i64) -> QueryResult<usize> {
    insert(conn, room).await
}

macro_rules! typed {
    ($name:ident $conn:ident: $ty:ty, $room:ident: $room_ty:ty) => {
        #[advisory_lock(key = "room:<room>", name = "room")]
        async fn $name($conn: $ty, $room: $room_ty) -> QueryResult<usize> {
            insert($conn, $room).await
        }
    };
}
typed!(typed_reference conn: &mut AsyncPgConnection, room: i64);

struct Job<'a> {
    db: &'a mut AsyncPgConnection,
    room: i64,
}

#[advisory_lock(key = "room:<job.room: int>", name = "room", conn = job.db)]
async fn field(job: &mut Job<'_>) -> QueryResult<usize> {
    insert(job.db, job.room).await
}

impl Job<'_> {
    fn connection(&mut self) -> &mut AsyncPgConnection {
        self.db
    }

    #[advisory_lock(key = "room:<room>", name = "room", conn = self.connection(), poll = "50ms")]
    async fn method(&mut self, room: i64) -> QueryResult<usize> {
        insert(conn, room).await
    }
}

fn main() {}
