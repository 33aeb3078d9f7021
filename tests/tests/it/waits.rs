//! How long a call waits, and what it leaves unchanged.

use crate::bookings::{database, execute, finish};
use advisory_runtime::{Error, Isolation, Key, Request, Wait, session, xact};
use advisory_tests::{AdvisoryLock, LockedKey};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

pub(crate) async fn setting(conn: &mut AsyncPgConnection, name: &str) -> String {
    diesel::dsl::sql::<diesel::sql_types::Text>(&format!("SELECT current_setting('{name}')"))
        .get_result(conn)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_refused_try_returns_at_once_with_a_usable_connection() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, 7).await.unwrap();
    for request in [
        Request::new(7).wait(Wait::Never),
        Request::new(7).wait(Duration::ZERO),
        Request::all([6, 7, 8]).wait(Wait::Never),
        Request::new(7).shared().wait(Wait::Never),
    ] {
        let error = xact::begin(&mut conn, request.clone()).await.unwrap_err();
        assert!(matches!(error, Error::NotAvailable { .. }), "{error:?}");
        assert!(error.is_busy());
        let error = session::acquire(&mut conn, request).await.unwrap_err();
        assert!(matches!(error, Error::NotAvailable { .. }), "{error:?}");
        assert_eq!(db.locks().await.len(), 1);
    }
    finish(held).await;
    let held = xact::begin(&mut conn, Request::all([6, 7, 8]).wait(Wait::Never))
        .await
        .unwrap();
    assert_eq!(db.locks().await.len(), 3);
    finish(held).await;
    db.until_quiet().await;
}

#[tokio::test]
async fn a_spent_wait_times_out_and_keeps_the_sessions_timeouts() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    execute(&mut conn, "SET lock_timeout = '7s'").await.unwrap();
    execute(&mut conn, "SET statement_timeout = '9s'")
        .await
        .unwrap();
    let wait = Duration::from_millis(50);
    let held = xact::begin(&mut holder, 7).await.unwrap();
    for request in [Request::new(7), Request::all([6, 7])] {
        let error = xact::begin(&mut conn, request.clone().wait(wait))
            .await
            .unwrap_err();
        assert!(
            matches!(error, Error::TimedOut { waited, .. } if waited >= wait),
            "{error:?}"
        );
        let error = session::acquire(&mut conn, request.wait(wait))
            .await
            .unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
        assert_eq!(db.locks().await.len(), 1);
    }
    finish(held).await;
    for wait in [Wait::For(wait), Wait::Forever, Wait::Never, Wait::Session] {
        for request in [Request::new(7), Request::all([5, 6, 7])] {
            let mut held = xact::begin(&mut conn, request.clone().wait(wait))
                .await
                .unwrap();
            assert_eq!(setting(held.conn(), "lock_timeout").await, "7s");
            assert_eq!(setting(held.conn(), "statement_timeout").await, "9s");
            {
                let mut inner = xact::begin(held.conn(), request.clone().wait(wait))
                    .await
                    .unwrap();
                assert_eq!(setting(inner.conn(), "lock_timeout").await, "7s");
                finish(inner).await;
            }
            assert_eq!(setting(held.conn(), "lock_timeout").await, "7s");
            finish(held).await;
            let mut held = session::acquire(&mut conn, request.wait(wait))
                .await
                .unwrap();
            assert_eq!(setting(held.conn(), "lock_timeout").await, "7s");
            held.finish(Ok::<_, Error>(())).await.unwrap();
        }
    }
    assert_eq!(setting(&mut conn, "lock_timeout").await, "7s");
    assert_eq!(setting(&mut conn, "statement_timeout").await, "9s");
    db.until_quiet().await;
}

/// `lock_timeout` counts for each wait: two waits of 1.5 s under a timeout of 2 s would both succeed.
#[tokio::test]
async fn the_budget_is_for_all_keys_together() {
    let db = database().await;
    let (mut first, mut second) = (db.connect().await, db.connect().await);
    let held_first = xact::begin(&mut first, 1).await.unwrap();
    let held_second = xact::begin(&mut second, 2).await.unwrap();
    let mut conn = db.connect().await;
    let started = Instant::now();
    let waiter = tokio::spawn(async move {
        let request = Request::all([1, 2]).wait(Duration::from_secs(2));
        xact::begin(&mut conn, request).await.map(drop)
    });
    // Or has waited: a process that is suspended for longer than the budget sees no waiter.
    let waits_or_has = async |key| {
        let waited_for = |lock: &AdvisoryLock| lock.key == LockedKey::Bigint(key) && !lock.granted;
        while !waiter.is_finished() && !db.locks().await.iter().any(waited_for) {
            tokio::task::yield_now().await;
        }
    };
    waits_or_has(1).await;
    // This test is about time, so there is no state to wait for.
    while started.elapsed() < Duration::from_millis(1500) {
        tokio::task::yield_now().await;
    }
    finish(held_first).await;
    waits_or_has(2).await;
    // Another second and a half, in small steps: if the whole machine is suspended, not only the server's clock continues.
    let mut steps = interval(Duration::from_millis(10));
    steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for _ in 0..150 {
        steps.tick().await;
    }
    finish(held_second).await;
    let error = waiter.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    db.until_quiet().await;
}

#[tokio::test]
async fn for_ever_is_longer_than_the_sessions_own_time_out() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    execute(&mut conn, "SET lock_timeout = '20ms'")
        .await
        .unwrap();
    let held = xact::begin(&mut holder, 7).await.unwrap();
    let error = xact::begin(&mut conn, 7).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    let waiter = tokio::spawn(async move {
        let held = xact::begin(&mut conn, Request::new(7).wait(Wait::Forever)).await?;
        held.finish(Ok::<_, Error>(())).await
    });
    db.until_waiting(7).await;
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(60) {
        tokio::task::yield_now().await;
    }
    finish(held).await;
    waiter.await.unwrap().unwrap();
}

/// A key that another session holds, in the two key spaces.
#[tokio::test]
async fn both_key_spaces_are_tried() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, (7, -1)).await.unwrap();
    for never in [Request::new((7, -1)), Request::all([(7, -1), (7, -2)])] {
        let error = xact::begin(&mut conn, never.wait(Wait::Never))
            .await
            .unwrap_err();
        assert!(matches!(error, Error::NotAvailable { .. }), "{error:?}");
    }
    let other = xact::begin(&mut conn, Request::new((-1, 7)).wait(Wait::Never))
        .await
        .unwrap();
    assert_eq!(other.info().key(), Key::IntInt(-1, 7));
    finish(other).await;
    finish(held).await;
}

/// A body, or other users of the connection, may discard every prepared statement and setting of the session.
#[tokio::test]
async fn every_call_works_after_deallocate_all_and_discard_all() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, 9).await.unwrap();
    let strict = |request: &Request| request.clone().isolation(Isolation::Serializable);
    for forget in ["DEALLOCATE ALL", "DISCARD ALL"] {
        for wait in [
            Wait::Session,
            Wait::Never,
            Wait::For(Duration::from_secs(9)),
        ] {
            for request in [
                Request::new(7),
                Request::all([6, 7]).max_hold(Duration::from_secs(60)),
            ] {
                let request = request.wait(wait);
                // Once before, so that there is something to discard.
                for is_first in [true, false] {
                    if !is_first {
                        execute(&mut conn, forget).await.unwrap();
                    }
                    finish(xact::begin(&mut conn, request.clone()).await.unwrap()).await;
                    if !is_first {
                        execute(&mut conn, forget).await.unwrap();
                    }
                    finish(xact::begin(&mut conn, strict(&request)).await.unwrap()).await;
                    if !is_first {
                        execute(&mut conn, forget).await.unwrap();
                    }
                    let session = session::acquire(&mut conn, request.clone()).await.unwrap();
                    session.finish(Ok::<_, Error>(())).await.unwrap();
                    let mut outer = xact::begin(&mut conn, 8).await.unwrap();
                    if !is_first {
                        execute(outer.conn(), "DEALLOCATE ALL").await.unwrap();
                    }
                    finish(xact::begin(outer.conn(), request.clone()).await.unwrap()).await;
                    finish(outer).await;
                }
            }
        }
        // A refused try is reported as refused.
        for request in [Request::new(9), Request::all([5, 9])] {
            let request = request.wait(Wait::Never);
            for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
                execute(&mut conn, forget).await.unwrap();
                let missed = xact::begin(&mut conn, request.clone().isolation(isolation)).await;
                let error = missed.unwrap_err();
                assert!(matches!(error, Error::NotAvailable { .. }), "{error:?}");
            }
            execute(&mut conn, forget).await.unwrap();
            let error = session::acquire(&mut conn, request).await.unwrap_err();
            assert!(matches!(error, Error::NotAvailable { .. }), "{error:?}");
        }
        assert_eq!(db.locks().await.len(), 1);
    }
    finish(held).await;
    db.until_quiet().await;
}
