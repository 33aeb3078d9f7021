//! Session-level locks: the body's writes stay, a lost lock is reported, and an open transaction is
//! refused.

use super::super::{
    Conn, acquire, batch, begin, connect, end, in_transaction, insert, locked_in_session, pid_of,
    run,
};
use advisory_runtime::{Error, Request, Wait};
use advisory_tests::bookings::{committed, database, outcome};
use advisory_tests::held_keys::held;
use advisory_tests::{LockedKey, assert_error, debug_checks_are_on};
use diesel::result::Error as DieselError;
use std::time::Duration;

const BOOK: &str = "INSERT INTO booking VALUES (7, 'Ada')";

/// Runs the statements under the lock, each in its own message, and returns `Ok` or the body's own
/// error.
async fn hold(conn: &mut Conn, statements: &[&str], is_ok: bool) -> Result<(), Error> {
    locked_in_session(conn, 7, async |conn| {
        for statement in statements {
            drop(batch(conn, statement).await);
        }
        outcome(is_ok)
    })
    .await
}

fn is_bodys(error: &Error) -> bool {
    matches!(error, Error::Database(DieselError::NotFound))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_body_runs_in_autocommit_and_its_writes_stay() {
    let db = database().await;
    let mut conn = connect(&db).await;
    let calls: [(&[&str], bool, i64); 4] = [
        (&[BOOK], true, 1),
        (&[BOOK], false, 2),
        (&["SELECT 1 FROM no_such_table"], true, 2),
        (&["BEGIN", BOOK, "COMMIT"], true, 3),
    ];
    for (statements, is_ok, rows) in calls {
        let end = hold(&mut conn, statements, is_ok).await;
        assert_eq!(end.is_ok(), is_ok, "{end:?}");
        assert!(end.as_ref().err().is_none_or(is_bodys), "{end:?}");
        assert_eq!(db.locks().await, []);
        assert_eq!(committed(&db, 7).await, rows);
    }
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inside_an_open_transaction_it_is_refused() {
    let db = database().await;
    let mut conn = connect(&db).await;
    in_transaction::<_, DieselError>(&mut conn, async |conn| {
        for wait in [Wait::Session, Wait::Never, Wait::Forever] {
            let refused = acquire(conn, Request::new(7).wait(wait)).await.map(drop);
            assert_error!(refused, InTransaction);
        }
        assert_error!(hold(conn, &[BOOK], true).await, InTransaction);
        insert(conn, 1, "after the refusals").await
    })
    .await
    .unwrap();
    let mut outer = begin(&mut conn, 1).await.unwrap();
    assert_error!(acquire(outer.conn(), 7).await, InTransaction);
    end(outer, Ok::<_, Error>(())).await.unwrap();
    // A transaction that Diesel does not know about is found in debug builds only.
    for begin in ["BEGIN", "BEGIN; INSERT INTO booking VALUES (2, 'plain')"] {
        if !debug_checks_are_on() {
            break;
        }
        batch(&mut conn, begin).await.unwrap();
        assert_error!(hold(&mut conn, &[BOOK], true).await, ForeignTransaction);
        batch(&mut conn, "ROLLBACK").await.unwrap();
    }
    for (room, rows) in [(1, 1), (2, 0), (7, 0)] {
        assert_eq!(committed(&db, room).await, rows, "{room}");
    }
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lock_is_reported_unless_the_body_fails() {
    let db = database().await;
    let terminate = "SELECT pg_terminate_backend(pg_backend_pid())";
    for (sql, goes_on) in [
        ("SELECT pg_advisory_unlock_all()", true),
        ("DISCARD ALL", true),
        (terminate, false),
    ] {
        for is_ok in [true, false] {
            let mut conn = connect(&db).await;
            let error = hold(&mut conn, &[sql], is_ok).await.unwrap_err();
            let is_expected = match &error {
                Error::LockLost { lock, .. } => is_ok && lock == "room:<room>",
                error => !is_ok && is_bodys(error),
            };
            assert!(is_expected, "{sql}, {is_ok}: {error:?}");
            db.until_no_locks().await;
            match acquire(&mut conn, 7).await.map(drop) {
                Ok(()) => assert!(goes_on, "{sql}"),
                Err(Error::BrokenConnection { .. }) => assert!(!goes_on, "{sql}"),
                Err(error) => panic!("{sql}: {error:?}"),
            }
        }
    }
}

/// Terminated by another session, between the body and the release.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_lost_between_body_and_release_is_reported() {
    let db = database().await;
    for is_ok in [true, false] {
        let mut conn = connect(&db).await;
        let pid = pid_of(&mut conn).await;
        let held = acquire(&mut conn, 7).await.unwrap();
        db.terminate(pid).await;
        let result = outcome(is_ok);
        match end(held, result).await.unwrap_err() {
            Error::LockLost { .. } if is_ok => {}
            error if !is_ok && is_bodys(&error) => {}
            error => panic!("{is_ok}: {error:?}"),
        }
        assert_error!(acquire(&mut conn, 7).await, BrokenConnection);
    }
    db.until_no_locks().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn losing_one_of_several_is_enough_and_the_others_are_released() {
    let db = database().await;
    let mut conn = connect(&db).await;
    let held = acquire(&mut conn, Request::all([1, 2, 3])).await.unwrap();
    let unlocked = db.count("SELECT pg_advisory_unlock(1)::int4").await;
    assert_eq!(unlocked, 0, "another session's");
    end(held, Ok::<_, Error>(())).await.unwrap();
    let mut held = acquire(&mut conn, Request::all([1, 2, 3])).await.unwrap();
    run(held.conn(), "SELECT pg_advisory_unlock(2)").await;
    assert_error!(end(held, Ok::<_, Error>(())).await, LockLost);
    assert_eq!(db.locks().await, []);
    db.until_quiet().await;
}

/// As PostgreSQL counts: released as often as acquired, separately for each mode.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_acquires_its_lock_again_and_releases_as_often() {
    let db = database().await;
    let mut conn = connect(&db).await;
    let mut outer = acquire(&mut conn, 7).await.unwrap();
    for again in [
        Request::new(7),
        Request::new(7).wait(Wait::Never),
        Request::new(7).wait(Duration::from_secs(5)),
        Request::new(7).shared(),
        Request::all([6, 7, 8]),
    ] {
        let inner = acquire(outer.conn(), again).await.unwrap();
        end(inner, Ok::<_, Error>(())).await.unwrap();
        assert_eq!(held(&db).await, [LockedKey::Bigint(7)]);
    }
    end(outer, Ok::<_, Error>(())).await.unwrap();
    assert_eq!(held(&db).await, []);
    db.until_quiet().await;
}
