//! Locked functions that several tests call, and the checks that call one.
//!
//! They are not in the library: it would put their lock sites into every program that links it.

use advisory_runtime::{Connection, Error, LockKey, advisory_lock};
use advisory_tests::blocking::book_unlocked;
use advisory_tests::bookings::{bookings, execute, in_transaction, insert};
use advisory_tests::dropped_call::{SCOPES, WAITS, call};
use advisory_tests::failover::{number, reconnect};
use advisory_tests::pauses::pause;
use advisory_tests::{assert_error, assert_matches};
use diesel::QueryResult;
use diesel::pg::PgConnection;
use diesel::result::Error as DieselError;
use diesel::sql_types::BigInt;
use diesel_async::pooled_connection::deadpool;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use std::collections::BTreeSet;
use std::future::pending;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
pub(crate) async fn book(
    conn: &mut AsyncPgConnection,
    room: i64,
    guest: &str,
) -> QueryResult<bool> {
    if bookings(conn, room).await? > 0 {
        return Ok(false);
    }
    insert(conn, room, guest).await?;
    Ok(true)
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
pub(crate) fn book_blocking(conn: &mut PgConnection, room: i64, guest: &str) -> QueryResult<bool> {
    book_unlocked(conn, room, guest)
}

#[advisory_lock(key = "room:<room>", name = "room", poll = "2ms")]
pub(crate) async fn book_patiently(conn: &mut AsyncPgConnection, room: i64) -> Result<bool, Error> {
    if bookings(conn, room).await? > 0 {
        return Ok(false);
    }
    insert(conn, room, "patient").await?;
    Ok(true)
}

#[derive(Debug, PartialEq)]
pub(crate) enum AppError {
    Busy,
    Pool,
    Lock(String),
}

impl From<Error> for AppError {
    fn from(error: Error) -> Self {
        Self::Lock(error.to_string())
    }
}

impl From<diesel::result::Error> for AppError {
    fn from(error: diesel::result::Error) -> Self {
        Self::Lock(error.to_string())
    }
}

impl From<deadpool::PoolError> for AppError {
    fn from(_: deadpool::PoolError) -> Self {
        Self::Pool
    }
}

#[advisory_lock(key = "room:<room>", name = "room", wait = patience, on_held = Err(AppError::Busy))]
pub(crate) async fn book_or_busy(
    conn: &mut AsyncPgConnection,
    room: i64,
    patience: Duration,
) -> Result<usize, AppError> {
    Ok(insert(conn, room, "Ada").await?)
}

#[derive(Debug)]
pub(crate) struct FromDiesel(pub(crate) DieselError);

impl From<DieselError> for FromDiesel {
    fn from(error: DieselError) -> Self {
        Self(error)
    }
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
pub(crate) async fn diesel_only(conn: &mut AsyncPgConnection, room: i64) -> Result<(), FromDiesel> {
    drop(insert(conn, room, "Ada").await);
    drop(insert(conn, room, "Grace").await);
    Ok(())
}

#[derive(LockKey)]
#[lock_key("room:<room>", name = "room")]
pub(crate) struct RoomLock {
    pub(crate) room: i64,
}

/// The state of the body when the future is dropped, or what it does instead.
pub(crate) enum Body {
    Idle(oneshot::Sender<()>),
    Waits,
    Panics,
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
pub(crate) async fn work<C: Connection>(conn: &mut C, room: i64, body: Body) -> QueryResult<()> {
    insert(conn.pg(), room, "half done").await?;
    match body {
        Body::Idle(reached) => {
            let _: Result<(), ()> = reached.send(());
            pending().await
        }
        Body::Waits => book(conn.pg(), 99, "nested").await.map(drop),
        Body::Panics => panic!("the body's own panic"),
    }
}

#[cfg(debug_assertions)]
macro_rules! locked {
    ($name:ident($id:ident) $key:literal $(, $more:ident = $value:tt)*) => {
        #[advisory_lock(key = $key $(, $more = $value)*)]
        async fn $name(conn: &mut AsyncPgConnection, $id: i64) -> QueryResult<()> {
            let _ = (conn, $id);
            Ok(())
        }
    };
    ($name:ident($id:ident) $key:literal $(, $more:ident = $value:tt)* => $next:ident) => {
        #[advisory_lock(key = $key $(, $more = $value)*)]
        async fn $name(conn: &mut AsyncPgConnection, $id: i64) -> QueryResult<()> {
            $next(conn, $id + 1).await
        }
    };
}

#[cfg(debug_assertions)]
pub(crate) use locked;

/// Every locked call is refused with an error that says why, and Diesel's own statements find the
/// connection closed.
pub(crate) async fn assert_closed(conn: &mut AsyncPgConnection, after: &str) {
    for scope in SCOPES {
        for wait in WAITS {
            let error = call(conn, scope, wait).await.unwrap_err();
            assert_error!(error, BrokenConnection, "{scope:?}, {wait:?}, {after}");
        }
    }
    let error = book(conn, 7, "Ada").await.unwrap_err();
    assert_error!(error, BrokenConnection { lock, .. } if lock == "room:<room>", "{after}");
    let error = execute(conn, "SELECT 1").await.unwrap_err();
    assert_matches!(error, DieselError::DatabaseError(..), "{after}");
    let begun = in_transaction::<(), DieselError>(conn, async |_| Ok(()));
    assert!(
        matches!(begun.await, Err(DieselError::BrokenTransactionManager)),
        "{after}"
    );
}

/// Clients book rooms, each of them twice, and reconnect after an error. `fail` ends the primary
/// meanwhile. What was booked is there once, and what more is there is not more than the commits of
/// which it is unknown.
pub(crate) async fn book_across(url: &str, rooms: i64, fail: impl Future<Output = ()>) {
    let (next, booked) = (
        Arc::new(AtomicI64::new(0)),
        Arc::new(Mutex::new(BTreeSet::new())),
    );
    let errors = Arc::new(AtomicI64::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..6 {
        let (url, next, booked) = (url.to_owned(), Arc::clone(&next), Arc::clone(&booked));
        let errors = Arc::clone(&errors);
        tasks.spawn(async move {
            let mut conn = reconnect(&url).await;
            let mut unknown = 0;
            loop {
                let room = next.fetch_add(1, Ordering::Relaxed) / 2;
                if room >= rooms {
                    return unknown;
                }
                match book(&mut conn, room, &format!("guest {task}")).await {
                    Ok(true) => assert!(booked.lock().unwrap().insert(room), "{room} twice"),
                    Ok(false) => {}
                    Err(error) => {
                        errors.fetch_add(1, Ordering::Relaxed);
                        let found = Error::find(&error);
                        let is_unknown = found
                            .is_some_and(|found| matches!(&*found, Error::CommitUnknown { .. }));
                        unknown += i64::from(is_unknown);
                        conn = reconnect(&url).await;
                    }
                }
            }
        });
    }
    while booked.lock().unwrap().len() < 50 {
        pause().await;
    }
    fail.await;
    let before = booked.lock().unwrap().len();
    let unknown: i64 = tasks.join_all().await.into_iter().sum();
    let mut conn = reconnect(url).await;
    let twice = "SELECT count(*) FROM (SELECT room FROM booking GROUP BY room HAVING count(*) > 1) AS twice";
    assert_eq!(number(&mut conn, twice).await, 0);
    let there = "SELECT room FROM booking ORDER BY room";
    let there: Vec<i64> = diesel::dsl::sql::<BigInt>(there)
        .load(&mut conn)
        .await
        .unwrap();
    let there: BTreeSet<i64> = there.into_iter().collect();
    let booked = booked.lock().unwrap();
    let lost: Vec<_> = booked.difference(&there).collect();
    assert!(lost.is_empty(), "an `Ok` that was lost: {lost:?}");
    assert!(
        AtomicI64::load(&errors, Ordering::Relaxed) > 0,
        "nobody noticed the failover"
    );
    assert!(booked.len() > before, "nobody booked after the failover");
    let more = there.difference(&booked).count();
    eprintln!(
        "{} booked, {more} more of {unknown} unknown commits",
        booked.len()
    );
    assert!(i64::try_from(more).unwrap() <= unknown, "{more} {unknown}");
}
