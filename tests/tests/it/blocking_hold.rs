//! Blocking Diesel: a body that exceeds `max_hold` is not committed, and the server ends the
//! session of a stopped client. The timeouts of the session are as before afterwards.

use crate::calls::book_blocking as book;
use advisory_runtime::blocking::session;
use advisory_runtime::{Error, Request, Wait, advisory_lock};
use advisory_tests::blocking::{execute, held_by, insert, pid_of, settings};
use advisory_tests::bookings::{committed, database};
use advisory_tests::futures::spawn_blocking;
use advisory_tests::holds::{ROUNDS, SERVERS_MORE};
use advisory_tests::{assert_error, assert_matches};
use diesel::connection::SimpleConnection;
use diesel::pg::PgConnection;
use diesel::result::Error as DieselError;
use diesel::{Connection as _, QueryResult};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const NOTHING: Duration = Duration::from_nanos(1);
const AN_HOUR: Duration = Duration::from_secs(3600);

#[advisory_lock(key = "room:<room>", name = "room", max_hold = max_hold)]
fn bounded(
    conn: &mut PgConnection,
    room: i64,
    max_hold: Duration,
    end: QueryResult<()>,
) -> QueryResult<()> {
    insert(conn, room, "Ada")?;
    end
}

/// The result of a call during which this thread was not suspended past the server's bound;
/// otherwise the server has ended the session.
fn in_time<T, E>(mut call: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    for _ in 0..ROUNDS {
        let started = Instant::now();
        let end = call();
        if started.elapsed() < SERVERS_MORE {
            return end;
        }
    }
    panic!("none of {ROUNDS} rounds was in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_took_too_long_is_rolled_back() {
    let db = database().await;
    let mut conn = db.establish();
    let error = in_time(|| {
        conn = db.establish();
        bounded(&mut conn, 7, NOTHING, Ok(()))
    });
    let error = error.unwrap_err();
    assert_error!(
        error,
        HoldExceeded { lock, max_hold, .. } if lock == "room:<room>" && *max_hold == NOTHING
    );
    assert_eq!(db.locks().await, []);
    assert_eq!(committed(&db, 7).await, 0);
    assert!(
        book(&mut conn, 7, "Grace").unwrap(),
        "the connection stays usable"
    );
    assert_eq!(committed(&db, 7).await, 1);
    bounded(&mut conn, 8, AN_HOUR, Ok(())).unwrap();
    assert_eq!(committed(&db, 8).await, 1);
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_of_a_body_that_took_too_long_is_its_own() {
    let db = database().await;
    let mut conn = db.establish();
    let error = in_time(|| {
        conn = db.establish();
        bounded(&mut conn, 7, NOTHING, Err(DieselError::NotFound))
    });
    let error = error.unwrap_err();
    assert_matches!(error, DieselError::NotFound);
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inside_a_transaction_its_savepoint_is_rolled_back() {
    use diesel::Connection;
    let db = database().await;
    let ended = in_time(|| {
        db.establish().transaction::<_, DieselError, _>(|conn| {
            let refused = bounded(conn, 7, NOTHING, Ok(()));
            bounded(conn, 8, AN_HOUR, Ok(()))?;
            Ok(refused)
        })
    });
    assert_error!(ended.unwrap(), HoldExceeded);
    assert_eq!([committed(&db, 7).await, committed(&db, 8).await], [0, 1]);
}

/// The connection is lost, and the body does not check it.
#[tokio::test(flavor = "multi_thread")]
async fn the_hold_timeout_is_reported_before_the_lost_connection() {
    #[advisory_lock(key = "room:<room>", name = "room", max_hold = NOTHING)]
    fn lost(conn: &mut PgConnection, room: i64) -> Result<(), Error> {
        insert(conn, room, "Ada")?;
        let terminate = "SELECT pg_terminate_backend(pg_backend_pid())";
        execute(conn, terminate).unwrap_err();
        Ok(())
    }
    let db = database().await;
    assert_error!(in_time(|| lost(&mut db.establish(), 7)), HoldExceeded);
    assert_eq!(committed(&db, 7).await, 0);
}

struct Stop {
    /// Whether it executed a statement before the server's bound was over.
    started: mpsc::Sender<bool>,
    go_on: mpsc::Receiver<()>,
}

impl Stop {
    fn here(&self, ran: &QueryResult<usize>) {
        self.started.send(ran.is_ok()).unwrap();
        self.go_on.recv().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_frees_what_a_stopped_body_holds() {
    #[advisory_lock(key = "room:<room>", name = "room", max_hold = "1ms")]
    fn in_xact(conn: &mut PgConnection, room: i64, stop: Stop) -> QueryResult<()> {
        stop.here(&insert(conn, room, "Ada"));
        Ok(())
    }
    #[advisory_lock(
        key = "room:<room>",
        name = "room",
        scope = "session",
        max_hold = "1ms"
    )]
    fn in_session(conn: &mut PgConnection, room: i64, stop: Stop) -> QueryResult<()> {
        stop.here(&execute(conn, "SELECT 1"));
        Ok(())
    }
    let db = database().await;
    for body in [in_xact, in_session] {
        let mut rounds = 0;
        let mut has_run = false;
        while !has_run {
            assert!(rounds < ROUNDS, "none of {ROUNDS} rounds was in time");
            rounds += 1;
            let (start, started) = mpsc::channel();
            let (go, go_on) = mpsc::channel();
            let (mut conn, mut next) = (db.establish(), db.establish());
            let stop = Stop {
                started: start,
                go_on,
            };
            let stopped = spawn_blocking(move || {
                let end = body(&mut conn, 7, stop);
                (end, conn)
            });
            has_run = started.recv().unwrap();
            assert!(book(&mut next, 7, "Grace").unwrap(), "it got the lock");
            go.send(()).unwrap();
            let (end, mut conn) = stopped.await.unwrap();
            assert_error!(end, HoldExceeded);
            assert_error!(book(&mut conn, 8, "Ada"), BrokenConnection);
            assert_eq!(committed(&db, 7).await, 1);
            db.run("DELETE FROM booking").await;
        }
    }
}

/// Even on a busy machine, a body that does nothing does not take this long.
const BOUND: Duration = Duration::from_secs(600);

/// `transaction_timeout` exists since PostgreSQL 17.
fn set_timeouts(conn: &mut PgConnection, value: &str) {
    let set = format!(
        "SELECT set_config(name, '{value}', false) FROM pg_settings WHERE name IN \
         ('idle_in_transaction_session_timeout', 'idle_session_timeout', 'transaction_timeout', \
                'client_connection_check_interval')"
    );
    execute(conn, &set).unwrap();
}

/// The state in which a body leaves its session.
const OPEN: [&str; 3] = ["", "BEGIN", "BEGIN;SELECT 1/0"];

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_lock_returns_a_session_with_its_own_timeouts() {
    let db = database().await;
    let pool = db.r2d2(1);
    let one = Request::new(7).max_hold(BOUND);
    let requests = [
        one.clone(),
        one.clone().wait(Wait::Never),
        one.wait(BOUND).permits(3),
        Request::all([7, 8]).shared().max_hold(BOUND),
    ];
    for own in ["0", "2h"] {
        let mut conn = pool.get().unwrap();
        set_timeouts(&mut conn, own);
        let (pid, before) = (pid_of(&mut conn), settings(&mut conn));
        drop(conn);
        for request in &requests {
            for open in OPEN {
                let held = session::acquire_owned(pool.get().unwrap(), request.clone());
                let mut lock = held.unwrap();
                assert_ne!(settings(lock.conn()), before, "{request:?}");
                drop(lock.conn().batch_execute(open));
                drop(lock);
                let mut conn = pool.get().unwrap();
                assert_eq!(settings(&mut conn), before, "{request:?}, {open}");
                assert_eq!(pid_of(&mut conn), pid, "{request:?}, {open}");
                assert_eq!(held_by(&mut conn).unwrap(), 0, "{request:?}, {open}");
            }
        }
    }
}

#[advisory_lock(
    key = "room:<room>",
    name = "room",
    scope = "session",
    max_hold = "10m"
)]
fn panics(conn: &mut PgConnection, room: i64, open: &str) -> Result<(), Error> {
    drop(conn.batch_execute(open));
    panic!("the body's own panic")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_the_body_leaves_the_session_its_own_timeouts() {
    let db = database().await;
    let mut conn = db.establish();
    set_timeouts(&mut conn, "2h");
    let (pid, before) = (pid_of(&mut conn), settings(&mut conn));
    for is_test in [false, true] {
        if is_test {
            conn.begin_test_transaction().unwrap();
        }
        let kinds = if is_test { &OPEN[..1] } else { &OPEN[..] };
        for open in kinds {
            let call = AssertUnwindSafe(|| panics(&mut conn, 7, open));
            catch_unwind(call).unwrap_err();
            assert_eq!(settings(&mut conn), before, "{is_test}, {open}");
            assert_eq!(pid_of(&mut conn), pid, "{is_test}, {open}");
            assert_eq!(held_by(&mut conn).unwrap(), 0, "{is_test}, {open}");
        }
    }
}
