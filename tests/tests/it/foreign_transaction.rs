//! A call on a connection with a transaction that Diesel does not know about is refused, and leaves
//! no lock on the session.

use crate::calls::assert_closed;
use advisory_runtime::{Error, Isolation, Request, Wait, blocking, xact};
use advisory_tests::Database;
use advisory_tests::bookings::execute;
use diesel::connection::SimpleConnection as _;
use diesel::{Connection as _, PgConnection};
use std::time::Duration;
use tokio::task::spawn_blocking;

const BEGUN: [&str; 2] = ["BEGIN", "BEGIN ISOLATION LEVEL SERIALIZABLE"];

/// Every kind of request at every level.
fn requests() -> impl Iterator<Item = Request> {
    let levels = [
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Serializable,
    ];
    levels.into_iter().flat_map(|level| {
        let asked = [
            Request::new(7).wait(Wait::Never),
            Request::new(7).permits(2).wait(Wait::Never),
            Request::all([7, 8]).wait(Wait::Never),
            Request::new(7).wait(Duration::from_secs(5)),
            Request::new(7),
        ];
        asked.map(|request| request.isolation(level))
    })
}

#[tokio::test]
async fn a_call_inside_it_is_refused_and_leaves_no_lock() {
    let db = Database::create().await;
    for begun in BEGUN {
        for request in requests() {
            let mut conn = db.connect().await;
            execute(&mut conn, begun).await.unwrap();
            execute(&mut conn, "SELECT 1").await.unwrap();
            let asked = format!("{begun}: {request:?}");
            let error = xact::begin(&mut conn, request).await.unwrap_err();
            assert!(
                matches!(error, Error::ForeignTransaction { .. }),
                "{asked}: {error:?}"
            );
            execute(&mut conn, "ROLLBACK").await.unwrap();
            assert_eq!(db.locks().await, [], "{asked}");
        }
    }
}

#[tokio::test]
async fn nor_does_a_blocking_call() {
    let db = Database::create().await;
    for begun in BEGUN {
        for request in requests() {
            let url = db.url().to_owned();
            let mut conn = spawn_blocking(move || {
                let mut conn = PgConnection::establish(&url).unwrap();
                conn.batch_execute(begun).unwrap();
                conn.batch_execute("SELECT 1").unwrap();
                let asked = format!("{begun}: {request:?}");
                let error = blocking::xact::begin(&mut conn, request).unwrap_err();
                assert!(
                    matches!(error, Error::ForeignTransaction { .. }),
                    "{asked}: {error:?}"
                );
                conn.batch_execute("ROLLBACK").unwrap();
                conn
            })
            .await
            .unwrap();
            assert_eq!(db.locks().await, []);
            conn.batch_execute("SELECT 1").unwrap();
        }
    }
}

/// Its check runs the transaction's first query.
#[tokio::test]
async fn a_strict_try_is_refused_in_a_transaction_without_a_query() {
    let db = Database::create().await;
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        let mut conn = db.connect().await;
        execute(&mut conn, "BEGIN").await.unwrap();
        let strict = Request::new(7).wait(Wait::Never).isolation(isolation);
        let error = xact::begin(&mut conn, strict).await.unwrap_err();
        assert!(
            matches!(error, Error::ForeignTransaction { .. }),
            "{isolation:?}: {error:?}"
        );
        drop(conn);
        db.until_no_locks().await;
    }
}

/// The begin of a try with `max_hold` is a `BEGIN` and a `SELECT`. If the second fails, the first
/// must not stay in effect.
#[tokio::test]
async fn a_begin_that_is_interrupted_halfway_closes_the_connection() {
    let db = Database::create().await;
    let (mut conn, mut holder) = (db.connect().await, db.connect().await);
    execute(&mut conn, "SET lock_timeout = '20ms'")
        .await
        .unwrap();
    execute(&mut holder, "BEGIN").await.unwrap();
    // While the catalog is locked, a session cannot look up a function that it has not called
    // before.
    execute(&mut holder, "LOCK TABLE pg_catalog.pg_proc")
        .await
        .unwrap();
    let bounded = Request::new(7).max_hold(Duration::from_secs(5));
    xact::begin(&mut conn, bounded.wait(Wait::Never))
        .await
        .unwrap_err();
    execute(&mut holder, "ROLLBACK").await.unwrap();
    assert_closed(&mut conn, "interrupted").await;
}
