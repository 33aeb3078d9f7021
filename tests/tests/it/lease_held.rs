//! Leases that are renewed in the background: the guarantees for a body under one, and what is left
//! when it ends.

use advisory_runtime::lease::{Error, LeaseGuard, Leases, Request};
use advisory_tests::bookings::execute;
use advisory_tests::futures::spawn;
use advisory_tests::leases::{
    Events, database, finish, key, leases_at, run_while_held, until_free,
};
use advisory_tests::monitor::until_waiters;
use advisory_tests::{Database, assert_matches, pid_of};
use std::future::pending;
use std::time::Duration;
use tokio::time::timeout;

#[tokio::test]
async fn an_answered_connection_goes_back_to_its_pool() {
    let db = database().await;
    let pool = db.deadpool(1);
    let leases = Leases::new(pool.clone());
    let pid = async || pid_of(&mut pool.get().await.unwrap()).await;
    let first = pid().await;
    let held = leases.acquire(key("k")).await.unwrap();
    assert_eq!(pid().await, first);
    finish(held).await.unwrap();
    assert_eq!(pid().await, first);
}

#[tokio::test]
async fn a_drop_and_a_panic_release() {
    let db = database().await;
    let leases = leases_at(db.url(), 2);
    drop(leases.acquire(key("k")).await.unwrap());
    until_free(&db).await;
    let panicked = spawn({
        let leases = leases.clone();
        async move {
            let mut held = leases.acquire(key("k")).await.unwrap();
            let _never = held.run(async { panic!("the body") }).await;
        }
    });
    panicked.await.unwrap_err();
    until_free(&db).await;
}

/// The grant waits at the server when its caller is dropped.
#[tokio::test]
async fn a_lease_that_is_granted_to_a_dropped_future_is_released() {
    let db = database().await;
    let events = Events::default();
    let leases = leases_at(db.url(), 1).observe(events.observer());
    let mut other = db.connect().await;
    execute(&mut other, "BEGIN").await.unwrap();
    let lock = "LOCK TABLE advisory_lease IN ACCESS EXCLUSIVE MODE";
    execute(&mut other, lock).await.unwrap();
    let request = key("k").ttl(Duration::from_secs(3600));
    let call = spawn({
        let leases = leases.clone();
        async move { drop(leases.acquire(request).await) }
    });
    until_waiters(&db, 1).await;
    call.abort();
    call.await.unwrap_err();
    execute(&mut other, "COMMIT").await.unwrap();
    db.until_some("a grant", "SELECT FROM advisory_lease").await;
    until_free(&db).await;
    // The observer is called after the row is free.
    events.until("Ended").await;
    assert_eq!(events.names(), ["Acquired", "Ended"]);
}

#[tokio::test]
async fn a_body_runs_longer_than_the_ttl_while_the_pool_is_exhausted() {
    let db = database().await;
    // A release without an answer would close the connection.
    let pool = Database::unchecked_deadpool_at(db.url());
    let events = Events::default();
    let leases = Leases::new(pool.clone()).observe(events.observer());
    // This test is about time. The ttl is longer than a busy machine is suspended.
    let ttl = Duration::from_secs(5);
    let request = key("k").ttl(ttl).renew(Duration::from_millis(200));
    let mut held = leases.acquire(request).await.unwrap();
    let long = "SELECT FROM advisory_lease \
                 WHERE clock_timestamp() > acquired_at + interval '5.1 s' AND expires_at > acquired_at + interval '7 s'";
    let body = async {
        // No connection is left for the renewals.
        let _conn = pool.get().await.unwrap();
        db.until_some("renewals", long).await;
    };
    held.run(body).await.unwrap();
    finish(held).await.unwrap();
    assert!(events.count("Renewed") >= 3, "{events:?}");
    assert_eq!(events.names().last().unwrap(), "Ended", "{events:?}");
    assert_eq!(pool.status().size, 1);
}

#[tokio::test]
async fn a_body_is_dropped_before_the_expiry_without_the_server() {
    let db = database().await;
    let proxy = advisory_tests::Proxy::start(&db).await;
    let leases = leases_at(proxy.url(), 2);
    let request = key("k")
        .ttl(Duration::from_secs(2))
        .renew(Duration::from_millis(50));
    let mut held: LeaseGuard = leases.acquire(request).await.unwrap();
    let lease = held.lease().clone();
    let result = held
        .run(async {
            proxy.stop_forwarding();
            run_while_held(&db, &lease).await;
        })
        .await;
    assert_matches!(result, Err(Error::Lost { .. }));
    proxy.resume_forwarding();
}

#[tokio::test]
async fn max_hold_drops_the_body_and_releases() {
    let db = database().await;
    let leases = leases_at(db.url(), 1);
    let request = key("k").max_hold(Duration::from_millis(50));
    let mut held = leases.acquire(request).await.unwrap();
    assert_matches!(
        held.run(pending::<()>()).await,
        Err(Error::HoldExceeded { .. })
    );
    assert_eq!(leases.list().await.unwrap(), []);
}

#[tokio::test]
async fn a_grant_without_a_caller_is_released() {
    let db = database().await;
    let leases = leases_at(db.url(), 1);
    let other = leases.acquire(key("k")).await.unwrap();
    // Dropped while it waits.
    let waiting = timeout(
        Duration::from_millis(30),
        leases.acquire(Request::text("k")),
    );
    assert!(waiting.await.is_err());
    drop(other);
    until_free(&db).await;
    let held = leases.acquire(Request::text("k")).await.unwrap();
    finish(held).await.unwrap();
}

#[tokio::test]
async fn errors_say_what_to_do() {
    let db = Database::create().await;
    let leases = leases_at(db.url(), 1);
    let error = leases.acquire(key("k")).await.unwrap_err();
    assert_matches!(error, Error::MissingTable { .. });
    assert!(!error.is_done() && !error.is_held(), "{error:?}");
    let said = error.database().unwrap().to_string();
    assert!(said.contains("advisory_lease"), "{said}");
    assert!(error.to_string().contains("set_up"), "{error}");
    let long = "x".repeat(513);
    assert_matches!(
        leases.acquire(key(&long)).await,
        Err(Error::KeyTooLong { bytes: 513, .. })
    );
    for (wrong, why) in [
        (key("k").ttl(Duration::ZERO), "at least 100 milli"),
        (
            key("k").ttl(Duration::from_millis(99)),
            "at least 100 milli",
        ),
        (key("k").ttl(Duration::MAX), "at most 100 years"),
        (key("k").keep(Duration::MAX), "at most 100 years"),
        (key("k").renew(Duration::from_secs(60)), "not shorter"),
        (key("k").renew(Duration::ZERO), "`renew` is zero"),
        (key("\0"), "NUL"),
    ] {
        let error = leases.acquire(wrong).await.unwrap_err();
        assert_matches!(error, Error::Invalid { .. });
        assert!(error.to_string().contains(why), "{error}");
    }
    let nowhere = "postgres://nobody@/nothing?host=/nowhere";
    let error = leases_at(nowhere, 1).acquire(key("k")).await.unwrap_err();
    assert_matches!(error, Error::Pool(_));
    let wrapped = diesel::result::Error::from(error);
    assert!(Error::find(&wrapped).is_some());
}
