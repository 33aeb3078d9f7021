//! The future of a locked function is `Send` where its connection, its key or `err` uses what the body uses too: none of the values
//! here is `Sync`, so a body that borrowed one as shared would not be `Send`. `tests/ui/combinations` has every kind of parameter.
#![forbid(unsafe_code)]
#![deny(warnings)]
#![allow(dead_code, reason = "what is tested here is that it compiles")]
#![allow(unused_variables, reason = "no body here uses its connection")]

use advisory_runtime::{Connection, Error, LockKey, advisory_lease, advisory_lock};
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8;
use std::cell::Cell;

type Scale = Box<dyn Fn(i64) -> i64 + Send>;

#[derive(LockKey)]
#[lock_key("declared:<id>")]
struct Declared {
    id: i64,
}

struct Name(String);

#[derive(LockKey)]
#[lock_key("named:<name.0>")]
struct Named<'n> {
    name: &'n Name,
}

#[derive(Debug)]
enum AppError {
    Diesel,
    Lock(i64),
    Pool,
}
impl From<diesel::result::Error> for AppError {
    fn from(_: diesel::result::Error) -> Self {
        Self::Diesel
    }
}
impl From<Error> for AppError {
    fn from(_: Error) -> Self {
        Self::Lock(0)
    }
}
impl From<bb8::RunError> for AppError {
    fn from(_: bb8::RunError) -> Self {
        Self::Pool
    }
}

async fn work(number: i64) -> i64 {
    tokio::task::yield_now().await;
    number
}

fn is_send<F: Future + Send>(future: F) {
    drop(future);
}

struct Actor {
    conn: AsyncPgConnection,
    scale: Scale,
    last: Cell<i64>,
}

type Bb8 = bb8::Pool<AsyncPgConnection>;

impl Actor {
    #[advisory_lock(key = "send", name = "send")]
    async fn by_value(self, _conn: &mut AsyncPgConnection) -> Result<i64, AppError> {
        work(self.last.get()).await;
        let number = work(self.last.get()).await;
        Ok((self.scale)(number))
    }

    #[advisory_lock(key = "send", name = "send")]
    async fn boxed(self: Box<Self>, _conn: &mut AsyncPgConnection) -> Result<i64, AppError> {
        let text = format!("{}", (self.scale)(1));
        work(self.last.get()).await;
        Ok(work(i64::from(text.is_empty())).await)
    }

    #[advisory_lock(key = "send", name = "send")]
    async fn mutable(mut self, _conn: &mut AsyncPgConnection) -> Result<Self, AppError> {
        *self.last.get_mut() += 1;
        work(self.last.get()).await;
        Ok(self)
    }

    #[advisory_lock(key = "send", name = "send", max_hold = "5s")]
    async fn by_reference(&mut self, _conn: &mut AsyncPgConnection) -> Result<&i64, AppError> {
        work(self.last.get()).await;
        work(self.last.get()).await;
        Ok(self.last.get_mut())
    }

    #[advisory_lock(key = "send", name = "send", conn = self.conn)]
    async fn own_connection(&mut self) -> Result<i64, AppError> {
        work(self.last.get()).await;
        let number = work(self.last.get()).await;
        Ok((self.scale)(number))
    }

    #[advisory_lock(key = "send", name = "send", conn = self.conn)]
    async fn own_connection_by_value(self) -> Result<i64, AppError> {
        work(self.last.get()).await;
        let number = work(self.last.get()).await;
        Ok((self.scale)(number))
    }

    #[advisory_lock(key = "send", name = "send", scope = "session", pool = pool, queue = 3)]
    async fn of_a_pool(&mut self, pool: Bb8) -> Result<i64, AppError> {
        work(self.last.get()).await;
        let number = work(self.last.get()).await;
        Ok((self.scale)(number))
    }

    #[advisory_lock(key = "send", name = "send", conn = pool.get().await?, queue = 3)]
    async fn pooled(&mut self, pool: Bb8) -> Result<i64, AppError> {
        work(self.last.get()).await;
        drop(pool.clone());
        let number = work(self.last.get()).await;
        _ = conn;
        Ok((self.scale)(number))
    }
}

#[advisory_lock(key = "send", name = "send", conn = actor.conn)]
async fn connection_of_a_parameter(actor: Actor) -> Result<i64, AppError> {
    work(actor.last.get()).await;
    let number = work(actor.last.get()).await;
    Ok((actor.scale)(number))
}

#[advisory_lock(key = "send", name = "send", conn = actor.conn, max_hold = "5s")]
async fn connection_of_a_reference(actor: &mut Actor) -> Result<i64, AppError> {
    work(actor.last.get()).await;
    let number = work(actor.last.get()).await;
    Ok((actor.scale)(number))
}

#[advisory_lock(key = "send", name = "send", conn = std::mem::replace(&mut actor.conn, other))]
async fn connection_of_an_expression(
    actor: &mut Actor,
    other: AsyncPgConnection,
) -> Result<i64, AppError> {
    work(0).await;
    Ok(i64::from(size_of_val(conn) > 0))
}

/// The key, `with`, the wait, `on_held` and `err` use what the body uses, too.
#[advisory_lock(
    key = "values:<number>:<cell>",
    with(number = scale(1), cell = cell.get()),
    wait = std::time::Duration::from_secs(cell.get().unsigned_abs()),
    on_held = Ok(scale(cell.get())),
    err = |_| AppError::Lock(cell.get()),
    max_hold = "5s"
)]
async fn used_by_the_lock(
    _conn: &mut AsyncPgConnection,
    scale: Scale,
    cell: Cell<i64>,
) -> Result<i64, AppError> {
    work(scale(1)).await;
    Ok(work(cell.get()).await)
}

/// `err` needs one field, and the body moves another.
#[advisory_lock(key = "send", name = "send", err = |_| AppError::Lock(i64::from(both.1.is_empty())))]
async fn moved_in_part(
    _conn: &mut AsyncPgConnection,
    both: (Scale, String),
) -> Result<Scale, AppError> {
    work(0).await;
    Ok(both.0)
}

/// `err` calls one field, and the body moves another.
#[advisory_lock(key = "send", name = "send", err = |_| (both.1)())]
async fn called_in_part(
    _conn: &mut AsyncPgConnection,
    both: (Scale, fn() -> AppError),
) -> Result<Scale, AppError> {
    work(0).await;
    Ok(both.0)
}

/// Its connection need not be `Sync`.
#[advisory_lock(key = "send", name = "send")]
async fn generic<C: Connection>(conn: &mut C) -> Result<usize, AppError> {
    let size = size_of_val(conn);
    work(0).await;
    Ok(size + size_of_val(conn))
}

fn generic_is_send<C: Connection + Send>(conn: &mut C) {
    is_send(generic(conn));
}

/// What a witness borrows, the body can share.
#[advisory_lock(key = Named { name: &name }, handle = lock, wait = "never", on_held = Ok(0))]
async fn witness(
    _conn: &mut AsyncPgConnection,
    name: Name,
    cell: Cell<i64>,
) -> Result<i64, AppError> {
    needs(lock.holding()).await;
    work(cell.get()).await;
    Ok(i64::from(name.0.is_empty()))
}

#[advisory_lease(key = Declared { id: cell.get() }, pool = pool, handle = lease)]
async fn leased(pool: Bb8, cell: Cell<i64>) -> Result<i64, AppError> {
    drop(pool.clone());
    work(cell.get()).await;
    let _token = lease.token();
    Ok(0)
}

async fn needs(_: advisory_runtime::Holding<'_, Named<'_>>) {}

#[async_trait::async_trait]
trait Desk {
    async fn close(&mut self, desk: i64, scale: Scale, cell: Cell<i64>) -> Result<i64, AppError>;
}

#[async_trait::async_trait]
impl Desk for Actor {
    #[advisory_lock(key = "send", name = "send", conn = self.conn, max_hold = "5s")]
    async fn close(&mut self, desk: i64, scale: Scale, cell: Cell<i64>) -> Result<i64, AppError> {
        work(cell.get() + self.last.get()).await;
        let number = work(cell.get() + desk).await;
        Ok(scale(number))
    }
}

fn check(
    conn: &mut AsyncPgConnection,
    mut actor: impl FnMut() -> Actor,
    other: AsyncPgConnection,
    pool: impl Fn() -> Bb8,
    scale: impl Fn() -> Scale,
) {
    is_send(actor().by_value(conn));
    is_send(Box::new(actor()).boxed(conn));
    is_send(actor().mutable(conn));
    is_send(actor().by_reference(conn));
    is_send(actor().own_connection());
    is_send(actor().own_connection_by_value());
    is_send(actor().pooled(pool()));
    is_send(connection_of_a_parameter(actor()));
    is_send(connection_of_a_reference(&mut actor()));
    is_send(connection_of_an_expression(&mut actor(), other));
    is_send(used_by_the_lock(conn, scale(), Cell::new(1)));
    is_send(moved_in_part(conn, (scale(), String::new())));
    is_send(called_in_part(conn, (scale(), || AppError::Pool)));
    is_send(witness(conn, Name(String::new()), Cell::new(1)));
    is_send(leased(pool(), Cell::new(1)));
    is_send(actor().close(1, scale(), Cell::new(1)));
}

fn main() {}
