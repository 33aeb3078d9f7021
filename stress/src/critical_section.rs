//! The critical section of a slot: read it, wait a moment, and book it if it is free. In a room
//! there is nothing to book.
//!
//! Each function holds the lock differently. Those of a slot share the key and the body.

use crate::clock::pass;
use crate::history::Log;
use crate::schema::START;
use advisory_runtime::{Error, LockKey, PoolError, Request, advisory_lock, session};
use diesel::dsl::count_star;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_async::pooled_connection::deadpool::{Object, Pool};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

diesel::table! {
    stress.section (op) {
        slot -> BigInt,
        op -> BigInt,
        booked -> Bool,
        entered -> BigInt,
        departed -> BigInt,
    }
}

mod function {
    #[diesel::declare_sql_function]
    extern "SQL" {
        #[sql_name = "stress.tick"]
        fn tick() -> BigInt;
    }
}
pub(crate) use function::tick;

/// Whether this call booked the slot.
pub(crate) type Booked = Result<bool, Error>;

/// Additional behaviour of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Plain,
    /// Sleeps between the read and the booking.
    Pauses,
    /// Fails after its booking.
    Fails,
    /// Runs a statement that fails, ignores the error, and returns `Ok`.
    Swallows,
    /// Never returns after its booking: its call is dropped there.
    Hangs,
}

/// One operation in the critical section of a slot or a room.
pub(crate) struct CriticalSection<'w> {
    pub(crate) op: i64,
    /// The slot, or the room.
    pub(crate) number: i64,
    pub(crate) is_in_room: bool,
    pub(crate) manner: Manner,
    pub(crate) is_pooled: bool,
    pub(crate) log: &'w Log,
    /// How many ticks were drawn, as far as this process knows.
    pub(crate) ticks: &'w AtomicI64,
    /// Notified when the call must be dropped, after its booking.
    pub(crate) hangs: Notify,
    /// The last tick that the database returned, or 0.
    pub(crate) departed: AtomicI64,
    /// Whether the body has ended, so that a commit may have been sent.
    pub(crate) has_ended: AtomicBool,
    /// Behind a pooler: the slot was booked already, which is an error.
    pub(crate) is_taken: AtomicBool,
}

impl CriticalSection<'_> {
    pub(crate) async fn book(&self, conn: &mut AsyncPgConnection) -> Booked {
        if self.is_pooled {
            return self.book_without_answers(conn).await;
        }
        let taken = section::table
            .filter(section::slot.eq(self.number))
            .filter(section::booked)
            .select(count_star());
        let look = diesel::select((tick(), taken.single_value()));
        let (entered, taken): (i64, Option<i64>) = look.get_result(conn).await?;
        self.write(conn, entered, taken.unwrap_or(0) == 0).await
    }

    /// Enters a room, where nothing is booked.
    pub(crate) async fn enter_room(&self, conn: &mut AsyncPgConnection) -> Booked {
        let entered = diesel::select(tick()).get_result(conn).await?;
        self.write(conn, entered, false).await.map(|_| true)
    }

    fn enter(&self, tick: i64) {
        self.ticks
            .fetch_max(tick.rem_euclid(START), Ordering::Relaxed);
        self.log.entered(self.op, tick);
    }

    pub(crate) async fn write(
        &self,
        conn: &mut AsyncPgConnection,
        entered: i64,
        books: bool,
    ) -> Booked {
        self.enter(entered);
        if self.manner == Manner::Pauses {
            pass(Duration::from_millis(5)).await;
        }
        let row = (
            section::slot.eq(self.number),
            section::op.eq(self.op),
            section::booked.eq(books),
            section::entered.eq(entered),
        );
        let departed = diesel::insert_into(section::table)
            .values(row)
            .returning(section::departed)
            .get_result(conn)
            .await?;
        self.departed.store(departed, Ordering::Relaxed);
        self.end(conn, books).await
    }

    async fn book_without_answers(&self, conn: &mut AsyncPgConnection) -> Booked {
        let call = format!("SELECT stress.book({}, {})", self.number, self.op);
        let called = conn.batch_execute(&call).await;
        if let Err(DieselError::DatabaseError(_, answer)) = &called
            && let Some(entered) = answer.message().strip_prefix("taken ")
            && let Ok(entered) = entered.parse()
        {
            self.enter(entered);
            self.is_taken.store(true, Ordering::Relaxed);
        }
        called?;
        self.end(conn, true).await
    }

    async fn end(&self, conn: &mut AsyncPgConnection, books: bool) -> Booked {
        match self.manner {
            Manner::Fails => return Err(DieselError::RollbackTransaction.into()),
            Manner::Swallows => drop(conn.batch_execute("SELECT 1/0").await),
            Manner::Hangs => {
                self.hangs.notify_one();
                pending::<()>().await;
            }
            Manner::Plain | Manner::Pauses => {}
        }
        self.has_ended.store(true, Ordering::Relaxed);
        Ok(books)
    }
}

/// A thing that is booked once.
#[derive(LockKey)]
#[lock_key("slot:<slot>")]
pub(crate) struct SlotLock {
    pub(crate) slot: i64,
}

/// A thing that a few may use at once.
#[derive(LockKey)]
#[lock_key("room:<room>")]
pub(crate) struct RoomLock {
    pub(crate) room: i64,
}

/// Functions that book a slot under its lock, with these arguments.
macro_rules! book {
    ($($name:ident($($argument:tt)*);)*) => { $(
        #[advisory_lock(key = SlotLock { slot }, $($argument)*)]
        pub(crate) async fn $name(
            conn: &mut AsyncPgConnection,
            slot: i64,
            section: &CriticalSection<'_>,
        ) -> Booked {
            section.book(conn).await
        }
    )* };
}

book! {
    wait();
    never(wait = "never");
    bounded(wait = "20ms", max_hold = "1s");
    poll(poll = "2ms", wait = "200ms");
    repeatable(isolation = "repeatable read");
    serializable(isolation = "serializable", wait = "200ms");
}

#[advisory_lock(key = SlotLock { slot }, scope = "session")]
pub(crate) async fn session(
    conn: &mut AsyncPgConnection,
    slot: i64,
    section: &CriticalSection<'_>,
) -> Booked {
    conn.transaction(async |conn| section.book(conn).await)
        .await
}

#[advisory_lock(key = SlotLock { slot }, conn = connection(pool).await?, poll = "2ms", wait = "200ms")]
pub(crate) async fn poll_pool(
    pool: &Pool<AsyncPgConnection>,
    slot: i64,
    section: &CriticalSection<'_>,
) -> Booked {
    section.book(conn).await
}

#[advisory_lock(key = SlotLock { slot }, conn = connection(pool).await?, queue = 8, wait = "1s")]
pub(crate) async fn queue(
    pool: &Pool<AsyncPgConnection>,
    slot: i64,
    section: &CriticalSection<'_>,
) -> Booked {
    section.book(conn).await
}

#[advisory_lock(key = RoomLock { room }, permits = 3, poll = "2ms", wait = "200ms")]
pub(crate) async fn permits(
    conn: &mut AsyncPgConnection,
    room: i64,
    section: &CriticalSection<'_>,
) -> Booked {
    section.enter_room(conn).await
}

/// With a guard that owns its connection. Another task has the guard for a while, and checks that
/// the lock is still held.
pub(crate) async fn owned(
    pool: &Pool<AsyncPgConnection>,
    request: Request,
    section: &CriticalSection<'_>,
) -> Booked {
    let request = request.wait(Duration::from_millis(200));
    let mut lock = session::acquire_owned(connection(pool).await?, request).await?;
    let booked = lock
        .conn()
        .transaction(async |conn| {
            if section.is_in_room {
                section.enter_room(conn).await
            } else {
                section.book(conn).await
            }
        })
        .await?;
    let checked = tokio::spawn(async move {
        let is_held = lock.check().await;
        (lock, is_held)
    });
    if let Ok((lock, is_held)) = checked.await {
        is_held?;
        drop(lock.finish(Ok::<_, Error>(())).await?);
    }
    Ok(booked)
}

pub(crate) async fn connection(
    pool: &Pool<AsyncPgConnection>,
) -> Result<Object<AsyncPgConnection>, PoolError> {
    pool.get().await.map_err(PoolError::new)
}
