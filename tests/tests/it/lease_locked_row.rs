//! The effects of an administrator's `SELECT … FOR UPDATE` on a lease's row.

use advisory_runtime::lease::{Error, Leases, Request};
use advisory_tests::assert_matches;
use advisory_tests::bookings::{execute, run};
use advisory_tests::leases::{
    database, key, leases_at, once, run_while_held, until_answered, until_over,
};
use diesel_async::SimpleAsyncConnection;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_row_locked_by_hand_delays_renewals_only_and_grants_nothing() {
    let db = database().await;
    let request = key("k").renew(Duration::from_millis(20));
    let holder = leases_at(db.url(), 1).acquire(request).await.unwrap();
    let lease = holder.lease();
    // Statements that wait for the row fail.
    let pool = db.deadpool(1);
    run(&mut pool.get().await.unwrap(), "SET lock_timeout = '10s'").await;
    let leases = Leases::new(pool);
    let mut admin = db.connect().await;
    admin
        .batch_execute("BEGIN; SELECT FROM advisory_lease FOR UPDATE")
        .await
        .unwrap();
    assert_matches!(once(&leases, key("k")).await, Err(Error::Held { .. }));
    once(&leases, key("other")).await.unwrap();
    // A renewal does not wait: the lease is held as before.
    until_answered(&db, "renewed AS").await;
    assert!(lease.is_held() && lease.remaining() <= TTL);
    // It expires while the lock is held: nobody takes it over, and its renewal notices.
    let expire = "UPDATE advisory_lease SET expires_at = clock_timestamp() WHERE expires_at > clock_timestamp()";
    execute(&mut admin, expire).await.unwrap();
    assert_matches!(once(&leases, key("k")).await, Err(Error::Held { .. }));
    admin.batch_execute("COMMIT").await.unwrap();
    until_over(lease).await;
    assert!(once(&leases, key("k")).await.unwrap() > lease.token());
}

#[tokio::test]
async fn a_body_is_dropped_before_the_expiry_if_its_row_stays_locked() {
    let db = database().await;
    let mut other = db.connect().await;
    let leases = leases_at(db.url(), 2);
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
    assert_matches!(lost.await, Err(Error::Lost { .. }));
    drop(held);
    // Its renewals do not wait for longer than it was held. The release in the background may.
    let renewals = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' \
                    AND query LIKE '%NO KEY UPDATE%' AND query_start < clock_timestamp() - interval '2 seconds'";
    db.until_none("the end of its renewals", renewals).await;
    let error = once(&leases, key("k")).await.unwrap_err();
    assert!(error.is_held(), "{error:?}");
    other.batch_execute("COMMIT").await.unwrap();
    // A renewal that waited for the row may still succeed, although its answer is not read. The
    // rest is for a busy machine.
    let next = once(&leases, Request::text("k").wait(ttl + TTL)).await;
    assert!(next.unwrap() > lease.token());
    assert!(!leases.holds(&lease).await.unwrap());
}
