use advisory::{advisory_lease, advisory_lock, Connection, Holding, KeyPart, LockKey};
use diesel::{r2d2, PgConnection, QueryResult};
use diesel_async::pooled_connection::bb8;
use diesel_async::AsyncPgConnection;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// A table.
mod schema {
    diesel::table! {
        tenant (id) {
            id -> BigInt,
        }
    }
}
use schema::tenant;

/// A pool.
pub type Bb8 = bb8::Pool<AsyncPgConnection>;
/// A pool of blocking connections.
pub type R2d2 = r2d2::Pool<r2d2::ConnectionManager<PgConnection>>;
/// A name for a type.
pub type Count = Cell<i64>;
/// A name for a type of another one.
pub type Pair<T> = (T, T);
/// A name for a result.
pub type Fallible<T> = Result<T, AppError>;

/// A structure without names.
#[derive(Debug)]
pub struct Wrapped<T>(pub T);

/// A structure with names.
#[derive(Debug)]
pub struct Point {
    /// Not `Sync`.
    pub x: Cell<i64>,
    /// A number.
    pub y: i64,
}

/// Has a connection, and is not `Sync`.
#[allow(missing_debug_implementations)]
pub struct Owner<C = AsyncPgConnection> {
    /// The connection.
    pub conn: C,
    /// Not `Sync`.
    pub last: Cell<i64>,
}

/// Not `Sync`, but a number.
#[derive(Clone, Debug)]
pub struct Unshared(pub Cell<i64>);

impl From<Unshared> for i64 {
    fn from(unshared: Unshared) -> Self {
        unshared.0.get()
    }
}

/// Not `Sync`, but a text.
#[derive(Debug)]
pub struct Shown(pub Cell<i64>);

impl std::fmt::Display for Shown {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.get().fmt(formatter)
    }
}

/// Is `Sync`.
#[derive(Debug)]
pub struct Shared {
    /// A number.
    pub last: i64,
}

/// The error of every function.
#[derive(Debug)]
pub struct AppError;

macro_rules! errors {
    ($($error:ty),*) => {
        $(impl From<$error> for AppError {
            fn from(_: $error) -> Self {
                Self
            }
        })*
    };
}
errors!(diesel::result::Error, advisory::Error, advisory::lease::Error, bb8::RunError, r2d2::PoolError);

/// A declared lock.
#[derive(Debug, LockKey)]
#[lock_key("declared:<id>", crate = advisory)]
pub struct Declared {
    /// A number.
    pub id: i64,
}

/// A declared lock of another type's values.
#[derive(Debug, LockKey)]
#[lock_key("named:<name>:<number>", name = "named", component = "names", derivation = "md5", with(number = self.number.0), crate = advisory)]
pub struct Named<'n, const N: usize> {
    /// A text.
    pub name: &'n str,
    /// A newtype.
    pub number: Number,
    /// Not in the key.
    pub all: [i64; N],
}

/// A newtype.
#[derive(Clone, Copy, Debug, KeyPart)]
#[key_part(crate = advisory)]
pub struct Number(pub i64);

/// An enum.
#[derive(Clone, Copy, Debug, KeyPart)]
#[key_part(crate = advisory)]
pub enum Level {
    /// A variant.
    Low,
    /// A variant with its text.
    #[key_part("high")]
    High,
}

/// A key without a function.
#[must_use]
pub fn key(level: Level, number: Number) -> advisory::Key {
    advisory::lock_key!("computed:<level>:<number>", component = "keys", crate = advisory)
}

const fn fail(_: i64) -> AppError {
    AppError
}

const fn millis(number: i64) -> Duration {
    Duration::from_millis(number.unsigned_abs())
}

fn length(text: &str) -> i64 {
    count(text.len())
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(0)
}

const fn same(number: i64) -> i64 {
    number
}

const fn chosen<P>(pool: &P, _: i64) -> &P {
    pool
}

async fn work(number: i64) -> i64 {
    tokio::task::yield_now().await;
    number
}

async fn touch<C: Connection>(conn: &mut C) -> QueryResult<()> {
    diesel_async::SimpleAsyncConnection::batch_execute(conn, "SELECT 1").await
}

async fn needs(_: Holding<'_, Declared>) {
    work(1).await;
}

/// The same for plain functions.
mod plain {
    use super::{Declared, Holding, QueryResult};
    use advisory::blocking::Connection;

    pub(crate) const fn work(number: i64) -> i64 {
        number
    }

    pub(crate) fn touch<C: Connection>(conn: &mut C) -> QueryResult<()> {
        diesel::connection::SimpleConnection::batch_execute(conn, "SELECT 1")
    }

    pub(crate) const fn needs(_: Holding<'_, Declared>) {}
}

/// A value that is never there.
fn any<T>() -> T {
    loop {
        std::hint::spin_loop();
    }
}

fn is_send<T: Send>(value: T) {
    drop(value);
}

/// Both implementations fit a value that is `Send`, so that `is_not_send` of it does not compile.
trait NotSend<A> {}
impl<T> NotSend<()> for T {}
struct IsSend;
impl<T: Send> NotSend<IsSend> for T {}

fn is_not_send<A, T: NotSend<A>>(value: T) {
    drop(value);
}
