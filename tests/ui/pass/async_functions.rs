//! Every shape of `async fn`, with every argument, under the strictest lints: nothing of the expansion is the user's to allow.
#![forbid(unsafe_code)]
#![deny(warnings)]
#![warn(let_underscore_drop, unused_qualifications)]
#![allow(dead_code, reason = "what is tested here is that it compiles")]

use advisory_runtime::{Connection, Error, advisory_lock};
use diesel::QueryResult;
use diesel_async::pooled_connection::deadpool;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use std::rc::Rc;
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

#[advisory_lock(key = "room:<room>", name = "room", wait = "never", on_held = Ok(None))]
async fn tries(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<Option<usize>> {
    insert(conn, room).await.map(Some)
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

#[advisory_lock(key = "room:<room>", name = "room", wait = "forever", mode = "shared", isolation = "repeatable read", nested = "refuse", max_hold = "30s", handle = lock)]
async fn everything(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<Duration> {
    insert(conn, room).await?;
    Ok(lock.waited())
}

#[advisory_lock(key = "room:<room>", name = "room", isolation = "serializable", nested = "allow", mode = "exclusive", scope = "xact", max_hold = Duration::from_secs(3))]
async fn serializable(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<usize> {
    insert(conn, room).await
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "session", wait = "2m", on_held = Ok(0), max_hold = "1h", handle = lock)]
async fn session(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<usize> {
    assert_ne!(lock.key().to_string(), "");
    Ok(7)
}

/// However long it waits at the server.
#[advisory_lock(key = "room:<room>", name = "room", scope = "session", wait = "10m")]
async fn long_wait(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<usize> {
    insert(conn, room).await
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "session", wait = "forever", poll = interval)]
async fn polled(
    conn: &mut AsyncPgConnection,
    room: i64,
    interval: Duration,
) -> QueryResult<usize> {
    insert(conn, room).await
}

#[advisory_lock(key = "few:<room>", permits = 3, wait = "5s", poll = "50ms", on_held = Ok(0), handle = lock, max_hold = "1h")]
async fn few(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<usize> {
    assert_ne!(lock.key().to_string(), "");
    insert(conn, room).await
}

#[advisory_lock(keys = ["room:<from>", "room:<to>"], name = "room", scope = "session", mode = "shared")]
async fn several(conn: &mut AsyncPgConnection, from: i64, to: i64) -> QueryResult<usize> {
    insert(conn, from + to).await
}

#[advisory_lock(key = "room:<rooms*>", name = "room", wait = "5s", on_held = Ok(0))]
async fn slice(conn: &mut AsyncPgConnection, rooms: &[i64]) -> QueryResult<usize> {
    insert(conn, rooms[0]).await
}

#[advisory_lock(keys = ["room:<rooms*>", "hall"], name = "rooms", allow_overlap("room", "each is a room"), wait = "5s", max_keys = 3)]
async fn slice_and_more(conn: &mut AsyncPgConnection, rooms: Vec<i64>) -> QueryResult<usize> {
    insert(conn, rooms[0]).await
}

#[advisory_lock(key = 42)]
async fn number(conn: &mut AsyncPgConnection) -> QueryResult<usize> {
    insert(conn, 1).await
}

#[advisory_lock(key = "week:<week>", with(week = room * 7), wait = Duration::from_secs(u64::try_from(room).unwrap_or(0)))]
async fn computed(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<usize> {
    insert(conn, room).await
}

struct Wrapped<T>(T);

struct Rooms {
    pool: deadpool::Pool<AsyncPgConnection>,
    conn: AsyncPgConnection,
    prefix: String,
    patience: Duration,
}

impl Rooms {
    #[advisory_lock(key = "room:<room>", name = "room", conn = self.pool.get().await?, queue = 64, wait = self.patience, on_held = Err(AppError::Busy), handle = lock, max_hold = self.patience)]
    async fn pooled(&self, room: i64) -> Result<usize, AppError> {
        if lock.waited() > self.patience {
            return Ok(0);
        }
        Ok(insert(&mut conn, room).await?)
    }

    #[advisory_lock(key = "prefix:<self.prefix>", conn = self.conn, wait = self.patience, on_held = Ok(self.prefix.len()), max_hold = "5s")]
    async fn own(&mut self) -> QueryResult<usize> {
        let prefix = self.prefix.len();
        insert(&mut self.conn, 1).await.map(|rows| rows + prefix)
    }

    #[advisory_lock(key = "room:<room>", name = "room", conn = self.pool.get().await?, queue = 8, wait = "5s", poll = self.patience, on_held = Err(AppError::Busy), handle = lock, max_hold = "5s")]
    async fn polls(&self, room: i64) -> Result<usize, AppError> {
        if lock.waited() > self.patience {
            return Ok(0);
        }
        Ok(insert(&mut conn, room).await?)
    }

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

#[advisory_lock(key = "room:<room>", name = "room", wait = "never")]
async fn generic<C>(conn: &mut C, room: i64) -> QueryResult<usize>
where
    C: Connection,
{
    insert(conn, room).await
}

#[advisory_lock(key = "room:<room>", name = "room", max_hold = "5s", wait = "5s", on_held = Ok(guest))]
async fn borrowed<'a>(
    conn: &mut AsyncPgConnection,
    room: i64,
    guest: &'a str,
) -> QueryResult<&'a str> {
    insert(conn, room).await?;
    Ok(guest)
}

#[advisory_lock(key = "room:<room>", name = "room")]
async fn lent<'a>(
    conn: &mut AsyncPgConnection,
    room: i64,
    guests: &'a mut Vec<i64>,
) -> QueryResult<&'a mut [i64]> {
    guests.push(room);
    insert(conn, room).await?;
    Ok(&mut guests[..])
}

#[advisory_lock(key = "room:<room>", name = "room", max_hold = "5s")]
async fn recursive(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<i64> {
    if room == 0 {
        return Ok(0);
    }
    Ok(1 + Box::pin(recursive(conn, room - 1)).await?)
}

#[advisory_lock(key = "room:<room>", name = "room")]
async fn not_send(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<usize> {
    let local = Rc::new(room);
    insert(conn, *local).await.inspect(|_| drop(local))
}

#[advisory_lock(key = "room:<room>", name = "room", wait = "never", on_held = Ok(None))]
async fn opaque(
    conn: &mut impl Connection,
    room: i64,
    shift: impl Fn(i64) -> i64 + Send + Sync,
) -> QueryResult<Option<impl Iterator<Item = usize> + Send>> {
    Ok(Some(std::iter::once(insert(conn, shift(room)).await?)))
}

#[advisory_lock(key = "room:<a>:<b>", name = "pair")]
async fn patterns<const N: usize, T>(
    conn: &mut AsyncPgConnection,
    (a, b): (i64, i64),
    Wrapped([first, _]): Wrapped<[i64; 2]>,
    all: [i64; N],
    mut more: T,
    other: T,
) -> Result<usize, AppError>
where
    T: Into<i64> + Send + Clone + Sync,
    [i64; N]: Sized,
{
    more.clone_from(&other);
    Ok(insert(conn, a + b + first + more.into() + all[0]).await?)
}

#[async_trait::async_trait]
trait Books {
    async fn book(&mut self, room: i64) -> QueryResult<Option<usize>>;
    async fn boxed(&self, room: i64) -> Result<Box<dyn std::fmt::Debug + Send>, AppError>;
    async fn only_the_lock_uses_it(&self, room: i64, day: i64, busy: usize) -> Result<usize, AppError>;
}

#[async_trait::async_trait]
impl Books for Rooms {
    #[advisory_lock(key = "room:<room>", name = "room", conn = self.conn, wait = "never", on_held = Ok(None), max_hold = "5s", handle = lock)]
    async fn book(&mut self, room: i64) -> QueryResult<Option<usize>> {
        assert_ne!(lock.key().to_string(), "");
        insert(&mut self.conn, room).await.map(Some)
    }

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

fn spawned(mut conn: AsyncPgConnection, mut rooms: Rooms) {
    tokio::spawn(async move {
        drop(plain(&mut conn, 1).await);
        drop(tries(&mut conn, 1).await);
        drop(moves(&mut conn, 1, String::new(), Duration::ZERO).await);
        drop(everything(&mut conn, 1).await);
        drop(serializable(&mut conn, 1).await);
        drop(session(&mut conn, 1).await);
        drop(long_wait(&mut conn, 1).await);
        drop(polled(&mut conn, 1, Duration::ZERO).await);
        drop(few(&mut conn, 1).await);
        drop(several(&mut conn, 1, 2).await);
        drop(slice(&mut conn, &[1]).await);
        drop(slice_and_more(&mut conn, vec![1]).await);
        drop(number(&mut conn).await);
        drop(computed(&mut conn, 1).await);
        drop(generic(&mut conn, 1).await);
        drop(borrowed(&mut conn, 1, "").await);
        drop(lent(&mut conn, 1, &mut Vec::new()).await);
        drop(recursive(&mut conn, 1).await);
        drop(opaque(&mut conn, 1, |room| room).await);
        drop(patterns(&mut conn, (1, 2), Wrapped([1, 2]), [3], 1, 2).await);
        drop(logged(&mut conn, 1).await);
        drop(made_of_one(&mut conn, 1, &[]).await);
        drop(made_of_some(&mut conn, 1, &[2]).await);
        drop(made_of_what_is_computed(&mut conn, 1, &[]).await);
        drop(rooms.pooled(1).await);
        drop(rooms.own().await);
        drop(rooms.polls(1).await);
        drop(rooms.polls_for_session().await);
        drop(rooms.scheduler().await);
        drop(rooms.book(1).await);
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
