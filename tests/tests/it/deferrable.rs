//! The defaults of a role for reports: a serializable transaction then waits until it has a safe
//! snapshot.

use advisory_runtime::{Error, Request, session, xact};
use advisory_tests::Database;
use advisory_tests::bookings::{LEVELS, bookings, database, run};
use advisory_tests::dropped_call::WAITS;
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};

const DEFAULTS: &str =
    "SET default_transaction_read_only = on; SET default_transaction_deferrable = on";

/// A writer that such a transaction waits for.
async fn writer(db: &Database) -> AsyncPgConnection {
    let mut writer = db.connect().await;
    let write = "BEGIN ISOLATION LEVEL SERIALIZABLE; INSERT INTO booking VALUES (1, 'Ada')";
    writer.batch_execute(write).await.unwrap();
    writer
}

#[tokio::test]
async fn deferrable_defaults_make_no_locked_transaction_wait() {
    let db = database().await;
    let mut conn = db.connect().await;
    conn.batch_execute(DEFAULTS).await.unwrap();
    run(&mut conn, "SET statement_timeout = '20s'").await;
    let mut writer = writer(&db).await;
    for isolation in LEVELS {
        for wait in WAITS {
            for keys in [vec![7], vec![6, 7, 8]] {
                let request = Request::all(keys).isolation(isolation).wait(wait);
                let held = xact::begin(&mut conn, request.clone()).await;
                let locks = db.locks().await;
                let mut held =
                    held.unwrap_or_else(|error| panic!("{request:?}: {error:?}, {locks:?}"));
                assert_eq!(bookings(held.conn(), 1).await.unwrap(), 0);
                held.finish(Ok::<_, Error>(())).await.unwrap();
                assert_eq!(db.locks().await, []);
            }
        }
    }
    run(&mut writer, "ROLLBACK").await;
    db.until_quiet().await;
}

#[tokio::test]
async fn a_dropped_lock_is_released_under_deferrable_defaults() {
    let db = database().await;
    let mut conn = db.connect().await;
    conn.batch_execute(DEFAULTS).await.unwrap();
    run(
        &mut conn,
        "SET default_transaction_isolation = 'serializable'",
    )
    .await;
    let held = session::acquire(&mut conn, Request::all([7, 8])).await;
    let mut writer = writer(&db).await;
    drop(held.unwrap());
    db.until_no_locks().await;
    run(&mut writer, "ROLLBACK").await;
    db.until_quiet().await;
}
