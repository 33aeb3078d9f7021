//! A pool whose one connection is in a test transaction.

use crate::both::async_pg::functions::{lasting, outermost, strict};
use advisory_runtime::{Connection, Pool};
use advisory_tests::Database;
use advisory_tests::bookings::{bookings, committed, database};
use diesel_async::AsyncConnection;

/// Pools keep a connection that is in a test transaction, so tests give a service a pool of one.
async fn stays_in_its_test_transaction<P: Pool>(db: &Database, pool: P) {
    {
        let mut conn = pool.connection().await.unwrap();
        conn.pg().begin_test_transaction().await.unwrap();
    }
    for calls in 1..=3 {
        let mut conn = pool.connection().await.unwrap();
        let conn = conn.pg();
        lasting(conn, 7).await.unwrap();
        outermost(conn, 7).await.unwrap();
        strict(conn, 7).await.unwrap();
        assert_eq!(bookings(conn, 7).await.unwrap(), calls * 3);
    }
    drop(pool);
    db.until_quiet().await;
    assert_eq!(committed(db, 7).await, 0);
}

#[tokio::test]
async fn a_pools_one_connection_stays_in_its_test_transaction() {
    let db = database().await;
    stays_in_its_test_transaction(&db, db.bb8(1).await).await;
    stays_in_its_test_transaction(&db, db.deadpool(1)).await;
}
