//! A cancel request at any statement of an acquisition or of a release: a connection that stays
//! usable holds nothing.

use super::super::{Conn, acquire, begin, connect, end, execute, pid_of, settings};
use advisory_runtime::{Error, Isolation, Request, Wait};
use advisory_tests::Database;
use advisory_tests::bookings::database;
use advisory_tests::futures::spawn_blocking;
use diesel::connection::SimpleConnection;
use diesel::pg::PgConnection;
use std::time::{Duration, Instant};

/// For each of the two interfaces, which send the same statements.
const ROUNDS: u32 = 40;
const LONG: Duration = Duration::from_secs(600);

/// Longer than a release takes.
const RELEASE: Duration = Duration::from_millis(1);

/// So short that every interruption is one of a wait that has lasted as long as its budget.
const SHORTEST: Duration = Duration::from_nanos(1);

/// Cancels the session's statement after a part of the time that the call takes: at once in the
/// first round, and after one and a half times that in the last one.
fn cancel(mut conn: PgConnection, pid: i32, call: Duration, round: u32) -> PgConnection {
    let (delay, started) = (call * 3 / 2 * round / ROUNDS, Instant::now());
    while started.elapsed() < delay {
        std::hint::spin_loop();
    }
    conn.batch_execute(&format!("SELECT pg_cancel_backend({pid})"))
        .unwrap();
    conn
}

fn requests() -> Vec<(Request, bool)> {
    let mut requests = Vec::new();
    let mut push = |request: Request| {
        requests.push((request.clone().max_hold(LONG), true));
        requests.push((request.isolation(Isolation::Serializable), false));
    };
    // The more keys, the longer the message, and the more cancel requests hit it.
    for keys in [vec![7], (1..=300).collect()] {
        for wait in [Wait::For(SHORTEST), Wait::Never] {
            push(Request::all(keys.clone()).wait(wait));
        }
    }
    // More than fit into one statement.
    push(Request::all(1..=600).wait(SHORTEST));
    requests
}

/// Nothing is held, or the connection is closed and will hold nothing.
async fn assert_nothing_is_left(db: &Database, is_usable: bool, what: &str) {
    if is_usable {
        assert_eq!(db.locks().await, [], "{what}");
    } else {
        db.until_no_locks().await;
    }
}

async fn call(conn: &mut Conn, request: Request, is_session: bool) -> Result<Duration, Error> {
    let started = Instant::now();
    let held = if is_session {
        acquire(conn, request).await?
    } else {
        begin(conn, request).await?
    };
    let took = started.elapsed();
    drop(end(held, Ok::<_, Error>(())).await);
    Ok(took)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquisition_cancelled_at_any_statement_leaves_no_lock() {
    let db = database().await;
    let (mut conn, mut other) = (connect(&db).await, db.establish());
    let (mut pid, before) = (pid_of(&mut conn).await, settings(&mut conn).await);
    for (request, is_session) in requests() {
        let (mut took, mut refused, mut closed) = (Duration::MAX, 0, 0);
        for _ in 0..5 {
            let again = call(&mut conn, request.clone(), is_session).await;
            took = took.min(again.unwrap());
        }
        for round in 0..ROUNDS {
            let cancel = spawn_blocking(move || cancel(other, pid, took, round));
            let called = call(&mut conn, request.clone(), is_session).await;
            other = cancel.await.unwrap();
            let is_usable = execute(&mut conn, "SELECT 1").await.is_ok();
            refused += u32::from(called.is_err());
            closed += u32::from(!is_usable);
            let what = format!("{called:?}, {request:?}");
            assert_nothing_is_left(&db, is_usable, &what).await;
            if !is_usable {
                conn = connect(&db).await;
                pid = pid_of(&mut conn).await;
            } else if called.is_err() {
                assert_eq!(settings(&mut conn).await, before, "{what}");
            }
        }
        eprintln!("of {ROUNDS} calls {refused} were refused, {closed} closed their connection");
    }
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_cancelled_at_any_statement_leaves_nothing() {
    let db = database().await;
    let (mut conn, mut other) = (connect(&db).await, db.establish());
    let before = settings(&mut conn).await;
    for keys in [vec![7], vec![6, 7, 8]] {
        let request = Request::all(keys).max_hold(LONG);
        for round in 0..ROUNDS {
            let pid = pid_of(&mut conn).await;
            let held = acquire(&mut conn, request.clone()).await.unwrap();
            let cancel = spawn_blocking(move || cancel(other, pid, RELEASE, round));
            let end = end(held, Ok::<_, Error>(())).await;
            other = cancel.await.unwrap();
            let is_usable = execute(&mut conn, "SELECT 1").await.is_ok();
            assert_nothing_is_left(&db, is_usable, &format!("{end:?}")).await;
            // The body has done nothing that could have been rolled back.
            assert!(!matches!(end, Err(Error::RolledBack { .. })), "{end:?}");
            if is_usable {
                assert_eq!(settings(&mut conn).await, before, "{end:?}");
            } else {
                conn = connect(&db).await;
            }
        }
    }
    db.until_quiet().await;
}
