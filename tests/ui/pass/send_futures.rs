//! The future of a locked function is `Send` whenever that of the same function without the attribute is, whatever its parameters are:
//! none of the values here is `Sync`, so a body that borrowed one as shared would not be `Send`.
#![forbid(unsafe_code)]
#![deny(warnings)]
#![allow(dead_code, reason = "what is tested here is that it compiles")]
#![allow(unused_variables, reason = "no body here uses its connection")]

use advisory_runtime::{Error, LockKey, advisory_lease, advisory_lock};
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::{bb8, deadpool};
use std::cell::Cell;
use std::fmt;

type Scale = Box<dyn Fn(i64) -> i64 + Send>;
type Alias = Cell<i64>;

#[derive(Clone, Copy)]
struct Unshared(i64, std::marker::PhantomData<Cell<()>>);

struct Wrapped<T>(T);

struct Shown(Cell<i64>);
impl fmt::Display for Shown {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.get().fmt(formatter)
    }
}

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
impl From<deadpool::PoolError> for AppError {
    fn from(_: deadpool::PoolError) -> Self {
        Self::Pool
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

/// Every kind of parameter under one attribute, and without any.
macro_rules! table {
    ($form:ident: $(#[$attribute:ident ($($arguments:tt)*)])? ($($conn:ident: $ty:ty)?)) => {
        mod $form {
            use super::*;

            $(#[$attribute($($arguments)*)])?
            async fn boxed($($conn: $ty,)? scale: Scale) -> Result<i64, AppError> {
                let first = work(scale(1)).await;
                Ok(work(scale(first)).await)
            }

            $(#[$attribute($($arguments)*)])?
            async fn cell($($conn: $ty,)? cell: Cell<i64>) -> Result<i64, AppError> {
                if cell.get() > 3 {
                    return Ok(cell.get());
                }
                let number: i64 = work(cell.get()).await;
                Ok(work(cell.get()).await + number)
            }

            $(#[$attribute($($arguments)*)])?
            async fn borrowed<'a>($($conn: $ty,)? both: &'a mut (Cell<i64>, String)) -> Result<&'a str, AppError> {
                work(both.0.get()).await;
                work(both.0.get()).await;
                Ok(&both.1)
            }

            $(#[$attribute($($arguments)*)])?
            async fn reborrowed<'a>($($conn: $ty,)? cell: &'a mut Cell<i64>) -> Result<&'a mut Cell<i64>, AppError> {
                work(cell.get()).await;
                Ok(cell)
            }

            $(#[$attribute($($arguments)*)])?
            async fn opaque($($conn: $ty,)? scale: impl Fn(i64) -> i64 + Send) -> Result<i64, AppError> {
                work(scale(1)).await;
                Ok(scale(2))
            }

            $(#[$attribute($($arguments)*)])?
            async fn generic<F>($($conn: $ty,)? scale: F) -> Result<i64, AppError>
            where
                F: Fn(i64) -> i64 + Send,
            {
                work(scale(1)).await;
                Ok(scale(2))
            }

            $(#[$attribute($($arguments)*)])?
            async fn by_reference($($conn: $ty,)? Shown(ref shown): Shown) -> Result<i64, AppError> {
                Ok(shown.get())
            }

            $(#[$attribute($($arguments)*)])?
            async fn destructured(
                $($conn: $ty,)?
                Wrapped(cell): Wrapped<Cell<i64>>,
                (mut first, second): (Cell<i64>, Cell<i64>),
                [third, _]: [Cell<i64>; 2],
            ) -> Result<i64, AppError> {
                work(cell.get()).await;
                *first.get_mut() += third.get();
                work(cell.get() + second.get()).await;
                Ok(first.get())
            }

            $(#[$attribute($($arguments)*)])?
            async fn mutable($($conn: $ty,)? mut cell: Cell<i64>, mut other: Option<Cell<i64>>) -> Result<i64, AppError> {
                *cell.get_mut() += 1;
                work(cell.get()).await;
                other = other.take();
                work(cell.get()).await;
                Ok(other.map_or(0, Cell::into_inner))
            }

            $(#[$attribute($($arguments)*)])?
            async fn moved($($conn: $ty,)? cell: Cell<i64>, scale: Scale) -> Result<(i64, Scale), AppError> {
                work(cell.get()).await;
                Ok((cell.into_inner(), scale))
            }

            $(#[$attribute($($arguments)*)])?
            async fn formatted($($conn: $ty,)? shown: Shown) -> Result<String, AppError> {
                let text = format!("{shown:>3}");
                work(0).await;
                Ok(text)
            }

            $(#[$attribute($($arguments)*)])?
            async fn aliased($($conn: $ty,)? cell: Alias, copied: Unshared) -> Result<i64, AppError> {
                work(cell.get() + copied.0).await;
                Ok(cell.get() + copied.0)
            }

            $(#[$attribute($($arguments)*)])?
            async fn recursive($($conn: $ty,)? cell: Cell<i64>) -> Result<i64, AppError> {
                if cell.get() == 0 {
                    return Ok(0);
                }
                Ok(work(cell.get()).await)
            }

            $(#[$attribute($($arguments)*)])?
            async fn not_there(
                $($conn: $ty,)?
                #[cfg(any())] absent: Cell<i64>,
                #[cfg(all())] present: Cell<i64>,
            ) -> Result<i64, AppError> {
                #[cfg(any())]
                work(absent.get()).await;
                Ok(present.get())
            }

            fn check(
                $($conn: $ty,)?
                mut cells: impl FnMut() -> Cell<i64>,
                scale: fn() -> Scale,
            ) {
                is_send(boxed($($conn,)? scale()));
                is_send(cell($($conn,)? cells()));
                is_send(borrowed($($conn,)? &mut (cells(), String::new())));
                is_send(reborrowed($($conn,)? &mut cells()));
                is_send(opaque($($conn,)? scale()));
                is_send(generic($($conn,)? scale()));
                is_send(destructured($($conn,)? Wrapped(cells()), (cells(), cells()), [cells(), cells()]));
                is_send(mutable($($conn,)? cells(), None));
                is_send(moved($($conn,)? cells(), scale()));
                is_send(formatted($($conn,)? Shown(cells())));
                is_send(aliased($($conn,)? cells(), Unshared(1, std::marker::PhantomData)));
                is_send(recursive($($conn,)? cells()));
            }
        }
    };
}

type Bb8 = bb8::Pool<AsyncPgConnection>;
type Deadpool = deadpool::Pool<AsyncPgConnection>;

table!(plain: ());
table!(transaction: #[advisory_lock(key = "send", name = "send")] (_conn: &mut AsyncPgConnection));
table!(max_hold: #[advisory_lock(key = "send", name = "send", max_hold = "5s")] (_conn: &mut AsyncPgConnection));
table!(session: #[advisory_lock(key = "send", name = "send", scope = "session", wait = "5s")] (_conn: &mut AsyncPgConnection));
table!(nested: #[advisory_lock(key = "send", name = "send", nested = "refuse", isolation = "serializable")] (_conn: &mut AsyncPgConnection));
table!(permits: #[advisory_lock(key = "few", permits = 3, name = "few", wait = "never")] (_conn: &mut AsyncPgConnection));
table!(queue: #[advisory_lock(key = "send", name = "send", queue = 8, conn = pool.get().await?)] (pool: &Deadpool));
table!(of_bb8: #[advisory_lock(key = "send", name = "send", queue = 8, wait = "5s", on_held = Err(AppError::Pool), pool = pool)] (pool: &Bb8));
table!(of_deadpool: #[advisory_lock(key = "send", name = "send", poll = "50ms", pool = pool)] (pool: &Deadpool));
table!(pool: #[advisory_lock(key = "send", name = "send", conn = pool.get().await?)] (pool: &Bb8));
table!(poll: #[advisory_lock(key = "send", name = "send", poll = "50ms", conn = pool.get().await?)] (pool: &Bb8));
table!(lease: #[advisory_lease(key = "send", name = "sent", pool = pool, keep = "5s")] (pool: &Bb8));

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
    is_send(witness(conn, Name(String::new()), Cell::new(1)));
    is_send(leased(pool(), Cell::new(1)));
    is_send(actor().close(1, scale(), Cell::new(1)));
}

fn main() {}
