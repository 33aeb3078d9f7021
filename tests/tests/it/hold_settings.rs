//! `max_hold` and the session's own timeouts: the server's settings during the call, and
//! afterwards.

use crate::observers::again;
use advisory_runtime::{Error, Isolation, Request, Wait, session, xact};
use advisory_tests::bookings::{database, run};
use advisory_tests::settings::{setting, settings};
use advisory_tests::{Database, Proxy, assert_error, left_out};
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::time::Duration;

/// For a call inside another one; no busy machine takes that long for two statements.
const INNER: Duration = Duration::from_millis(7500);
const AN_HOUR: Duration = Duration::from_secs(3600);

const TIMEOUTS: [&str; 3] = [
    "idle_in_transaction_session_timeout",
    "transaction_timeout",
    "idle_session_timeout",
];

async fn has(db: &Database, name: &str) -> bool {
    db.count(&format!(
        "SELECT count(*) FROM pg_settings WHERE name = '{name}'"
    ))
    .await
        == 1
}

/// The bound is 20 seconds, and one second more for the server. In a transaction of its own a call
/// replaces what the session has, except for a `transaction_timeout`, which is running already.
#[tokio::test]
async fn the_calls_timeouts_apply_and_the_sessions_come_back() {
    let db = database().await;
    for (own, during) in [("0", "21s"), ("9s", "9s"), ("1h", "21s")] {
        let mut conn = db.connect().await;
        for name in TIMEOUTS {
            if has(&db, name).await {
                run(&mut conn, &format!("SET {name} = '{own}'")).await;
            }
        }
        let before = settings(&mut conn).await;
        for wait in [Wait::Session, Wait::Never, Wait::For(AN_HOUR)] {
            let request = Request::all([7, 8])
                .wait(wait)
                .max_hold(Duration::from_secs(20));
            for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
                let mut held = xact::begin(&mut conn, request.clone().isolation(isolation))
                    .await
                    .unwrap();
                let running = if own == "0" { "21s" } else { own };
                for (name, during) in TIMEOUTS.into_iter().zip(["21s", running]) {
                    if has(&db, name).await {
                        let now = setting(held.conn(), name).await;
                        assert_eq!(now, during, "{name} {isolation:?} {wait:?}");
                    }
                }
                let inside = settings(held.conn()).await;
                let mut inner = xact::begin(held.conn(), Request::new(7).max_hold(INNER))
                    .await
                    .unwrap();
                assert_eq!(setting(inner.conn(), TIMEOUTS[0]).await, "8500ms");
                inner.finish(Ok::<_, Error>(())).await.unwrap();
                assert_eq!(
                    settings(held.conn()).await,
                    inside,
                    "{isolation:?} {wait:?}"
                );
                held.finish(Ok::<_, Error>(())).await.unwrap();
                assert_eq!(settings(&mut conn).await, before, "{isolation:?} {wait:?}");
            }
            let mut held = session::acquire(&mut conn, request.clone()).await.unwrap();
            for name in TIMEOUTS {
                if has(&db, name).await {
                    assert_eq!(setting(held.conn(), name).await, during, "{name} {wait:?}");
                }
            }
            let inside = settings(held.conn()).await;
            let inner = session::acquire(held.conn(), Request::new(9).max_hold(INNER))
                .await
                .unwrap();
            inner.finish(Ok::<_, Error>(())).await.unwrap();
            assert_eq!(settings(held.conn()).await, inside, "{wait:?}");
            held.finish(Ok::<_, Error>(())).await.unwrap();
            assert_eq!(settings(&mut conn).await, before, "{wait:?}");
        }
    }
    db.until_quiet().await;
}

/// A failed call does not restore what an earlier call had saved.
#[tokio::test]
async fn a_refused_acquisition_leaves_every_setting_as_it_was() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let request = Request::all([7, 8]).max_hold(AN_HOUR);
    let held = session::acquire(&mut conn, request.clone()).await.unwrap();
    held.finish(Ok::<_, Error>(())).await.unwrap();
    run(&mut conn, "SET idle_session_timeout = '2h'").await;
    let before = settings(&mut conn).await;
    let other = xact::begin(&mut holder, 8).await.unwrap();
    for wait in [Wait::Never, Wait::For(Duration::from_millis(20))] {
        let error = session::acquire(&mut conn, request.clone().wait(wait))
            .await
            .unwrap_err();
        assert!(error.is_busy(), "{error:?}");
        assert_eq!(settings(&mut conn).await, before, "{wait:?}");
    }
    other.finish(Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
}

#[tokio::test]
async fn a_lock_lost_in_the_body_leaves_the_settings_unchanged() {
    let db = database().await;
    let mut conn = db.connect().await;
    let before = settings(&mut conn).await;
    let request = Request::all([7, 8]).max_hold(AN_HOUR);
    let mut held = session::acquire(&mut conn, request).await.unwrap();
    run(held.conn(), "SELECT pg_advisory_unlock_all()").await;
    assert_error!(held.finish(Ok::<_, Error>(())).await, LockLost);
    assert_eq!(settings(&mut conn).await, before);
}

const CHECK: &str = "client_connection_check_interval";

/// The server notices a killed client within a second, while the call waits and while a statement
/// of its body runs.
#[tokio::test]
async fn the_client_check_lasts_as_long_as_a_session_level_lock() {
    let db = database().await;
    if db.count("SELECT strpos(version(), 'linux')").await == 0 {
        return left_out("client checks", "the server is not on Linux");
    }
    let one = Request::new(7);
    let requests = [
        one.clone(),
        one.clone().wait(Wait::Never),
        one.clone().wait(AN_HOUR),
        one.clone().wait(AN_HOUR).permits(3),
        Request::all([7, 8]).shared(),
    ];
    for (own, during) in [("0", "1s"), ("5s", "5s")] {
        for is_test in [false, true] {
            let mut conn = db.connect().await;
            if is_test {
                conn.begin_test_transaction().await.unwrap();
            }
            run(&mut conn, &format!("SET {CHECK} = '{own}'")).await;
            for request in &requests {
                let what = format!("{own} {is_test} {request:?}");
                let bounded = request.clone().max_hold(AN_HOUR);
                let mut held = session::acquire(&mut conn, bounded.clone()).await.unwrap();
                assert_eq!(setting(held.conn(), CHECK).await, during, "{what}");
                for inner in [Request::new(9), Request::new(9).max_hold(AN_HOUR)] {
                    let inner = session::acquire(held.conn(), inner).await.unwrap();
                    inner.finish(Ok::<_, Error>(())).await.unwrap();
                    assert_eq!(setting(held.conn(), CHECK).await, during, "{what}");
                }
                held.finish(Ok::<_, Error>(())).await.unwrap();
                assert_eq!(setting(&mut conn, CHECK).await, own, "{what}");
                // Without a bound nothing is set.
                let mut held = session::acquire(&mut conn, request.clone()).await.unwrap();
                assert_eq!(setting(held.conn(), CHECK).await, own, "{what}");
                held.finish(Ok::<_, Error>(())).await.unwrap();
            }
        }
    }
}

/// Such as one on Windows. The process knows it from then on, so this test has one of its own.
#[tokio::test]
async fn a_server_that_refuses_the_client_check_is_asked_without_it() {
    const TEST: &str = "ADVISORY_TEST_OF_THIS_PROCESS";
    if std::env::var_os(TEST).is_none() {
        let this = "hold_settings::a_server_that_refuses_the_client_check_is_asked_without_it";
        return again(&[this], TEST, "1").await;
    }
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let set = "SET LOCAL client_connection_check_interval";
    let request = Request::new(7).max_hold(AN_HOUR);
    // A cancel request is no refusal, however often it comes.
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    for _ in 0..2 {
        proxy.cancel(set);
        assert_error!(xact::begin(&mut conn, request.clone()).await, Cancelled);
    }
    // The refusal of a value has the same form on every system.
    let refused = "SET LOCAL client_connection_check_interval = -1";
    // Two calls that have sent it before the first refusal comes.
    let mut other = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    for conn in [&mut conn, &mut other] {
        proxy.replace(set, refused);
        proxy.reset();
        let held = xact::begin(conn, request.clone()).await;
        held.unwrap().finish(Ok::<_, Error>(())).await.unwrap();
    }
    assert!(proxy.queries().iter().all(|query| !query.contains(set)));
    db.until_quiet().await;
}

/// Only a message whose refusal leaves nothing behind sends what a server can refuse.
#[tokio::test]
async fn the_client_check_is_set_where_it_cannot_be_refused() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
        for wait in [Wait::Session, Wait::Never, Wait::For(AN_HOUR)] {
            let request = Request::new(7).max_hold(AN_HOUR).wait(wait);
            proxy.reset();
            let held = xact::begin(&mut conn, request.isolation(isolation)).await;
            let mut held = held.unwrap();
            let sent = proxy.queries().concat();
            let waits = isolation == Isolation::ReadCommitted && wait != Wait::Never;
            assert_eq!(
                sent.contains("SET LOCAL client_connection_check_interval"),
                waits,
                "{isolation:?} {wait:?}"
            );
            assert_eq!(setting(held.conn(), CHECK).await, "1s");
            held.finish(Ok::<_, Error>(())).await.unwrap();
        }
    }
}
