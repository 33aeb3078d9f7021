//! A future dropped after each of its polls, from the first to the last: its connection is closed,
//! and nothing else is affected.
//!
//! No lock, no waiter and no open transaction is left, and no other session's statement is ever
//! cancelled. `every_poll_pools` tests the pool's behaviour.

use crate::calls::assert_closed;
use advisory_runtime::{Error, Request, Wait, session, xact};
use advisory_tests::bookings::{committed, database, execute, insert};
use advisory_tests::dropped_call::{
    Bystanders, DROPS, SCOPES, Scope, WAITS, ask_for_the_pooler, call, call_noting, goes_on,
    until_ended,
};
use advisory_tests::futures::is_ready_within;
use advisory_tests::{Database, assert_error, debug_checks_are_on, pid_of};
use diesel_async::AsyncPgConnection;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Whether the call was dropped when it had sent only a check of debug builds: then its connection
/// is unchanged.
async fn is_untouched(conn: &mut AsyncPgConnection) -> bool {
    debug_checks_are_on() && execute(conn, "SELECT 1").await.is_ok()
}

/// Drops the call after one poll, then after two, until it is ready. Returns how many drops have
/// closed the connection.
async fn drop_at_each_poll(db: &Database, scope: Scope, wait: Wait) -> usize {
    let (mut closed, mut untouched) = (0, 0);
    for polls in 1.. {
        let after = format!("{scope:?}, {wait:?}, dropped after poll {polls}");
        let mut conn = db.connect().await;
        let pid = pid_of(&mut conn).await;
        let is_ending = Cell::new(false);
        let call = call_noting(&mut conn, scope, wait, &is_ending);
        if is_ready_within(polls, call).await {
            goes_on(&mut conn, db, &after).await;
            assert_eq!(db.locks().await, [], "{after}");
            break;
        }
        if is_untouched(&mut conn).await {
            untouched += 1;
            goes_on(&mut conn, db, &after).await;
        } else {
            closed += 1;
            assert_closed(&mut conn, &after).await;
            until_ended(db, pid, &after).await;
        }
        assert_eq!(db.locks().await, [], "{after}");
        if !is_ending.get() {
            assert_eq!(committed(db, 2).await, 0, "{after}");
            if !scope.is_session() {
                assert_eq!(committed(db, 7).await, 0, "{after}");
            }
        }
        db.run("DELETE FROM booking").await;
    }
    assert!(untouched <= 2, "{scope:?}, {wait:?}: {untouched}");
    db.run("DELETE FROM booking").await;
    closed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drop_at_any_poll_closes_the_connection_and_leaves_nothing() {
    let db = database().await;
    ask_for_the_pooler(&db).await;
    let bystanders = Bystanders::start(&db).await;
    for scope in SCOPES {
        for wait in WAITS {
            let mut closed = 0;
            while closed < DROPS {
                closed += drop_at_each_poll(&db, scope, wait).await;
            }
        }
    }
    bystanders.were_left_alone().await;
    db.until_quiet().await;
}

/// The transaction around a nested call ends with it, which its caller learns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nested_call_that_is_dropped_takes_the_outer_one_with_it() {
    let db = database().await;
    for wait in WAITS {
        for polls in 1.. {
            let after = format!("{wait:?}, dropped after poll {polls}");
            let mut conn = db.connect().await;
            let pid = pid_of(&mut conn).await;
            let mut outer = xact::begin(&mut conn, 99).await.unwrap();
            insert(outer.conn(), 2, "outer").await.unwrap();
            let is_ready = is_ready_within(polls, call(outer.conn(), Scope::Xact, wait)).await;
            let is_closed = execute(outer.conn(), "SELECT 1").await.is_err();
            if is_closed {
                insert(outer.conn(), 2, "after the drop").await.unwrap_err();
            }
            let end = outer.finish(Ok::<_, Error>(())).await;
            if is_closed {
                assert!(!is_ready, "{after}");
                assert_error!(end, RolledBack { lock, .. } if lock == "99", "{after}");
                assert_closed(&mut conn, &after).await;
                until_ended(&db, pid, &after).await;
            } else {
                end.unwrap();
                assert!(is_ready || debug_checks_are_on(), "{after}");
            }
            assert_eq!(db.locks().await, [], "{after}");
            let kept = [committed(&db, 2).await, committed(&db, 7).await];
            let expected = [i64::from(!is_closed), i64::from(is_ready)];
            assert_eq!(kept, expected, "{after}");
            db.run("DELETE FROM booking").await;
            if is_ready {
                break;
            }
        }
    }
    db.until_quiet().await;
}

/// Dropped between requesting a held lock and undoing its refusal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nested_call_dropped_at_its_refusal_ends_the_outer_call() {
    let db = database().await;
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, 7).await.unwrap();
    let mut was_closed = false;
    for polls in 1.. {
        let after = format!("dropped after poll {polls}");
        let mut conn = db.connect().await;
        let pid = pid_of(&mut conn).await;
        let mut outer = xact::begin(&mut conn, 99).await.unwrap();
        insert(outer.conn(), 2, "outer").await.unwrap();
        let call = xact::begin(
            outer.conn(),
            Request::new(7).wait(Duration::from_millis(20)),
        );
        let is_ready = is_ready_within(polls, call).await;
        let is_closed = execute(outer.conn(), "SELECT 1").await.is_err();
        let end = outer.finish(Ok::<_, Error>(())).await;
        assert_eq!(end.is_ok(), !is_closed, "{after}: {end:?}");
        if is_ready {
            assert!(!is_closed, "{after}");
            break;
        }
        assert!(is_closed || !was_closed && debug_checks_are_on(), "{after}");
        was_closed = is_closed;
        if is_closed {
            until_ended(&db, pid, &after).await;
        }
    }
    assert!(was_closed);
    held.finish(Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
}

/// Dropped while it waits for a holder, where a call spends most of its time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_waiter_leaves_no_waiter_while_the_lock_is_held() {
    let db = database().await;
    let bystanders = Bystanders::start(&db).await;
    let mut holder = db.connect().await;
    for key in [7, 8] {
        let held = xact::begin(&mut holder, key).await.unwrap();
        for scope in SCOPES {
            if key == 8 && matches!(scope, Scope::One | Scope::OneOfSession) {
                continue;
            }
            for wait in [Wait::Session, Wait::For(Duration::from_secs(600))] {
                let after = format!("{scope:?}, {wait:?}, waiting for {key}");
                let mut conn = db.connect().await;
                let pid = pid_of(&mut conn).await;
                tokio::select! {
                    biased;
                    _ = call(&mut conn, scope, wait) => panic!("{after}: it did not wait"),
                    () = db.until_waiting(key) => {}
                }
                db.until_no_waiters(key).await;
                assert_closed(&mut conn, &after).await;
                until_ended(&db, pid, &after).await;
                let locks = db.locks().await;
                assert_eq!(locks.len(), 1, "{after}: {locks:?}");
            }
        }
        held.finish(Ok::<_, Error>(())).await.unwrap();
    }
    bystanders.were_left_alone().await;
    db.until_quiet().await;
}

/// Dropped when its message may not have been sent yet, on a busy thread: the cancel request is
/// faster than the message that it cancels.
#[tokio::test]
async fn a_waiter_that_is_dropped_at_once_leaves_no_waiter_either() {
    let db = database().await;
    ask_for_the_pooler(&db).await;
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, 7).await.unwrap();
    // The first poll sends a check of debug builds.
    let polls = if debug_checks_are_on() { 2 } else { 1 };
    for scope in [Scope::One, Scope::OneOfSession, Scope::Strict] {
        for work in [0, 1, 30] {
            let after = format!("{scope:?}, behind {work} ms of work");
            let mut conn = db.connect().await;
            let pid = pid_of(&mut conn).await;
            assert!(!is_ready_within(polls, call(&mut conn, scope, Wait::Session)).await);
            // Only this thread runs the connection.
            let started = Instant::now();
            while started.elapsed() < Duration::from_millis(work) {
                std::hint::spin_loop();
            }
            until_ended(&db, pid, &after).await;
        }
    }
    held.finish(Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
}

/// A long statement of the body is cancelled, not waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_statement_of_a_dropped_body_is_cancelled() {
    let db = database().await;
    for scope in SCOPES {
        let after = format!("{scope:?} in a long statement");
        let mut conn = db.connect().await;
        let pid = pid_of(&mut conn).await;
        let long = async {
            let mut held = if scope.is_session() {
                session::acquire(&mut conn, 7).await.unwrap()
            } else {
                xact::begin(&mut conn, scope.request(Wait::Session))
                    .await
                    .unwrap()
            };
            execute(held.conn(), "SELECT pg_sleep(600)").await
        };
        tokio::select! {
            biased;
            _ = long => panic!("{after}: it ended"),
            () = db.until_active("pg_sleep(600)") => {}
        }
        until_ended(&db, pid, &after).await;
        assert_closed(&mut conn, &after).await;
        assert_eq!(db.locks().await, [], "{after}");
    }
    db.until_quiet().await;
}
