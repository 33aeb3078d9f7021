//! The names of the shared tests on async Diesel, and those tests.

#[path = "suite.rs"]
mod suite;

use super::BoxFuture;
use advisory_runtime::{Error, LockInfo, Request, advisory_lock};
use advisory_tests::Database;
use diesel::QueryResult;
use diesel_async::pooled_connection::deadpool;
use diesel_async::{
    AnsiTransactionManager, AsyncConnection, SimpleAsyncConnection, TransactionManager,
};

pub(crate) use crate::calls::book;
pub(crate) use advisory_tests::bookings::{bookings, execute, in_transaction, insert, run};
pub(crate) use advisory_tests::pid_of;
pub(crate) use advisory_tests::settings::{setting, settings};

pub(crate) const IS_BLOCKING: bool = false;

pub(crate) type Conn = diesel_async::AsyncPgConnection;
pub(crate) type LockGuard<'c> = advisory_runtime::LockGuard<'c, Conn>;

pub(crate) async fn connect(db: &Database) -> Conn {
    db.connect().await
}

pub(crate) async fn establish(url: &str) -> Conn {
    Conn::establish(url).await.unwrap()
}

pub(crate) fn pool(db: &Database) -> deadpool::Pool<Conn> {
    db.deadpool(1)
}

pub(crate) async fn get(pool: &deadpool::Pool<Conn>) -> deadpool::Object<Conn> {
    pool.get().await.unwrap()
}

pub(crate) async fn batch(conn: &mut Conn, sql: &str) -> QueryResult<()> {
    conn.batch_execute(sql).await
}

pub(crate) async fn begin(
    conn: &mut Conn,
    request: impl Into<Request>,
) -> Result<LockGuard<'_>, Error> {
    advisory_runtime::xact::begin(conn, request).await
}

pub(crate) async fn acquire(
    conn: &mut Conn,
    request: impl Into<Request>,
) -> Result<LockGuard<'_>, Error> {
    advisory_runtime::session::acquire(conn, request).await
}

pub(crate) async fn lock(
    conn: &mut Conn,
    request: impl Into<Request>,
) -> Result<LockInfo<Conn>, Error> {
    advisory_runtime::xact::lock(conn, request).await
}

pub(crate) async fn try_lock(conn: &mut Conn, request: impl Into<Request>) -> Result<bool, Error> {
    advisory_runtime::xact::try_lock(conn, request).await
}

pub(crate) async fn end<T, E: From<Error>>(
    held: LockGuard<'_>,
    result: Result<T, E>,
) -> Result<T, E> {
    held.finish(result).await
}

/// The same, with an error that is made of Diesel's.
pub(crate) async fn end_diesel<T, E: From<diesel::result::Error>>(
    held: LockGuard<'_>,
    result: Result<T, E>,
) -> Result<T, E> {
    held.finish_diesel(result).await
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
pub(crate) async fn locked<T, E: From<Error>>(
    conn: &mut Conn,
    room: i64,
    body: impl AsyncFnOnce(&mut Conn) -> Result<T, E>,
) -> Result<T, E> {
    body(conn).await
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "session")]
pub(crate) async fn locked_in_session<T, E: From<Error>>(
    conn: &mut Conn,
    room: i64,
    body: impl AsyncFnOnce(&mut Conn) -> Result<T, E>,
) -> Result<T, E> {
    body(conn).await
}

pub(crate) async fn begin_transaction(conn: &mut Conn) -> QueryResult<()> {
    AnsiTransactionManager::begin_transaction(conn).await
}

pub(crate) async fn commit_transaction(conn: &mut Conn) -> QueryResult<()> {
    AnsiTransactionManager::commit_transaction(conn).await
}

pub(crate) async fn rollback_transaction(conn: &mut Conn) -> QueryResult<()> {
    AnsiTransactionManager::rollback_transaction(conn).await
}

pub(crate) async fn begin_test_transaction(conn: &mut Conn) -> QueryResult<()> {
    conn.begin_test_transaction().await
}

functions!(insert, [async], [.await]);

pub(crate) async fn test_transaction(
    conn: &mut Conn,
    steps: fn(&mut Conn) -> BoxFuture<'_, QueryResult<()>>,
) {
    conn.test_transaction(async |conn| steps(conn).await).await;
}

pub(crate) fn spawn<T: Send + 'static>(
    call: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    advisory_tests::futures::spawn(call)
}
