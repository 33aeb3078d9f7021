//! `pool = <expression>`: every kind of pool, with every other argument, in functions of every kind of error.
#![forbid(unsafe_code)]
#![deny(warnings)]
#![warn(let_underscore_drop, unused_qualifications)]
#![allow(dead_code, reason = "what is tested here is that it compiles")]

use advisory_runtime::{Connection, Error, LockKey, Pool, PoolError, advisory_lock, blocking};
use diesel::{PgConnection, QueryResult, r2d2};
use diesel_async::pooled_connection::{bb8, deadpool};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::sync::Arc;
use std::time::Duration;

type Bb8 = bb8::Pool<AsyncPgConnection>;
type Deadpool = deadpool::Pool<AsyncPgConnection>;
type R2d2 = r2d2::Pool<r2d2::ConnectionManager<PgConnection>>;

#[derive(Debug)]
enum AppError {
    Busy,
    Lock,
}
impl From<Error> for AppError {
    fn from(_: Error) -> Self {
        Self::Lock
    }
}
impl From<diesel::result::Error> for AppError {
    fn from(_: diesel::result::Error) -> Self {
        Self::Lock
    }
}

/// Has only a conversion from the lock's error.
#[derive(Debug)]
struct LockError(Error);
impl From<Error> for LockError {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

#[derive(LockKey)]
#[lock_key("account:<id>")]
struct AccountLock {
    id: i64,
}

/// A pool of one's own.
struct Primary(Deadpool);
impl Pool for Primary {
    type Connection<'p> = deadpool::Object<AsyncPgConnection>;

    async fn connection(&self) -> Result<Self::Connection<'_>, PoolError> {
        self.0.connection().await
    }
}

struct BlockingPrimary(R2d2);
impl blocking::Pool for BlockingPrimary {
    type Connection = r2d2::PooledConnection<r2d2::ConnectionManager<PgConnection>>;

    fn connection(&self) -> Result<Self::Connection, PoolError> {
        blocking::Pool::connection(&self.0)
    }
}

struct Repository {
    bb8: Bb8,
    deadpool: Deadpool,
    shared: Arc<Primary>,
    patience: Duration,
    few: u8,
}

struct Databases {
    pool: Bb8,
}

impl Repository {
    fn pool(&self) -> Deadpool {
        self.deadpool.clone()
    }

    #[advisory_lock(key = "room:<room>", name = "room", pool = self.bb8)]
    async fn with_diesels_error(&self, room: i64) -> QueryResult<usize> {
        diesel::sql_query("SELECT 1").execute(conn).await
    }

    #[advisory_lock(key = "room:<room>", name = "room", pool = self.deadpool)]
    async fn with_anyhow(&self, room: i64) -> anyhow::Result<()> {
        Ok(conn.batch_execute("SELECT 1").await?)
    }

    #[advisory_lock(key = "room:<room>", name = "room", pool = self.pool(), wait = "5s", on_held = Ok(0), handle = lock)]
    async fn from_a_value(&self, room: i64) -> QueryResult<usize> {
        lock.check(conn).await.map_err(diesel::result::Error::from)?;
        diesel::sql_query("SELECT 1").execute(conn).await
    }

    #[advisory_lock(key = "room:<room>", name = "room", pool = self.shared, queue = 64, wait = self.patience, max_hold = "5s", on_held = Err(AppError::Busy))]
    async fn own(&self, room: i64) -> Result<(), AppError> {
        Ok(conn.batch_execute("SELECT 1").await?)
    }

    #[advisory_lock(key = AccountLock { id: room }, pool = self.bb8, queue = 4, wait = "1h", poll = "10ms", handle = lock)]
    async fn declared(&self, room: i64) -> QueryResult<()> {
        let holding = lock.holding();
        touch(conn, &holding).await
    }

    #[advisory_lock(key = "few", permits = 3, pool = &self.deadpool, wait = "1h", poll = self.patience, max_hold = self.patience)]
    async fn permits(&self) -> QueryResult<()> {
        conn.batch_execute("SELECT 1").await
    }

    #[advisory_lock(key = "some", permits = self.patience.subsec_millis() + limit, pool = self.bb8, poll = "1s")]
    async fn permits_of_an_expression(&self, limit: u32) -> QueryResult<()> {
        conn.batch_execute("SELECT 1").await
    }

    #[advisory_lock(key = "job", name = "job", scope = "session", pool = self.bb8, poll = "1s", poll_max = "1s")]
    async fn without_a_use(&self) -> QueryResult<()> {
        Ok(())
    }

    #[advisory_lock(key = "level:<room>", pool = self.bb8, isolation = "serializable", nested = "refuse")]
    async fn stricter(&self, room: i64) -> QueryResult<usize> {
        diesel::sql_query("SELECT 1").execute(conn).await
    }

    #[advisory_lock(keys = ["room:<room>", "room:<other>"], name = "room", pool = self.deadpool, wait = "never", on_held = Ok(conn))]
    async fn outer_names<'a>(&mut self, room: i64, other: i64, conn: &'a str) -> QueryResult<&'a str> {
        conn.batch_execute("SELECT 1").await?;
        Ok("")
    }
}

async fn touch<C: Connection>(conn: &mut C, _: &advisory_runtime::Holding<'_, AccountLock>) -> QueryResult<()> {
    conn.batch_execute("SELECT 1").await
}

#[advisory_lock(key = "room:<room>", name = "room", pool = pool)]
async fn parameter(pool: &Bb8, room: i64) -> QueryResult<usize> {
    diesel::sql_query("SELECT 1").execute(conn).await
}

/// The pool moves on in the body.
#[advisory_lock(key = "room:<room>", name = "room", pool = pool)]
async fn by_value(pool: Deadpool, room: i64) -> QueryResult<Deadpool> {
    conn.batch_execute("SELECT 1").await?;
    Ok(pool)
}

#[advisory_lock(key = "room:<room>", name = "room", pool = databases.pool)]
async fn field(databases: Arc<Databases>, room: i64) -> QueryResult<usize> {
    diesel::sql_query("SELECT 1").execute(conn).await
}

#[advisory_lock(key = "room:<room>", name = "room", pool = pool, poll = "1s", scope = "session")]
async fn generic<P: Pool + ?Sized>(pool: &P, room: i64) -> QueryResult<()> {
    conn.batch_execute("SELECT 1").await
}

#[advisory_lock(key = "room:<room>", name = "room", pool = pool)]
async fn opaque(pool: Arc<impl Pool + Send>, room: i64) -> QueryResult<()> {
    conn.batch_execute("SELECT 1").await
}

#[async_trait::async_trait]
trait Rooms {
    async fn book(&self, room: i64) -> QueryResult<usize>;
    async fn poll(&self, pool: &Bb8, room: i64) -> QueryResult<usize>;
}

#[async_trait::async_trait]
impl Rooms for Repository {
    #[advisory_lock(key = "room:<room>", name = "room", pool = self.bb8)]
    async fn book(&self, room: i64) -> QueryResult<usize> {
        diesel::sql_query("SELECT 1").execute(conn).await
    }

    #[advisory_lock(key = "polled:<room>", permits = usize::from(self.few), pool = pool, poll = "1s")]
    async fn poll(&self, pool: &Bb8, room: i64) -> QueryResult<usize> {
        diesel::sql_query("SELECT 1").execute(conn).await
    }
}

macro_rules! function {
    ($name:ident, $($body:tt)*) => {
        #[advisory_lock(key = "made", name = "made", pool = pool)]
        async fn $name(pool: &Bb8) -> QueryResult<()> {
            $($body)*
        }
    };
    ($name:ident) => {
        #[advisory_lock(key = "made", name = "made", pool = pool)]
        async fn $name(pool: &Bb8) -> QueryResult<()> {
            conn.batch_execute("SELECT 1").await
        }
    };
}
function!(from_a_macro);
function!(body_from_elsewhere, conn.batch_execute("SELECT 1").await);

struct Blocking {
    pool: R2d2,
    own: Arc<BlockingPrimary>,
}

impl Blocking {
    #[advisory_lock(key = "room:<room>", name = "room", pool = self.pool)]
    fn with_diesels_error(&self, room: i64) -> QueryResult<usize> {
        diesel::RunQueryDsl::execute(diesel::sql_query("SELECT 1"), conn)
    }

    #[advisory_lock(key = "room:<room>", name = "room", pool = self.own, queue = 64, wait = "5s", max_hold = "5s", on_held = Err(AppError::Busy), handle = lock)]
    fn own(&self, room: i64) -> Result<usize, AppError> {
        drop(lock);
        Ok(diesel::RunQueryDsl::execute(diesel::sql_query("SELECT 1"), conn)?)
    }

    #[advisory_lock(key = "fewer", permits = 3, pool = self.pool.clone(), poll = "10ms", err = |error| error.to_string())]
    fn from_a_value(&self) -> Result<usize, String> {
        diesel::RunQueryDsl::execute(diesel::sql_query("SELECT 1"), conn).map_err(|error| error.to_string())
    }

    #[advisory_lock(key = "job", name = "job", scope = "session", pool = self.pool)]
    fn without_a_use(&self) -> Result<(), LockError> {
        Ok(())
    }
}

#[advisory_lock(key = "room:<room>", name = "room", pool = pool)]
fn blocking_generic<P: blocking::Pool + ?Sized>(pool: &P, room: i64) -> Result<(), LockError> {
    blocking::Connection::pg(conn);
    Ok(())
}

fn is_send<F: Future + Send>(future: F) {
    drop(future);
}

fn all_are_send(repository: &mut Repository, pool: &Bb8, shared: Arc<Primary>, databases: Arc<Databases>) {
    is_send(repository.with_diesels_error(1));
    is_send(repository.with_anyhow(1));
    is_send(repository.from_a_value(1));
    is_send(repository.own(1));
    is_send(repository.declared(1));
    is_send(repository.permits());
    is_send(repository.permits_of_an_expression(1));
    is_send(repository.without_a_use());
    is_send(repository.stricter(1));
    is_send(by_value(repository.pool(), 1));
    is_send(parameter(pool, 1));
    is_send(field(databases, 1));
    is_send(generic(&*shared, 1));
    is_send(opaque(shared, 1));
    is_send(from_a_macro(pool));
    is_send(repository.outer_names(1, 2, ""));
}

fn main() {}
