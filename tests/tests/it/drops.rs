//! Drops in unusual places: immediately one after another, while a refusal is being named, after an
//! answer that was not read, under another role.

use crate::calls::assert_closed;
use advisory_runtime::{Error, Isolation, Request, Wait, session, xact};
use advisory_tests::bookings::{database, execute, finish, in_transaction, run};
use advisory_tests::dropped_call::{ask_for_the_pooler, until_ended};
use advisory_tests::futures::{dropped, is_ready_within};
use advisory_tests::{Proxy, assert_error, debug_checks_are_on, owns_server, pid_of};
use diesel_async::{AsyncConnection as _, AsyncPgConnection};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Some before the server has read the message, some after that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_dropped_one_after_the_other_leave_no_waiter() {
    let db = database().await;
    ask_for_the_pooler(&db).await;
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, 7).await.unwrap();
    for patience in [50, 20, 5, 1, 0] {
        let patience = Duration::from_millis(patience);
        for is_session in [false, true] {
            let mut conn = db.connect().await;
            let pid = pid_of(&mut conn).await;
            let is_dropped = if is_session {
                let call = session::acquire(&mut conn, 7);
                timeout(patience, call).await.is_err()
            } else {
                timeout(patience, xact::begin(&mut conn, 7)).await.is_err()
            };
            assert!(is_dropped);
            // Dropped before its message was sent, it leaves the connection unchanged.
            if !debug_checks_are_on() || execute(&mut conn, "SELECT 1").await.is_err() {
                until_ended(&db, pid, &format!("dropped after {patience:?}")).await;
            }
            db.until_no_waiters(7).await;
        }
    }
    dropped(xact::begin(&mut db.connect().await, 7), db.until_waiting(7)).await;
    db.until_no_waiters(7).await;
    finish(held).await;
    db.until_quiet().await;
}

/// As on a busy machine: the first cancel request arrives before the backend reads the call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_read_after_its_cancel_request_leaves_the_queue() {
    // Otherwise the backend would read the check of a debug build.
    if !owns_server() || debug_checks_are_on() {
        return;
    }
    let db = database().await;
    ask_for_the_pooler(&db).await;
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, 7).await.unwrap();
    loop {
        let mut conn = db.connect().await;
        let pid = pid_of(&mut conn).await;
        let signal = |signal: &str| {
            let mut kill = std::process::Command::new("kill");
            assert!(
                kill.args([signal, &pid.to_string()])
                    .status()
                    .unwrap()
                    .success()
            );
        };
        signal("-STOP");
        let stopped = Instant::now();
        let call = xact::begin(&mut conn, 7);
        assert!(timeout(Duration::from_millis(20), call).await.is_err());
        // This test is about time: the first request is sent meanwhile, and the last one is not.
        db.run("SELECT pg_sleep(0.08)").await;
        signal("-CONT");
        if stopped.elapsed() < Duration::from_secs(1) {
            until_ended(&db, pid, "dropped while its backend was stopped").await;
            break;
        }
        // A machine that was suspended for that long has sent all of them.
        drop(conn);
        db.run(&format!("SELECT pg_terminate_backend({pid})")).await;
        until_ended(&db, pid, "a backend that is terminated").await;
    }
    finish(held).await;
    db.until_quiet().await;
}

/// The transaction may still be open with one of the keys: the connection is closed, and the error
/// is that of the cancellation.
#[tokio::test]
async fn a_missed_try_whose_undo_is_cancelled_closes_its_connection() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, 2).await.unwrap();
    for is_nested in [false, true] {
        let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
        let pid = pid_of(&mut conn).await;
        let request = Request::all([1, 2]).wait(Wait::Never);
        let missed = if is_nested {
            proxy.cancel("*/;ROLLBACK TO");
            let transaction =
                in_transaction::<_, Error>(&mut conn, async |conn| xact::lock(conn, request).await);
            transaction.await.map(drop).unwrap_err()
        } else {
            proxy.cancel("*/;ROLLBACK");
            xact::begin(&mut conn, request).await.map(drop).unwrap_err()
        };
        assert_error!(missed, Database);
        let after = format!("a miss, not undone, nested: {is_nested}: {missed}");
        until_ended(&db, pid, &after).await;
        assert_closed(&mut conn, &after).await;
        let first = xact::begin(&mut db.connect().await, Request::all([1]).wait(Wait::Never))
            .await
            .map(drop);
        first.unwrap();
    }
    finish(held).await;
    db.until_quiet().await;
}

/// On one thread, since on several an answer can arrive during the poll that sends the request.
#[tokio::test]
async fn a_missed_try_dropped_after_its_answer_leaves_nothing() {
    let db = database().await;
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, 2).await.unwrap();
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        let mut conn = db.connect().await;
        let pid = pid_of(&mut conn).await;
        let request = Request::all([1, 2]).wait(Wait::Never).isolation(isolation);
        for polls in 1.. {
            if is_ready_within(polls, xact::begin(&mut conn, request.clone())).await {
                assert!(polls > 1);
                break;
            }
            if execute(&mut conn, "SELECT 1").await.is_err() {
                let after = format!("a miss, dropped after poll {polls}");
                until_ended(&db, pid, &after).await;
                assert_closed(&mut conn, &after).await;
                conn = db.connect().await;
            }
            assert_eq!(db.locks().await.len(), 1, "{:?}", db.locks().await);
        }
    }
    finish(held).await;
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_dropped_while_its_refusal_is_named_leaves_nothing() {
    let db = database().await;
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, 2).await.unwrap();
    for isolation in [
        None,
        Some(Isolation::ReadCommitted),
        Some(Isolation::RepeatableRead),
    ] {
        for polls in 1.. {
            let mut conn = db.connect().await;
            let pid = pid_of(&mut conn).await;
            let request = Request::all([1, 2]).wait(Duration::from_millis(30));
            let ready = is_ready_within(polls, async {
                match isolation {
                    None => session::acquire(&mut conn, request).await.map(drop),
                    Some(isolation) => xact::begin(&mut conn, request.isolation(isolation))
                        .await
                        .map(drop),
                }
            })
            .await;
            let after = format!("{isolation:?} after poll {polls}");
            if execute(&mut conn, "SELECT 1").await.is_err() {
                assert!(
                    !ready,
                    "{after}: a wait that timed out keeps the connection"
                );
                until_ended(&db, pid, &after).await;
            }
            let locks = db.locks().await;
            assert_eq!(locks.len(), 1, "{after}: {locks:?}");
            if ready {
                break;
            }
        }
    }
    finish(held).await;
}

/// A role may not end the session of another role, so the pool gets a session that refuses
/// statements and holds no lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_has_set_another_role_leaves_no_lock_in_a_pool() {
    let db = database().await;
    let role = format!("drops_{}", std::process::id());
    db.run(&format!("CREATE ROLE {role}")).await;
    let pool = db.deadpool(1);
    {
        let mut conn = pool.get().await.unwrap();
        let mut held = session::acquire(&mut conn, 7).await.unwrap();
        run(held.conn(), &format!("SET ROLE {role}")).await;
    }
    db.until_no_locks().await;
    run(&mut pool.get().await.unwrap(), "SELECT 1").await;
    db.run(&format!("DROP ROLE {role}")).await;
}
