//! Blocking Diesel: locked functions work inside a test transaction, and nothing is committed.

use crate::calls::functions;
use advisory_runtime::{Error, Request, Wait, advisory_lock, blocking, session};
use advisory_tests::blocking::{bookings as blocking_bookings, insert as blocking_insert};
use advisory_tests::bookings::{committed, database};
use advisory_tests::test_transactions::{is_refused, requests};
use diesel::result::Error as DieselError;
use diesel::{Connection as _, PgConnection, QueryResult};
use std::time::Duration;

functions!(plain, blocking_insert, PgConnection, [], []);

#[tokio::test]
async fn locked_functions_of_every_kind_work_on_blocking_connections() {
    let db = database().await;
    let url = db.url().to_owned();
    let conn = tokio::task::spawn_blocking(move || {
        let mut conn = PgConnection::establish(&url).unwrap();
        conn.begin_test_transaction().unwrap();
        plain::lasting(&mut conn, 7).unwrap();
        plain::plain(&mut conn, 7).unwrap();
        plain::outermost(&mut conn, 7).unwrap();
        plain::strict(&mut conn, 7).unwrap();
        plain::lasting(&mut conn, 7).unwrap();
        assert_eq!(blocking_bookings(&mut conn, 7).unwrap(), 5);
        for (request, is_session) in requests() {
            let held = if is_session {
                blocking::session::acquire(&mut conn, request)
            } else {
                blocking::xact::begin(&mut conn, request)
            };
            let mut held = held.unwrap();
            blocking_insert(held.conn(), 8, "Ada").unwrap();
            held.finish(Ok::<_, Error>(())).unwrap();
        }
        conn
    });
    let conn = conn.await.unwrap();
    assert_eq!([committed(&db, 7).await, committed(&db, 8).await], [0, 0]);
    drop(conn);
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 0);
}

#[tokio::test]
async fn after_a_refusal_a_blocking_test_transaction_stays_usable() {
    let db = database().await;
    let mut holder = db.connect().await;
    let theirs = session::acquire(&mut holder, 8).await.unwrap();
    let url = db.url().to_owned();
    let calls = tokio::task::spawn_blocking(move || {
        let mut conn = PgConnection::establish(&url).unwrap();
        conn.begin_test_transaction().unwrap();
        for (request, is_session) in requests() {
            let bounded = Request::wait(request.clone(), Duration::from_millis(20));
            for request in [request.wait(Wait::Never), bounded] {
                let refused = if is_session {
                    blocking::session::acquire(&mut conn, request).map(drop)
                } else {
                    blocking::xact::begin(&mut conn, request).map(drop)
                };
                let error = refused.unwrap_err();
                assert!(error.is_busy(), "{error:?}");
                blocking_insert(&mut conn, 8, "after").unwrap();
            }
        }
        assert_eq!(advisory_tests::blocking::held_by(&mut conn).unwrap(), 0);
    });
    calls.await.unwrap();
    theirs.finish(Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
    assert_eq!(committed(&db, 8).await, 0);
}

/// Diesel's `test_transaction` opens an ordinary transaction.
#[tokio::test]
async fn a_blocking_test_transaction_is_a_transaction_like_any_other() {
    let db = database().await;
    let url = db.url().to_owned();
    let blocking = tokio::task::spawn_blocking(move || {
        let mut conn = PgConnection::establish(&url).unwrap();
        conn.test_transaction::<_, DieselError, _>(|conn| {
            for refused in [
                plain::outermost(conn, 7),
                plain::strict(conn, 7),
                plain::lasting(conn, 7),
            ] {
                is_refused(refused);
            }
            plain::plain(conn, 7)
        })
    });
    blocking.await.unwrap();
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 0);
}
