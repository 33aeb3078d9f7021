//! The bounds of a wait, and what a call leaves unchanged.

use super::super::{acquire, begin, connect, end, run, setting, spawn};
use advisory_runtime::{Error, Isolation, Key, Request, Wait};
use advisory_tests::bookings::database;
use advisory_tests::dropped_call::WAITS;
use advisory_tests::{LockedKey, assert_error};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_try_returns_at_once_with_a_usable_connection() {
    let db = database().await;
    let (mut holder, mut conn) = (connect(&db).await, connect(&db).await);
    let held = begin(&mut holder, 7).await.unwrap();
    for request in [
        Request::new(7).wait(Wait::Never),
        Request::new(7).wait(Duration::ZERO),
        Request::all([6, 7, 8]).wait(Wait::Never),
        Request::new(7).shared().wait(Wait::Never),
    ] {
        let error = begin(&mut conn, request.clone()).await.unwrap_err();
        assert_error!(error, NotAvailable);
        assert!(error.is_busy());
        assert_error!(acquire(&mut conn, request).await, NotAvailable);
        assert_eq!(db.locks().await.len(), 1);
    }
    end(held, Ok::<_, Error>(())).await.unwrap();
    let held = begin(&mut conn, Request::all([6, 7, 8]).wait(Wait::Never))
        .await
        .unwrap();
    assert_eq!(db.locks().await.len(), 3);
    end(held, Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
}

/// Any of several keys can be held, in either key space, at any level and in either scope.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_try_keeps_none_of_its_keys() {
    let db = database().await;
    let (mut holder, mut conn) = (connect(&db).await, connect(&db).await);
    for taken in 1..=3 {
        let held = begin(&mut holder, (7, taken)).await.unwrap();
        let request = Request::all([(7, 1), (7, 2), (7, 3)]);
        for wait in [Wait::Never, Wait::For(Duration::from_millis(30))] {
            let request = request.clone().wait(wait);
            let strict = request.clone().isolation(Isolation::Serializable);
            for error in [
                begin(&mut conn, request.clone()).await.map(drop),
                begin(&mut conn, strict).await.map(drop),
                acquire(&mut conn, request.clone()).await.map(drop),
                acquire(&mut conn, request.shared()).await.map(drop),
            ] {
                let error = error.unwrap_err();
                assert!(error.is_busy(), "{error:?}");
            }
            let [lock] = &*db.locks().await else {
                panic!("{:?}", db.locks().await);
            };
            assert_eq!(lock.key, LockedKey::Pair(7, taken));
        }
        end(held, Ok::<_, Error>(())).await.unwrap();
    }
    let held = acquire(&mut conn, Request::all([3, 1, 2, 1]))
        .await
        .unwrap();
    assert_eq!(db.locks().await.len(), 3);
    end(held, Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spent_wait_times_out_and_keeps_the_sessions_timeouts() {
    let db = database().await;
    let (mut holder, mut conn) = (connect(&db).await, connect(&db).await);
    run(&mut conn, "SET lock_timeout = '7s'").await;
    run(&mut conn, "SET statement_timeout = '9s'").await;
    let wait = Duration::from_millis(50);
    let held = begin(&mut holder, 7).await.unwrap();
    for request in [Request::new(7), Request::all([6, 7])] {
        let error = begin(&mut conn, request.clone().wait(wait))
            .await
            .unwrap_err();
        assert_error!(error, TimedOut { waited, .. } if *waited >= wait);
        assert_error!(acquire(&mut conn, request.wait(wait)).await, TimedOut);
        assert_eq!(db.locks().await.len(), 1);
    }
    end(held, Ok::<_, Error>(())).await.unwrap();
    for wait in [Wait::For(wait), Wait::Forever, Wait::Never, Wait::Session] {
        for request in [Request::new(7), Request::all([5, 6, 7])] {
            let mut held = begin(&mut conn, request.clone().wait(wait)).await.unwrap();
            assert_eq!(setting(held.conn(), "lock_timeout").await, "7s");
            assert_eq!(setting(held.conn(), "statement_timeout").await, "9s");
            {
                let mut inner = begin(held.conn(), request.clone().wait(wait))
                    .await
                    .unwrap();
                assert_eq!(setting(inner.conn(), "lock_timeout").await, "7s");
                end(inner, Ok::<_, Error>(())).await.unwrap();
            }
            assert_eq!(setting(held.conn(), "lock_timeout").await, "7s");
            end(held, Ok::<_, Error>(())).await.unwrap();
            let mut held = acquire(&mut conn, request.wait(wait)).await.unwrap();
            assert_eq!(setting(held.conn(), "lock_timeout").await, "7s");
            end(held, Ok::<_, Error>(())).await.unwrap();
        }
    }
    assert_eq!(setting(&mut conn, "lock_timeout").await, "7s");
    assert_eq!(setting(&mut conn, "statement_timeout").await, "9s");
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn for_ever_is_longer_than_the_sessions_own_time_out() {
    let db = database().await;
    let (mut holder, mut conn) = (connect(&db).await, connect(&db).await);
    run(&mut conn, "SET lock_timeout = '20ms'").await;
    let held = begin(&mut holder, 7).await.unwrap();
    assert_error!(begin(&mut conn, 7).await, TimedOut);
    let waiter = spawn(async move {
        let held = begin(&mut conn, Request::new(7).wait(Wait::Forever)).await?;
        end(held, Ok::<_, Error>(())).await
    });
    db.until_waiting(7).await;
    // Longer than the session's own timeout, which this test is about; the server's clock counts
    // it.
    db.run("SELECT pg_sleep(0.06)").await;
    end(held, Ok::<_, Error>(())).await.unwrap();
    waiter.await.unwrap().unwrap();
}

/// A key that another session holds, in the two key spaces.
#[tokio::test(flavor = "multi_thread")]
async fn both_key_spaces_are_tried() {
    let db = database().await;
    let (mut holder, mut conn) = (connect(&db).await, connect(&db).await);
    let held = begin(&mut holder, (7, -1)).await.unwrap();
    for never in [Request::new((7, -1)), Request::all([(7, -1), (7, -2)])] {
        let error = begin(&mut conn, never.wait(Wait::Never)).await.unwrap_err();
        assert_error!(error, NotAvailable);
    }
    let other = begin(&mut conn, Request::new((-1, 7)).wait(Wait::Never))
        .await
        .unwrap();
    assert_eq!(other.info().key(), Key::IntInt(-1, 7));
    end(other, Ok::<_, Error>(())).await.unwrap();
    end(held, Ok::<_, Error>(())).await.unwrap();
}

/// A body, or other users of the connection, may discard every prepared statement and setting of
/// the session.
#[tokio::test(flavor = "multi_thread")]
async fn every_call_works_after_deallocate_all_and_discard_all() {
    let db = database().await;
    let (mut holder, mut conn) = (connect(&db).await, connect(&db).await);
    let held = begin(&mut holder, 9).await.unwrap();
    let strict = |request: &Request| request.clone().isolation(Isolation::Serializable);
    for forget in ["DEALLOCATE ALL", "DISCARD ALL"] {
        for wait in WAITS {
            for request in [
                Request::new(7),
                Request::all([6, 7]).max_hold(Duration::from_secs(60)),
            ] {
                let request = request.wait(wait);
                // Once before, so that there is something to discard.
                for is_first in [true, false] {
                    if !is_first {
                        run(&mut conn, forget).await;
                    }
                    let held = begin(&mut conn, request.clone()).await.unwrap();
                    end(held, Ok::<_, Error>(())).await.unwrap();
                    if !is_first {
                        run(&mut conn, forget).await;
                    }
                    let held = begin(&mut conn, strict(&request)).await.unwrap();
                    end(held, Ok::<_, Error>(())).await.unwrap();
                    if !is_first {
                        run(&mut conn, forget).await;
                    }
                    let session = acquire(&mut conn, request.clone()).await.unwrap();
                    end(session, Ok::<_, Error>(())).await.unwrap();
                    let mut outer = begin(&mut conn, 8).await.unwrap();
                    if !is_first {
                        run(outer.conn(), "DEALLOCATE ALL").await;
                    }
                    let held = begin(outer.conn(), request.clone()).await.unwrap();
                    end(held, Ok::<_, Error>(())).await.unwrap();
                    end(outer, Ok::<_, Error>(())).await.unwrap();
                }
            }
        }
        // A refused try is reported as refused.
        for request in [Request::new(9), Request::all([5, 9])] {
            let request = request.wait(Wait::Never);
            for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
                run(&mut conn, forget).await;
                let missed = begin(&mut conn, request.clone().isolation(isolation)).await;
                assert_error!(missed, NotAvailable);
            }
            run(&mut conn, forget).await;
            assert_error!(acquire(&mut conn, request).await, NotAvailable);
        }
        assert_eq!(db.locks().await.len(), 1);
    }
    end(held, Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
}
