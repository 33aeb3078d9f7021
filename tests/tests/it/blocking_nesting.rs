//! Blocking Diesel: locked calls inside an open transaction. `Ok` keeps the lock to the end of the outer transaction, `Err`
//! releases it with the savepoint.

use crate::blocking::{book, execute, finish, held_by, insert, pid_of};
use crate::bookings::{committed, database, key_of};
use advisory_runtime::blocking::xact;
use advisory_runtime::{Error, advisory_lock};
use advisory_tests::debug_checks_are_on;
use diesel::pg::PgConnection;
use diesel::result::Error as DieselError;
use diesel::{Connection, QueryResult};

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
fn fail(conn: &mut PgConnection, room: i64) -> QueryResult<()> {
    insert(conn, room, "nobody")?;
    Err(DieselError::NotFound)
}

/// Runs one statement under a lock.
#[advisory_lock(key = "inner", name = "inner", scope = "xact")]
fn run(conn: &mut PgConnection, sql: &str) -> QueryResult<()> {
    drop(execute(conn, sql));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ok_keeps_the_lock_to_the_end_of_the_outer_transaction() {
    let db = database().await;
    let (mut conn, mut other) = (db.establish(), db.establish());
    conn.transaction::<_, DieselError, _>(|conn| {
        assert!(book(conn, 7, "Ada")?);
        assert_eq!(held_by(conn)?, 1, "still held");
        let rows = crate::blocking::bookings(&mut other, 7)?;
        assert_eq!(rows, 0, "not committed yet");
        Ok(())
    })
    .unwrap();
    assert_eq!(committed(&db, 7).await, 1);
    assert_eq!(db.locks().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_releases_the_lock_and_keeps_the_outer_transaction() {
    let db = database().await;
    let mut conn = db.establish();
    conn.transaction::<_, DieselError, _>(|conn| {
        insert(conn, 1, "outer")?;
        let error = fail(conn, 7).unwrap_err();
        assert!(matches!(error, DieselError::NotFound), "{error:?}");
        assert_eq!(held_by(conn)?, 0, "freed with the savepoint");
        insert(conn, 2, "outer")
    })
    .unwrap();
    let rows = [
        committed(&db, 1).await,
        committed(&db, 7).await,
        committed(&db, 2).await,
    ];
    assert_eq!(rows, [1, 0, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_lock_leaves_the_outer_transaction_alive() {
    #[advisory_lock(key = "room:<room>", name = "room", wait = "never")]
    fn try_book(conn: &mut PgConnection, room: i64) -> QueryResult<usize> {
        insert(conn, room, "nobody")
    }
    let db = database().await;
    let (mut holder, mut conn) = (db.establish(), db.establish());
    let held = xact::begin(&mut holder, key_of(7)).unwrap();
    execute(&mut conn, "SET lock_timeout = '50ms'").unwrap();
    conn.transaction::<_, DieselError, _>(|conn| {
        for refused in [book(conn, 7, "Ada").map(drop), try_book(conn, 7).map(drop)] {
            let error = refused.unwrap_err();
            assert!(
                Error::find(&error).is_some_and(|error| error.is_busy()),
                "{error:?}"
            );
        }
        assert_eq!(try_book(conn, 8)?, 1);
        insert(conn, 1, "outer")
    })
    .unwrap();
    finish(held);
    let rows = [
        committed(&db, 1).await,
        committed(&db, 7).await,
        committed(&db, 8).await,
    ];
    assert_eq!(rows, [1, 0, 1]);
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_calls_nest_in_locked_calls() {
    #[advisory_lock(key = "outer", name = "outer", scope = "xact")]
    fn outer(conn: &mut PgConnection) -> QueryResult<bool> {
        fail(conn, 6).unwrap_err();
        let booked = book(conn, 7, "Ada")?;
        assert_eq!(held_by(conn)?, 2);
        Ok(booked)
    }
    let db = database().await;
    let mut conn = db.establish();
    assert!(outer(&mut conn).unwrap());
    assert!(!outer(&mut conn).unwrap());
    assert_eq!([committed(&db, 6).await, committed(&db, 7).await], [0, 1]);
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_needs_to_be_outside_is_refused_inside() {
    #[advisory_lock(key = "room:<room>", name = "room", nested = "refuse")]
    fn outside(conn: &mut PgConnection, room: i64) -> QueryResult<usize> {
        insert(conn, room, "nobody")
    }
    #[advisory_lock(key = "room:<room>", name = "room", isolation = "serializable")]
    fn strict(conn: &mut PgConnection, room: i64) -> QueryResult<usize> {
        insert(conn, room, "nobody")
    }
    let db = database().await;
    let mut conn = db.establish();
    conn.transaction::<_, DieselError, _>(|conn| {
        for refused in [outside(conn, 7), strict(conn, 7)] {
            let error = refused.unwrap_err();
            assert!(
                matches!(
                    Error::find(&error).as_deref(),
                    Some(Error::InTransaction { .. })
                ),
                "{error:?}"
            );
        }
        insert(conn, 1, "outer")
    })
    .unwrap();
    assert_eq!([committed(&db, 7).await, committed(&db, 1).await], [0, 1]);
    outside(&mut conn, 8).unwrap();
    strict(&mut conn, 9).unwrap();
    assert_eq!([committed(&db, 8).await, committed(&db, 9).await], [1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn inside_repeatable_read_it_is_refused() {
    let db = database().await;
    let mut conn = db.establish();
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        conn.transaction::<_, DieselError, _>(|conn| {
            execute(conn, &format!("SET TRANSACTION ISOLATION LEVEL {level}"))?;
            let error = book(conn, 7, "Ada").unwrap_err();
            assert!(
                matches!(
                    Error::find(&error).as_deref(),
                    Some(Error::StaleSnapshot { .. })
                ),
                "{error:?}"
            );
            insert(conn, 1, "outer")
        })
        .unwrap();
    }
    assert_eq!([committed(&db, 7).await, committed(&db, 1).await], [0, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ignored_nested_error_is_found_and_keeps_the_outer_one() {
    let db = database().await;
    let mut conn = db.establish();
    conn.transaction::<_, DieselError, _>(|conn| {
        let error = run(conn, "SELECT 1 FROM no_such_table").unwrap_err();
        assert!(
            matches!(
                Error::find(&error).as_deref(),
                Some(Error::RolledBack { .. })
            ),
            "{error:?}"
        );
        assert_eq!(held_by(conn)?, 0);
        insert(conn, 1, "outer")
    })
    .unwrap();
    assert_eq!(committed(&db, 1).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nested_commit_by_hand_poisons_the_outer_transaction() {
    #[advisory_lock(key = "inner", name = "inner", scope = "xact")]
    fn commit_and_fail(conn: &mut PgConnection) -> QueryResult<()> {
        execute(conn, "COMMIT")?;
        Err(DieselError::NotFound)
    }
    let db = database().await;
    for is_ok in [true, false] {
        let mut conn = db.establish();
        let result = conn.transaction::<(), DieselError, _>(|conn| {
            let error = if is_ok {
                run(conn, "COMMIT").unwrap_err()
            } else {
                commit_and_fail(conn).unwrap_err()
            };
            let is_found = matches!(
                Error::find(&error).as_deref(),
                Some(Error::TransactionEnded { .. })
            );
            assert_eq!(is_found, is_ok, "{error:?}");
            insert(conn, 1, "on its own").unwrap_err();
            Ok(())
        });
        result.unwrap_err();
    }
    assert_eq!(committed(&db, 1).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nested_body_that_lost_its_lock_half_way_is_found_out() {
    #[advisory_lock(key = "inner", name = "inner", scope = "xact")]
    fn begin_again(conn: &mut PgConnection) -> QueryResult<()> {
        insert(conn, 1, "undone")?;
        execute(conn, "ROLLBACK TO SAVEPOINT advisory_savepoint_1")?;
        insert(conn, 3, "without the lock").map(drop)
    }
    if !debug_checks_are_on() {
        return;
    }
    let db = database().await;
    let mut conn = db.establish();
    conn.transaction::<_, DieselError, _>(|conn| {
        let error = begin_again(conn).unwrap_err();
        assert!(
            matches!(
                Error::find(&error).as_deref(),
                Some(Error::TransactionEnded { .. })
            ),
            "{error:?}"
        );
        insert(conn, 2, "outer")
    })
    .unwrap();
    let rows = [
        committed(&db, 1).await,
        committed(&db, 2).await,
        committed(&db, 3).await,
    ];
    assert_eq!(rows, [0, 1, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn inside_diesels_test_transaction_nothing_is_committed() {
    let db = database().await;
    let mut conn = db.establish();
    conn.begin_test_transaction().unwrap();
    assert!(book(&mut conn, 7, "Ada").unwrap());
    assert!(!book(&mut conn, 7, "Grace").unwrap());
    fail(&mut conn, 8).unwrap_err();
    assert!(book(&mut conn, 8, "Grace").unwrap());
    drop(conn);
    db.until_quiet().await;
    assert_eq!([committed(&db, 7).await, committed(&db, 8).await], [0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_lost_in_a_nested_body_poisons_the_outer_one() {
    let db = database().await;
    let mut conn = db.establish();
    let result = conn.transaction::<(), DieselError, _>(|conn| {
        let error = run(conn, "SELECT pg_terminate_backend(pg_backend_pid())").unwrap_err();
        assert!(matches!(error, DieselError::DatabaseError(..)), "{error:?}");
        Ok(())
    });
    result.unwrap_err();
}

/// Diesel's own connection notices a manual `COMMIT`, so the call begins its own transaction.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_after_a_commit_by_hand_is_its_own_transaction() {
    let db = database().await;
    let mut conn = db.establish();
    let result = conn.transaction::<(), DieselError, _>(|conn| {
        execute(conn, "COMMIT")?;
        assert!(book(conn, 7, "Ada")?);
        assert_eq!(held_by(conn)?, 0);
        Ok(())
    });
    assert!(
        matches!(result, Err(DieselError::NotInTransaction)),
        "{result:?}"
    );
    assert_eq!(committed(&db, 7).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_outer_transaction_is_left_for_diesel_to_roll_back() {
    let db = database().await;
    let pool = db.r2d2(1);
    let mut conn = pool.get().unwrap();
    let pid = pid_of(&mut conn);
    let result = conn.transaction::<(), DieselError, _>(|conn| {
        book(conn, 1, "Ada")?;
        drop(execute(conn, "SELECT 1 FROM no_such_table"));
        book(conn, 2, "Ada").unwrap_err();
        Err(DieselError::NotFound)
    });
    assert!(matches!(result, Err(DieselError::NotFound)), "{result:?}");
    drop(conn);
    // The connection is idle in its pool, so only the rollback can have released the lock.
    db.until_quiet().await;
    let mut conn = pool.get().unwrap();
    assert_eq!(pid_of(&mut conn), pid);
    assert!(book(&mut conn, 1, "Grace").unwrap());
}
