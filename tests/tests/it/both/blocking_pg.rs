//! The names of the shared tests on blocking Diesel, and those tests.

#[path = "suite.rs"]
mod suite;

use super::BoxFuture;
use crate::calls::book_blocking;
use advisory_runtime::{Error, LockInfo, Request, advisory_lock};
use advisory_tests::futures::spawn_blocking;
use advisory_tests::{Database, blocking};
use diesel::connection::{AnsiTransactionManager, SimpleConnection, TransactionManager};
use diesel::r2d2::{ConnectionManager, Pool, PooledConnection};
use diesel::{Connection, QueryResult};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, block_in_place};

pub(crate) const IS_BLOCKING: bool = true;

pub(crate) type Conn = diesel::PgConnection;
pub(crate) type LockGuard<'c> = advisory_runtime::blocking::LockGuard<'c, Conn>;

/// Runs the body of a blocking call, which may also read the state of the server through its
/// observer.
fn now<T>(body: impl Future<Output = T>) -> T {
    block_in_place(|| Handle::current().block_on(body))
}

pub(crate) async fn connect(db: &Database) -> Conn {
    db.establish()
}

pub(crate) async fn establish(url: &str) -> Conn {
    Conn::establish(url).unwrap()
}

pub(crate) fn pool(db: &Database) -> Pool<ConnectionManager<Conn>> {
    db.r2d2(1)
}

pub(crate) async fn get(
    pool: &Pool<ConnectionManager<Conn>>,
) -> PooledConnection<ConnectionManager<Conn>> {
    pool.get().unwrap()
}

pub(crate) async fn pid_of(conn: &mut Conn) -> i32 {
    blocking::pid_of(conn)
}

pub(crate) async fn execute(conn: &mut Conn, sql: &str) -> QueryResult<usize> {
    blocking::execute(conn, sql)
}

pub(crate) async fn run(conn: &mut Conn, sql: &str) {
    blocking::execute(conn, sql).unwrap();
}

pub(crate) async fn batch(conn: &mut Conn, sql: &str) -> QueryResult<()> {
    conn.batch_execute(sql)
}

pub(crate) async fn insert(conn: &mut Conn, room: i64, guest: &str) -> QueryResult<usize> {
    blocking::insert(conn, room, guest)
}

pub(crate) async fn bookings(conn: &mut Conn, room: i64) -> QueryResult<i64> {
    blocking::bookings(conn, room)
}

pub(crate) async fn book(conn: &mut Conn, room: i64, guest: &str) -> QueryResult<bool> {
    book_blocking(conn, room, guest)
}

pub(crate) async fn setting(conn: &mut Conn, name: &str) -> String {
    blocking::setting(conn, name)
}

pub(crate) async fn settings(conn: &mut Conn) -> String {
    blocking::settings(conn)
}

pub(crate) async fn begin(
    conn: &mut Conn,
    request: impl Into<Request>,
) -> Result<LockGuard<'_>, Error> {
    advisory_runtime::blocking::xact::begin(conn, request)
}

pub(crate) async fn acquire(
    conn: &mut Conn,
    request: impl Into<Request>,
) -> Result<LockGuard<'_>, Error> {
    advisory_runtime::blocking::session::acquire(conn, request)
}

pub(crate) async fn lock(
    conn: &mut Conn,
    request: impl Into<Request>,
) -> Result<LockInfo<Conn>, Error> {
    advisory_runtime::blocking::xact::lock(conn, request)
}

pub(crate) async fn try_lock(conn: &mut Conn, request: impl Into<Request>) -> Result<bool, Error> {
    advisory_runtime::blocking::xact::try_lock(conn, request)
}

pub(crate) async fn end<T, E: From<Error>>(
    held: LockGuard<'_>,
    result: Result<T, E>,
) -> Result<T, E> {
    held.finish(result)
}

/// The same, with an error that is made of Diesel's.
pub(crate) async fn end_diesel<T, E: From<diesel::result::Error>>(
    held: LockGuard<'_>,
    result: Result<T, E>,
) -> Result<T, E> {
    held.finish_diesel(result)
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
fn locked_now<T, E: From<Error>>(
    conn: &mut Conn,
    room: i64,
    body: impl AsyncFnOnce(&mut Conn) -> Result<T, E>,
) -> Result<T, E> {
    now(body(conn))
}

pub(crate) async fn locked<T, E: From<Error>>(
    conn: &mut Conn,
    room: i64,
    body: impl AsyncFnOnce(&mut Conn) -> Result<T, E>,
) -> Result<T, E> {
    locked_now(conn, room, body)
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "session")]
fn locked_in_session_now<T, E: From<Error>>(
    conn: &mut Conn,
    room: i64,
    body: impl AsyncFnOnce(&mut Conn) -> Result<T, E>,
) -> Result<T, E> {
    now(body(conn))
}

pub(crate) async fn locked_in_session<T, E: From<Error>>(
    conn: &mut Conn,
    room: i64,
    body: impl AsyncFnOnce(&mut Conn) -> Result<T, E>,
) -> Result<T, E> {
    locked_in_session_now(conn, room, body)
}

pub(crate) async fn in_transaction<R, E: From<diesel::result::Error>>(
    conn: &mut Conn,
    steps: impl AsyncFnOnce(&mut Conn) -> Result<R, E>,
) -> Result<R, E> {
    conn.transaction(|conn| now(steps(conn)))
}

pub(crate) async fn begin_transaction(conn: &mut Conn) -> QueryResult<()> {
    AnsiTransactionManager::begin_transaction(conn)
}

pub(crate) async fn commit_transaction(conn: &mut Conn) -> QueryResult<()> {
    AnsiTransactionManager::commit_transaction(conn)
}

pub(crate) async fn rollback_transaction(conn: &mut Conn) -> QueryResult<()> {
    AnsiTransactionManager::rollback_transaction(conn)
}

pub(crate) async fn begin_test_transaction(conn: &mut Conn) -> QueryResult<()> {
    conn.begin_test_transaction()
}

functions!(blocking::insert, [], []);

pub(crate) async fn test_transaction(
    conn: &mut Conn,
    steps: fn(&mut Conn) -> BoxFuture<'_, QueryResult<()>>,
) {
    conn.test_transaction(|conn| now(steps(conn)));
}

pub(crate) fn spawn<T: Send + 'static>(
    call: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    spawn_blocking(|| Handle::current().block_on(call))
}
