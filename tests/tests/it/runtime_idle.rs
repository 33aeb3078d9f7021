//! A runtime of one thread that is not driven: a call that was dropped on it still leaves the
//! server's queue.

use advisory_runtime::{session, xact};
use advisory_tests::bookings::database;
use advisory_tests::dropped_call::{SOON, until_ended};
use advisory_tests::futures::is_ready_within;
use advisory_tests::pauses::pause;
use advisory_tests::statements::run;
use advisory_tests::{Database, Proxy, assert_error, debug_checks_are_on, pid_of};
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// Much longer than the first cancel request takes, which is sent at once.
const BRIEF: Duration = Duration::from_secs(3);

/// Drives connections only inside `block_on`.
fn idle_runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn dropped(future: impl Future, reached: impl Future<Output = ()>) {
    let (mut future, mut reached) = (pin!(future), pin!(reached));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(_) => panic!("it ended"),
        Poll::Pending => reached.as_mut().poll(context),
    })
    .await;
}

fn holds_seven(runtime: &Runtime) -> (Database, AsyncPgConnection) {
    runtime.block_on(async {
        let db = database().await;
        let mut holder = db.connect().await;
        run(&mut holder, "SELECT pg_advisory_lock(7)").await;
        (db, holder)
    })
}

#[test]
fn a_waiter_dropped_on_a_runtime_at_rest_leaves_the_queue() {
    let (observing, idle) = (Runtime::new().unwrap(), idle_runtime());
    let (db, _holder) = holds_seven(&observing);
    for is_session in [false, true] {
        let conn = idle.block_on(async {
            let mut conn = db.connect().await;
            if is_session {
                dropped(session::acquire(&mut conn, 7), db.until_waiting(7)).await;
            } else {
                dropped(xact::begin(&mut conn, 7), db.until_waiting(7)).await;
            }
            conn
        });
        // The connection is not driven.
        observing.block_on(db.until_no_waiters(7));
        drop(conn);
    }
}

/// The lock's message is written when the runtime runs again, after all cancel requests of the
/// drop.
#[test]
fn a_waiter_whose_message_comes_late_leaves_the_queue() {
    let (observing, idle) = (Runtime::new().unwrap(), idle_runtime());
    let (db, _holder) = holds_seven(&observing);
    let proxy = observing.block_on(Proxy::start(&db));
    // The first poll sends a check of debug builds. If its answer comes in two pieces, the second
    // poll only reads the first of them: then nothing was sent for the lock, and nothing is
    // cancelled.
    let polls = if debug_checks_are_on() { 2 } else { 1 };
    let sent = async |least: usize| {
        while proxy.cancel_requests() < least {
            pause().await;
        }
    };
    // On a connection of its own each time: the answer to an earlier check would come first.
    let tried = (0..10).find_map(|_| {
        let (mut conn, pid) = idle.block_on(async {
            let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
            let pid = pid_of(&mut conn).await;
            (conn, pid)
        });
        let is_ready = idle.block_on(is_ready_within(polls, xact::begin(&mut conn, 7)));
        assert!(!is_ready);
        let first = observing.block_on(async { timeout(BRIEF, sent(1)).await });
        first.is_ok().then_some((conn, pid))
    });
    let (_conn, pid) = tried.expect("a call that is dropped in time");
    observing.block_on(async { timeout(SOON, sent(3)).await.unwrap() });
    idle.block_on(until_ended(&db, pid, "a late message"));
}

/// A statement of the body is cancelled, and its transaction too. Locks of an idle session are
/// released when the runtime runs again, or is shut down.
#[test]
fn what_a_runtime_at_rest_holds_is_free_when_it_runs_or_ends() {
    let observing = Runtime::new().unwrap();
    let db = observing.block_on(database());
    for ends in [false, true] {
        let idle = idle_runtime();
        let mut conn = idle.block_on(db.connect());
        idle.block_on(async {
            let mut held = xact::begin(&mut conn, 7).await.unwrap();
            let long = "SELECT pg_sleep(600)";
            dropped(held.conn().batch_execute(long), db.until_active(long)).await;
        });
        observing.block_on(db.until_no_locks());
        let mut conn = idle.block_on(db.connect());
        idle.block_on(async { drop(session::acquire(&mut conn, 8).await.unwrap()) });
        observing.block_on(async {
            // The guard's messages cannot be written.
            assert_eq!(db.locks().await.len(), 1);
        });
        if ends {
            drop(idle);
            observing.block_on(db.until_no_locks());
        } else {
            let none = "SELECT 'held' FROM pg_locks WHERE locktype = 'advisory' \
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
            idle.block_on(db.until_none("no locks", none));
        }
        let refused = observing.block_on(xact::begin(&mut conn, 7)).map(drop);
        assert_error!(refused, BrokenConnection);
    }
}
