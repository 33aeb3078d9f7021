//! Drops in places that are easily forgotten: while another drop is being cleaned up, while a refusal is being named, behind an
//! answer that nobody has read.

use crate::bookings::{database, execute};
use crate::cancel::dropped;
use advisory_runtime::{Error, Isolation, Request, Wait, session, xact};
use diesel_async::AsyncPgConnection;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::time::timeout;

async fn finish(held: xact::Held<'_, AsyncPgConnection>) {
    xact::finish(held, Ok::<_, Error>(())).await.unwrap();
}

/// The second cancel request must not spend itself on what the first drop has left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_dropped_one_after_the_other_leave_no_waiter() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, 7).await.unwrap();
    for patience in [50, 20, 5, 1] {
        for is_session in [false, true] {
            // The first waits when it is dropped: a request that comes before the server has read what it is to cancel is lost.
            if is_session {
                dropped(session::acquire(&mut conn, 7), db.until_waiting(7)).await;
            } else {
                dropped(xact::begin(&mut conn, 7), db.until_waiting(7)).await;
            }
            let patience = Duration::from_millis(patience);
            let is_dropped = if is_session {
                timeout(patience, session::acquire(&mut conn, 7))
                    .await
                    .is_err()
            } else {
                timeout(patience, xact::begin(&mut conn, 7)).await.is_err()
            };
            assert!(is_dropped);
            let next = timeout(Duration::from_secs(30), execute(&mut conn, "SELECT 1")).await;
            next.expect("a statement behind the two").unwrap();
            db.until_no_waiters(7).await;
        }
    }
    finish(held).await;
    db.until_quiet().await;
}

/// On one thread, since on several an answer can come within the poll that asks.
#[tokio::test]
async fn a_missed_try_that_is_dropped_behind_its_answer_leaves_nothing() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, 2).await.unwrap();
    let request = Request::all([1, 2])
        .wait(Wait::Never)
        .isolation(Isolation::RepeatableRead);
    {
        let mut call = pin!(xact::begin(&mut conn, request));
        let polled = poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_pending()));
        assert!(polled.await);
        // The answer comes, and nobody reads it: the miss is a transaction that holds nothing.
        db.until_empty(
            Duration::from_secs(30),
            "an answer",
            "SELECT 'none' WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE state = 'idle in transaction' \
             AND query LIKE '%advisory.step%' AND datname = current_database())",
        )
        .await;
    }
    execute(&mut conn, "SELECT 1").await.unwrap();
    assert_eq!(db.locks().await.len(), 1, "{:?}", db.locks().await);
    finish(held).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_dropped_while_its_refusal_is_named_leaves_nothing() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, 2).await.unwrap();
    for isolation in [None, Some(Isolation::RepeatableRead)] {
        for polls in 1.. {
            let request = Request::all([1, 2]).wait(Duration::from_millis(30));
            let mut left = polls;
            let ready = {
                let mut call = pin!(async {
                    match isolation {
                        None => session::acquire(&mut conn, request).await.map(drop),
                        Some(isolation) => xact::begin(&mut conn, request.isolation(isolation))
                            .await
                            .map(drop),
                    }
                });
                poll_fn(|context| {
                    left -= 1;
                    match call.as_mut().poll(context) {
                        Poll::Ready(_) => Poll::Ready(true),
                        Poll::Pending if left == 0 => Poll::Ready(false),
                        Poll::Pending => Poll::Pending,
                    }
                })
                .await
            };
            execute(&mut conn, "SELECT 1").await.unwrap();
            let locks = db.locks().await;
            assert_eq!(
                locks.len(),
                1,
                "{isolation:?} after poll {polls}: {locks:?}"
            );
            if ready {
                break;
            }
        }
    }
    finish(held).await;
}

/// A role may not end the session of another, so the pool gets a session that refuses; with no lock in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_has_set_another_role_leaves_no_lock_in_a_pool() {
    let db = database().await;
    let role = format!("drops_{}", std::process::id());
    db.run(&format!("CREATE ROLE {role}")).await;
    let pool = db.deadpool(1);
    {
        let mut conn = pool.get().await.unwrap();
        let mut held = session::acquire(&mut conn, 7).await.unwrap();
        execute(held.conn(), &format!("SET ROLE {role}"))
            .await
            .unwrap();
    }
    db.until_no_locks().await;
    execute(&mut pool.get().await.unwrap(), "SELECT 1")
        .await
        .unwrap();
    db.run(&format!("DROP ROLE {role}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_keys_than_a_target_list_takes_are_given_back_too() {
    let db = database().await;
    let mut conn = db.connect().await;
    drop(
        session::acquire(&mut conn, Request::all(0..2000))
            .await
            .unwrap(),
    );
    execute(&mut conn, "SELECT 1").await.unwrap();
    assert_eq!(db.locks().await.len(), 0);
    let strict = Request::all(0..2000).isolation(Isolation::Serializable);
    let held = xact::begin(&mut conn, strict).await.unwrap();
    assert_eq!(db.locks().await.len(), 2000);
    finish(held).await;
    assert_eq!(db.locks().await.len(), 0);
}
