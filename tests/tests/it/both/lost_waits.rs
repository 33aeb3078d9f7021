//! A session that ends before it has the lock is reported as a lost connection, not as a cancelled
//! wait.

use super::super::{
    Conn, LockGuard, acquire, begin, begin_test_transaction, connect, end, execute, in_transaction,
    lock, pid_of, spawn,
};
use advisory_runtime::{Error, Isolation, Request, Wait};
use advisory_tests::bookings::database;
use advisory_tests::{Database, assert_error};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
enum Way {
    Xact,
    Strict,
    /// In a transaction of Diesel's own.
    Nested,
    /// Acquired in the middle of such a transaction, without a body.
    Middle,
    Session,
    TestSession,
}

const WAYS: [Way; 6] = [
    Way::Xact,
    Way::Strict,
    Way::Nested,
    Way::Middle,
    Way::Session,
    Way::TestSession,
];

/// Requests for key 7, which another session holds: those that wait at the server, and those that
/// poll.
fn requests() -> (Vec<Request>, Vec<Request>) {
    let (one, several) = (Request::new(7), Request::all([6, 7, 8]));
    let mut waiting = Vec::new();
    for wait in [Wait::Session, Wait::Forever, Wait::For(LONG)] {
        waiting.extend([one.clone().wait(wait), several.clone().wait(wait)]);
    }
    waiting.push(one.clone().max_hold(LONG).wait(LONG));
    waiting.push(several.clone().max_hold(LONG).shared());
    let poll = |request: Request| request.poll(Duration::from_millis(5));
    let mut polling = vec![poll(one.clone()), poll(several)];
    polling.push(poll(one.clone().permits(2).wait(LONG)));
    polling.push(poll(one.permits(2).max_hold(LONG)));
    (waiting, polling)
}

async fn refused(conn: &mut Conn, way: Way, request: Request) -> Error {
    let begun = match way {
        Way::Xact => begin(conn, request).await.map(drop),
        Way::Strict => {
            let request = request.isolation(Isolation::Serializable);
            begin(conn, request).await.map(drop)
        }
        Way::Nested | Way::Middle => {
            let nested = in_transaction::<(), Error>(conn, async |conn| match way {
                Way::Nested => begin(conn, request).await.map(drop),
                _ => lock(conn, request).await.map(drop),
            });
            nested.await
        }
        Way::Session | Way::TestSession => acquire(conn, request).await.map(drop),
    };
    begun.unwrap_err()
}

/// The session waits at the server, or has polled.
async fn until_it_waits(db: &Database, pid: i32, polls: bool) {
    if polls {
        let not_yet = format!(
            "SELECT query FROM pg_stat_activity WHERE pid = {pid} AND strpos(query, 'pg_try_advisory') = 0"
        );
        let claim = "a session that polls";
        return db.until_none(claim, &not_yet).await;
    }
    db.until_waiting(7).await;
}

/// Holds key 7 and both of its permits.
async fn hold<'h>(db: &Database, holder: &'h mut Conn) -> LockGuard<'h> {
    let mut held = begin(holder, 7).await.unwrap();
    let second = Request::new(7).permits(2).wait(Wait::Never);
    // Each call begins at a random permit, and the session can take the one that it holds again.
    while db.locks().await.len() < 2 {
        lock(held.conn(), second.clone()).await.unwrap();
    }
    held
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_session_ends_reports_a_lost_connection() {
    let db = database().await;
    let mut holder = connect(&db).await;
    let held = hold(&db, &mut holder).await;
    let (waiting, polling) = requests();
    for way in WAYS {
        for (requests, polls) in [(&waiting, false), (&polling, true)] {
            for request in requests {
                let what = format!("{way:?} {request:?}");
                let mut conn = connect(&db).await;
                if matches!(way, Way::TestSession) {
                    begin_test_transaction(&mut conn).await.unwrap();
                }
                let pid = pid_of(&mut conn).await;
                let request = request.clone();
                let waiter = spawn(async move { (refused(&mut conn, way, request).await, conn) });
                until_it_waits(&db, pid, polls).await;
                db.terminate(pid).await;
                let (error, mut conn) = waiter.await.unwrap();
                assert_error!(error, Database, "{what}");
                execute(&mut conn, "SELECT 1").await.unwrap_err();
                assert_error!(begin(&mut conn, 9).await, BrokenConnection, "{what}");
            }
        }
    }
    end(held, Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_ended_before_the_call_is_a_lost_connection() {
    let db = database().await;
    for way in [Way::Xact, Way::Strict, Way::Session] {
        let (waiting, polling) = requests();
        let never = Request::all([7, 8]).wait(Wait::Never);
        for request in [waiting, polling, vec![never]].concat() {
            let what = format!("{way:?} {request:?}");
            let mut conn = connect(&db).await;
            let pid = pid_of(&mut conn).await;
            db.terminate(pid).await;
            assert_error!(refused(&mut conn, way, request).await, Database, "{what}");
            execute(&mut conn, "SELECT 1").await.unwrap_err();
            assert_error!(begin(&mut conn, 9).await, BrokenConnection, "{what}");
        }
    }
    db.until_quiet().await;
}
