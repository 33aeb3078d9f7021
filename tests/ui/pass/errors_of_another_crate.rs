//! `err` for an error type that cannot have `From`, at every scope, under the strictest lints.
#![forbid(unsafe_code)]
#![deny(warnings)]
#![allow(dead_code, reason = "what is tested here is that it compiles")]

use advisory_runtime::{Error, LockKey, advisory_lease, advisory_lock};
use diesel::pg::PgConnection;
use diesel_async::pooled_connection::bb8::Pool;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use std::io;

#[derive(LockKey)]
#[lock_key("account:<id>")]
struct AccountLock {
    id: i64,
}

struct Repository {
    pool: Pool<AsyncPgConnection>,
}

fn refused(error: Error) -> io::Error {
    io::Error::other(error)
}

async fn insert(conn: &mut AsyncPgConnection) -> io::Result<usize> {
    diesel::sql_query("INSERT").execute(conn).await.map_err(io::Error::other)
}

#[advisory_lock(key = "room:<room>", err = |error| io::Error::other(error.to_string()))]
async fn by_a_closure(conn: &mut AsyncPgConnection, room: i64) -> io::Result<usize> {
    insert(conn).await
}

#[advisory_lock(key = "guest:<guest>", err = refused, wait = "5s", max_hold = "30s")]
async fn by_a_function(conn: &mut AsyncPgConnection, guest: String) -> Result<usize, io::Error> {
    drop(guest);
    insert(conn).await
}

#[advisory_lock(keys = ids.iter().map(|id| AccountLock { id: *id }), scope = "session", wait = "never", on_held = Ok(0), err = refused)]
async fn session(conn: &mut AsyncPgConnection, ids: &[i64]) -> io::Result<usize> {
    insert(conn).await
}

impl Repository {
    #[advisory_lease(key = "report:<month>", pool = self.pool, keep = "1h", wait = "never", on_held = Ok(0), on_done = Ok(1), err = |error| io::Error::other(format!("{month}: {error}")))]
    async fn lease(&self, month: u32) -> io::Result<usize> {
        Ok(7)
    }

    #[advisory_lock(key = "desk:<desk>", conn = self.pool.get().await.map_err(io::Error::other)?, queue = 8, err = refused)]
    async fn pooled(&self, desk: i64) -> io::Result<usize> {
        insert(&mut conn).await
    }
}

#[async_trait::async_trait]
trait Desks {
    async fn close(&self, desk: i64) -> io::Result<usize>;
}

#[async_trait::async_trait]
impl Desks for Repository {
    #[advisory_lock(key = "desks:<desk>", conn = self.pool.get().await.map_err(io::Error::other)?, err = |error| refused(error))]
    #[allow(clippy::redundant_closure, reason = "both forms are tested")]
    async fn close(&self, desk: i64) -> io::Result<usize> {
        insert(&mut conn).await
    }
}

#[advisory_lock(key = "row:<row>", err = |error| io::Error::other(error))]
fn blocking(conn: &mut PgConnection, row: i64) -> io::Result<usize> {
    diesel::RunQueryDsl::execute(diesel::sql_query("INSERT"), conn).map_err(io::Error::other)
}

#[advisory_lock(key = "cell:<cell>", err = refused, scope = "session", max_hold = "3s", wait = "never", on_held = Ok(1))]
fn blocking_session(conn: &mut PgConnection, cell: i64) -> io::Result<usize> {
    diesel::RunQueryDsl::execute(diesel::sql_query("INSERT"), conn).map_err(io::Error::other)
}

fn is_spawned(repository: &'static Repository) {
    fn spawn(_: impl Future<Output = io::Result<usize>> + Send) {}
    spawn(repository.lease(1));
    spawn(repository.pooled(1));
    spawn(repository.close(1));
}

fn main() {}
