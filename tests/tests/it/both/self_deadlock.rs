//! A call that waits for a lock that its own task or thread holds: debug builds refuse it, unless
//! the wait has a limit.

use super::super::{Conn, begin, book, connect, locked, run};
use advisory_runtime::{Request, Wait};
use advisory_tests::bookings::{committed, database, key_of};
use advisory_tests::{assert_error, debug_checks_are_on};
use diesel::QueryResult;
use std::time::Duration;

/// Books under the lock that the body already holds, on another connection.
async fn book_inside(conn: &mut Conn, other: &mut Conn, room: i64) -> QueryResult<bool> {
    locked(conn, room, async |_| book(other, room, "Ada").await).await
}

/// With the checks of debug builds and without them.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_ends_is_a_wait_like_any_other() {
    let db = database().await;
    let (mut conn, mut other) = (connect(&db).await, connect(&db).await);
    for wait in [Wait::Never, Wait::For(Duration::from_millis(30))] {
        let request = Request::new(key_of(7)).wait(wait);
        let busy = locked(&mut conn, 7, async |_| {
            begin(&mut other, request).await.map(drop)
        });
        match wait {
            Wait::Never => assert_error!(busy.await, NotAvailable { .. }),
            _ => assert_error!(busy.await, TimedOut { .. }),
        }
    }
    // If the session's own timeout bounds it.
    run(&mut other, "SET lock_timeout = '30ms'").await;
    let end = book_inside(&mut conn, &mut other, 7).await;
    assert_error!(end, TimedOut { lock, .. } if lock == "room:<room>");
    assert_eq!(committed(&db, 7).await, 0);
    assert!(book(&mut other, 7, "Ada").await.unwrap(), "both go on");
    assert!(!book(&mut conn, 7, "Ada").await.unwrap());
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_without_an_end_is_refused() {
    if !debug_checks_are_on() {
        return;
    }
    let db = database().await;
    let (mut conn, mut other) = (connect(&db).await, connect(&db).await);
    let end = book_inside(&mut conn, &mut other, 7).await;
    assert_error!(end, SelfDeadlock { lock, .. } if lock == "room:<room>");
    assert_eq!(db.locks().await, []);
    assert!(book(&mut other, 7, "Ada").await.unwrap(), "both go on");
    assert!(!book(&mut conn, 7, "Ada").await.unwrap());
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_on_the_same_connection_or_in_another_database_passes() {
    let (db, elsewhere) = (database().await, database().await);
    let (mut conn, mut far) = (connect(&db).await, connect(&elsewhere).await);
    let booked = locked(&mut conn, 7, async |conn| book(conn, 7, "Ada").await);
    assert!(booked.await.unwrap());
    assert!(book_inside(&mut conn, &mut far, 7).await.unwrap());
    assert_eq!(committed(&elsewhere, 7).await, 1);
    db.until_quiet().await;
}
