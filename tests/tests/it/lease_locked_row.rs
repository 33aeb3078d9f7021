//! The effects of an administrator's `SELECT … FOR UPDATE` on a lease's row.

use advisory_runtime::__private::lease::Steps as _;
use advisory_runtime::lease::{Error, Leases, Request, Table};
use advisory_tests::leases::{database, expire, key, run_while_held};
use diesel_async::SimpleAsyncConnection;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_row_locked_by_hand_delays_renewals_only_and_grants_nothing() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    // Statements that wait for the row fail.
    conn.batch_execute("SET lock_timeout = '10s'")
        .await
        .unwrap();
    let table = Table::new();
    let lease = table.acquire(&mut holder, key("k")).await.unwrap();
    db.run("BEGIN; SELECT FROM advisory_lease FOR UPDATE").await;
    let error = table.acquire(&mut conn, key("k")).await.unwrap_err();
    assert!(matches!(error, Error::Held { .. }), "{error:?}");
    table.acquire(&mut conn, key("other")).await.unwrap();
    // A renewal does not wait: the lease is held as before.
    assert!(table.renew(&mut holder, &lease, TTL * 2).await.unwrap());
    assert!(lease.is_held() && lease.remaining() <= TTL);
    // It expires while the lock is held: nobody takes it over, and its renewal notices.
    expire(&db).await;
    let error = table.acquire(&mut conn, key("k")).await.unwrap_err();
    assert!(matches!(error, Error::Held { .. }), "{error:?}");
    db.run("COMMIT").await;
    let renewed = table.renew(&mut holder, &lease, TTL * 2).await;
    assert!(!renewed.unwrap(), "what had expired was renewed");
    assert!(!lease.is_held());
    let next = table.acquire(&mut conn, key("k")).await.unwrap();
    assert!(next.token() > lease.token());
}

#[tokio::test]
async fn a_body_is_dropped_before_the_expiry_if_its_row_stays_locked() {
    let db = database().await;
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    let leases = Leases::new(db.deadpool(2));
    let ttl = Duration::from_secs(3);
    let request = key("k").ttl(ttl).renew(Duration::from_millis(100));
    let mut held = leases.acquire(request).await.unwrap();
    let lease = held.lease().clone();
    let lost = held.run(async {
        other
            .batch_execute("BEGIN; SELECT FROM advisory_lease FOR UPDATE")
            .await
            .unwrap();
        run_while_held(&db, &lease).await;
    });
    let lost = lost.await;
    assert!(matches!(lost, Err(Error::Lost { .. })), "{lost:?}");
    drop(held);
    // Its renewals do not wait for longer than it was held. The release in the background may.
    let renewals = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' \
                    AND query LIKE '%NO KEY UPDATE%' AND query_start < clock_timestamp() - interval '2 seconds'";
    db.until_empty(TTL, "the end of its renewals", renewals)
        .await;
    let table = Table::new();
    let error = table.acquire(&mut conn, key("k")).await.unwrap_err();
    assert!(error.is_held(), "{error:?}");
    other.batch_execute("COMMIT").await.unwrap();
    // A renewal that waited for the row may still succeed, although its answer is not read. The
    // rest is for a busy machine.
    let wait = Request::text("k").wait(ttl + TTL);
    let next = table.acquire(&mut conn, wait).await.unwrap();
    assert!(next.token() > lease.token());
    assert!(!table.holds(&mut conn, &lease).await.unwrap());
}
