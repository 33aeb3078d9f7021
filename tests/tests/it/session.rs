//! Session-level locks: released on every way out, reported when lost, and refused inside a transaction.

use crate::bookings::{committed, database, execute, in_transaction, insert, key_of};
use crate::cancel::caught;
use crate::dropped_call::{assert_closed, until_ended};
use advisory_runtime::{Connection, Error, Request, Wait, advisory_lock, session, xact};
use advisory_tests::{Database, LockedKey, debug_checks_are_on, pid_of};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};

/// How the body ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Ok,
    Err,
    Early,
    Question,
    Panic,
}

const WAYS: [Way; 5] = [Way::Ok, Way::Err, Way::Early, Way::Question, Way::Panic];

#[advisory_lock(key = "room:<room>", name = "room", scope = "session")]
async fn leave<C: Connection>(
    conn: &mut C,
    db: &Database,
    room: i64,
    way: Way,
) -> QueryResult<bool> {
    assert_eq!(held(db).await, [LockedKey::Bigint(key_of(room))]);
    insert(conn.pg(), room, "Ada").await?;
    match way {
        Way::Ok => {}
        Way::Err => return Err(DieselError::NotFound),
        Way::Early => return Ok(false),
        Way::Question => drop(execute(conn.pg(), "SELECT 1/0").await?),
        Way::Panic => panic!("the body's own panic"),
    }
    Ok(true)
}

/// Under a session-level lock: plain statements, and then `Ok` or the body's own error.
#[advisory_lock(key = "room:<room>", name = "room", scope = "session")]
async fn run(conn: &mut AsyncPgConnection, room: i64, sql: &str, is_ok: bool) -> QueryResult<()> {
    let swallowed = conn.batch_execute(sql).await;
    drop(swallowed);
    if is_ok {
        Ok(())
    } else {
        Err(DieselError::NotFound)
    }
}

pub(crate) async fn held(db: &Database) -> Vec<LockedKey> {
    let locks = db.locks().await;
    assert!(locks.iter().all(|lock| lock.granted), "{locks:?}");
    locks.into_iter().map(|lock| lock.key).collect()
}

fn lock_error(result: QueryResult<()>) -> Error {
    Error::from(result.unwrap_err())
}

#[tokio::test]
async fn it_is_released_on_every_way_out() {
    let db = database().await;
    for (before, way) in (0..).zip(WAYS) {
        let mut conn = db.connect().await;
        let pid = pid_of(&mut conn).await;
        let result = caught(leave(&mut conn, &db, 7, way)).await;
        match way {
            Way::Ok => assert!(result.unwrap().unwrap()),
            Way::Err => assert_eq!(result.unwrap(), Err(DieselError::NotFound)),
            Way::Early => assert!(!result.unwrap().unwrap()),
            Way::Question => drop(result.unwrap().unwrap_err()),
            Way::Panic => {
                drop(result.unwrap_err());
                assert_closed(&mut conn, "a panic").await;
                until_ended(&db, pid, "a panic").await;
                conn = db.connect().await;
            }
        }
        assert_eq!(held(&db).await, [], "{way:?}");
        // The body is in no transaction, so its writes stay.
        assert_eq!(committed(&db, 7).await, before + 1, "{way:?}");
        execute(&mut conn, "SELECT 1").await.unwrap();
    }
    db.until_quiet().await;
}

#[tokio::test]
async fn nothing_is_left_in_a_pool() {
    let db = database().await;
    let (bb8, deadpool) = (db.bb8(1).await, db.deadpool(1));
    for way in WAYS {
        drop(caught(async { leave(&mut bb8.get().await.unwrap(), &db, 7, way).await }).await);
        db.until_no_locks().await;
        leave(&mut bb8.get().await.unwrap(), &db, 8, Way::Ok)
            .await
            .unwrap();
        drop(caught(async { leave(&mut deadpool.get().await.unwrap(), &db, 7, way).await }).await);
        db.until_no_locks().await;
        leave(&mut deadpool.get().await.unwrap(), &db, 8, Way::Ok)
            .await
            .unwrap();
        assert_eq!(held(&db).await, [], "{way:?}");
    }
    for sql in [
        "SELECT pg_advisory_unlock_all()",
        "BEGIN",
        "BEGIN; SELECT 1/0",
        "SELECT pg_terminate_backend(pg_backend_pid())",
    ] {
        for is_ok in [true, false] {
            // A transaction that the body leaves open is found in debug builds only.
            if sql == "BEGIN" && is_ok && !debug_checks_are_on() {
                continue;
            }
            run(&mut bb8.get().await.unwrap(), 7, sql, is_ok)
                .await
                .unwrap_err();
            leave(&mut bb8.get().await.unwrap(), &db, 8, Way::Ok)
                .await
                .unwrap();
            run(&mut deadpool.get().await.unwrap(), 7, sql, is_ok)
                .await
                .unwrap_err();
            leave(&mut deadpool.get().await.unwrap(), &db, 8, Way::Ok)
                .await
                .unwrap();
        }
    }
    db.until_quiet().await;
}

#[tokio::test]
async fn a_lock_lost_in_the_body_is_an_error_unless_the_body_fails() {
    let db = database().await;
    for (sql, goes_on) in [
        ("SELECT pg_advisory_unlock_all()", true),
        ("DISCARD ALL", true),
        ("SELECT pg_terminate_backend(pg_backend_pid())", false),
    ] {
        for is_ok in [true, false] {
            let mut conn = db.connect().await;
            let error = lock_error(run(&mut conn, 7, sql, is_ok).await);
            if is_ok {
                assert!(matches!(error, Error::LockLost { .. }), "{sql}: {error:?}");
            } else {
                assert!(
                    matches!(error, Error::Database(DieselError::NotFound)),
                    "{sql}: {error:?}"
                );
            }
            db.until_no_locks().await;
            let next = session::acquire(&mut conn, 7).await.map(drop);
            match next {
                Ok(()) => assert!(goes_on, "{sql}"),
                Err(error) => {
                    assert!(
                        !goes_on && matches!(error, Error::BrokenConnection { .. }),
                        "{sql}: {error:?}"
                    );
                }
            }
        }
    }
    // Terminated by another session, between the body and the release.
    let mut conn = db.connect().await;
    let pid = pid_of(&mut conn).await;
    let mine = session::acquire(&mut conn, 7).await.unwrap();
    db.terminate(pid).await;
    let error = mine.finish(Ok::<_, Error>(())).await.unwrap_err();
    assert!(matches!(error, Error::LockLost { .. }), "{error:?}");
    // Losing one of several is enough; the others are released.
    let mut conn = db.connect().await;
    let mut mine = session::acquire(&mut conn, Request::all([1, 2, 3]))
        .await
        .unwrap();
    execute(mine.conn(), "SELECT pg_advisory_unlock(2)")
        .await
        .unwrap();
    let error = mine.finish(Ok::<_, Error>(())).await.unwrap_err();
    assert!(matches!(error, Error::LockLost { .. }), "{error:?}");
    db.until_quiet().await;
}

#[tokio::test]
async fn inside_an_open_transaction_it_is_refused() {
    let db = database().await;
    let mut conn = db.connect().await;
    in_transaction::<_, DieselError>(&mut conn, async |conn| {
        for wait in [Wait::Session, Wait::Never, Wait::Forever] {
            let error = session::acquire(conn, Request::new(7).wait(wait))
                .await
                .unwrap_err();
            assert!(matches!(error, Error::InTransaction { .. }), "{error:?}");
        }
        let error = lock_error(run(conn, 7, "SELECT 1", true).await);
        assert!(matches!(error, Error::InTransaction { .. }), "{error:?}");
        insert(conn, 1, "after the refusals").await
    })
    .await
    .unwrap();
    assert_eq!(committed(&db, 1).await, 1);
    let mut outer = xact::begin(&mut conn, 1).await.unwrap();
    let error = session::acquire(outer.conn(), 7).await.unwrap_err();
    assert!(matches!(error, Error::InTransaction { .. }), "{error:?}");
    outer.finish(Ok::<_, Error>(())).await.unwrap();
    // A transaction that Diesel does not know about is found in debug builds only.
    for begin in ["BEGIN", "BEGIN; INSERT INTO booking VALUES (2, 'plain')"] {
        if !debug_checks_are_on() {
            break;
        }
        conn.batch_execute(begin).await.unwrap();
        let error = session::acquire(&mut conn, 7).await.unwrap_err();
        assert!(
            matches!(error, Error::ForeignTransaction { .. }),
            "{error:?}"
        );
        conn.batch_execute("ROLLBACK").await.unwrap();
    }
    assert_eq!(held(&db).await, []);
    assert_eq!(committed(&db, 2).await, 0);
}
