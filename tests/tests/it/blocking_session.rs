//! Blocking Diesel: session-level locks are released on every way out, and a lost lock is reported.

use crate::blocking::{book, execute, held_by, insert, pid_of};
use crate::bookings::{committed, database, key_of};
use advisory_runtime::blocking::session;
use advisory_runtime::{Error, Request, Wait, advisory_lock};
use advisory_tests::debug_checks_are_on;
use diesel::connection::SimpleConnection;
use diesel::pg::PgConnection;
use diesel::result::Error as DieselError;
use diesel::{Connection, QueryResult};
use tokio::task::spawn_blocking;

/// Holds the lock around the statements, each in its own message, and ends as requested.
#[advisory_lock(key = "room:<room>", name = "room", scope = "session")]
fn hold(
    conn: &mut PgConnection,
    room: i64,
    statements: &[&str],
    end: Result<(), DieselError>,
) -> Result<(), Error> {
    assert_eq!(held_by(conn)?, 1);
    for statement in statements {
        drop(conn.batch_execute(statement));
    }
    Ok(end?)
}

const BOOK: &str = "INSERT INTO booking VALUES (7, 'Ada')";

#[tokio::test(flavor = "multi_thread")]
async fn the_body_runs_in_autocommit_and_its_writes_stay() {
    let db = database().await;
    let mut conn = db.establish();
    hold(&mut conn, 7, &[BOOK], Ok(())).unwrap();
    assert_eq!(db.locks().await, []);
    let error = hold(&mut conn, 7, &[BOOK], Err(DieselError::NotFound)).unwrap_err();
    assert!(
        matches!(error, Error::Database(DieselError::NotFound)),
        "{error:?}"
    );
    assert_eq!(db.locks().await, []);
    assert_eq!(committed(&db, 7).await, 2);
    hold(&mut conn, 7, &["SELECT 1 FROM no_such_table"], Ok(())).unwrap();
    hold(&mut conn, 7, &["BEGIN", BOOK, "COMMIT"], Ok(())).unwrap();
    assert_eq!(committed(&db, 7).await, 3);
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_body_commits_is_visible_while_the_lock_is_held() {
    #[advisory_lock(key = "room:<room>", name = "room", scope = "session")]
    fn two_transactions(
        conn: &mut PgConnection,
        room: i64,
        written: std::sync::mpsc::Sender<()>,
        go_on: std::sync::mpsc::Receiver<()>,
    ) -> QueryResult<usize> {
        conn.transaction(|conn| insert(conn, room, "Ada"))?;
        written.send(()).unwrap();
        go_on.recv().unwrap();
        conn.transaction(|conn| insert(conn, room, "Grace"))
    }
    let db = database().await;
    let (mut holder, mut conn) = (db.establish(), db.establish());
    let (write, written) = std::sync::mpsc::channel();
    let (go, go_on) = std::sync::mpsc::channel();
    let holding = spawn_blocking(move || two_transactions(&mut holder, 7, write, go_on));
    written.recv().unwrap();
    let waiting = spawn_blocking(move || book(&mut conn, 7, "Linus"));
    db.until_waiting(key_of(7)).await;
    assert_eq!(committed(&db, 7).await, 1);
    go.send(()).unwrap();
    assert_eq!(holding.await.unwrap().unwrap(), 1);
    assert!(!waiting.await.unwrap().unwrap());
    assert_eq!(committed(&db, 7).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn inside_an_open_transaction_it_is_refused() {
    let db = database().await;
    let mut conn = db.establish();
    conn.transaction::<_, DieselError, _>(|conn| {
        let error = hold(conn, 7, &[BOOK], Ok(())).unwrap_err();
        assert!(matches!(error, Error::InTransaction { .. }), "{error:?}");
        insert(conn, 1, "outer")
    })
    .unwrap();
    if debug_checks_are_on() {
        execute(&mut conn, "BEGIN").unwrap();
        let error = hold(&mut conn, 7, &[BOOK], Ok(())).unwrap_err();
        assert!(
            matches!(error, Error::ForeignTransaction { .. }),
            "{error:?}"
        );
        execute(&mut conn, "ROLLBACK").unwrap();
    }
    assert_eq!([committed(&db, 1).await, committed(&db, 7).await], [1, 0]);
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_left_open_is_rolled_back_and_reported() {
    let db = database().await;
    let mut conn = db.establish();
    let statements: [(&[&str], bool); 2] = [
        (&["BEGIN", BOOK], false),
        (&["BEGIN", BOOK, "SELECT 1 FROM no_such_table"], true),
    ];
    for (statements, has_failed) in statements {
        // A transaction that stays open is found in debug builds only.
        if !has_failed && !debug_checks_are_on() {
            continue;
        }
        let error = hold(&mut conn, 7, statements, Ok(())).unwrap_err();
        match error {
            Error::ForeignTransaction { .. } if !has_failed => {}
            Error::RolledBack { .. } if has_failed => {}
            error => panic!("{statements:?}: {error:?}"),
        }
        assert_eq!(db.locks().await, [], "{statements:?}");
        let error = hold(&mut conn, 7, statements, Err(DieselError::NotFound)).unwrap_err();
        assert!(
            matches!(error, Error::Database(DieselError::NotFound)),
            "{error:?}"
        );
        assert_eq!(db.locks().await, [], "{statements:?}");
        assert_eq!(committed(&db, 7).await, 0);
    }
    conn.transaction::<_, DieselError, _>(|conn| insert(conn, 1, "next"))
        .unwrap();
    assert_eq!(committed(&db, 1).await, 1);
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lock_is_reported() {
    let db = database().await;
    let mut conn = db.establish();
    let error = hold(&mut conn, 7, &["SELECT pg_advisory_unlock_all()"], Ok(())).unwrap_err();
    assert!(
        matches!(&error, Error::LockLost { lock, .. } if lock == "room:<room>"),
        "{error:?}"
    );
    hold(&mut conn, 7, &[BOOK], Ok(())).unwrap();
    let held = session::acquire(&mut conn, Request::all([1, 2])).unwrap();
    let unlocked = db.count("SELECT pg_advisory_unlock(1)::int4").await;
    assert_eq!(unlocked, 0, "another session's");
    held.finish(Ok::<_, Error>(())).unwrap();
    let mut held = session::acquire(&mut conn, Request::all([1, 2])).unwrap();
    execute(held.conn(), "SELECT pg_advisory_unlock(2)").unwrap();
    let error = held.finish(Ok::<_, Error>(())).unwrap_err();
    assert!(matches!(error, Error::LockLost { .. }), "{error:?}");
    assert_eq!(db.locks().await, [], "the other one is released");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_lost_with_its_connection_hides_the_bodys_error() {
    let db = database().await;
    let terminate = ["SELECT pg_terminate_backend(pg_backend_pid())"];
    for statements in [&[][..], &terminate] {
        for is_ok in [true, false] {
            let mut conn = db.establish();
            let pid = pid_of(&mut conn);
            let mut held = session::acquire(&mut conn, 7).unwrap();
            for statement in statements {
                held.conn().batch_execute(statement).unwrap_err();
            }
            if statements.is_empty() {
                db.terminate(pid).await;
            }
            let end = if is_ok {
                Ok(())
            } else {
                Err(Error::Database(DieselError::NotFound))
            };
            let error = held.finish(end).unwrap_err();
            match error {
                Error::LockLost { .. } if is_ok => {}
                Error::Database(DieselError::NotFound) if !is_ok => {}
                error => panic!("{statements:?}, {is_ok}: {error:?}"),
            }
            let next = session::acquire(&mut conn, 7).unwrap_err();
            assert!(matches!(next, Error::BrokenConnection { .. }), "{next:?}");
        }
    }
    db.until_no_locks().await;
}

/// The server counts: a session that holds the lock gets it again at once, and releases it as often.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_session_takes_it_twice_and_releases_it_twice() {
    let db = database().await;
    let mut conn = db.establish();
    let mut outer = session::acquire(&mut conn, Request::all([1, 2])).unwrap();
    let mut inner = session::acquire(outer.conn(), Request::new(1).wait(Wait::Never)).unwrap();
    assert_eq!(held_by(inner.conn()).unwrap(), 2);
    inner.finish(Ok::<_, Error>(())).unwrap();
    assert_eq!(held_by(outer.conn()).unwrap(), 2);
    outer.finish(Ok::<_, Error>(())).unwrap();
    assert_eq!(db.locks().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn inside_diesels_test_transaction_it_is_taken_and_released() {
    let db = database().await;
    let mut conn = db.establish();
    conn.begin_test_transaction().unwrap();
    hold(&mut conn, 7, &[BOOK], Ok(())).unwrap();
    assert_eq!(db.locks().await, []);
    hold(&mut conn, 7, &[BOOK], Err(DieselError::NotFound)).unwrap_err();
    assert_eq!(db.locks().await, []);
    assert_eq!(crate::blocking::bookings(&mut conn, 7).unwrap(), 2);
    drop(conn);
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_probe_finds_that_a_second_session_is_kept_out() {
    let db = database().await;
    let pool = db.r2d2(2);
    session::verify(&mut pool.get().unwrap(), &mut pool.get().unwrap()).unwrap();
    assert_eq!(db.locks().await, []);
}

/// Its cancel keys are longer, and belong to libpq: the check of a session does not depend on them. Older servers answer with 3.0.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_protocol_3_2_works_like_any_other() {
    let db = database().await;
    let parameters = if db.url().contains('?') { '&' } else { '?' };
    let url = format!("{}{parameters}max_protocol_version=3.2", db.url());
    let connect = || PgConnection::establish(&url).unwrap();
    let (mut first, mut second) = (connect(), connect());
    session::verify(&mut first, &mut second).unwrap();
    hold(&mut first, 7, &[BOOK], Ok(())).unwrap();
    let held = session::acquire(&mut first, key_of(7)).unwrap();
    let never = Request::new(key_of(7)).wait(Wait::Never);
    let error = session::acquire(&mut second, never).unwrap_err();
    assert!(matches!(error, Error::NotAvailable { .. }), "{error:?}");
    drop(held);
    assert_eq!(db.locks().await, []);
    assert_eq!(committed(&db, 7).await, 1);
}
