//! Blocking Diesel: `Ok` means committed, and every other outcome is reported; the body's own error is returned unchanged.

use crate::blocking::{book, execute, insert, pid_of};
use crate::bookings::{committed, database, key_of};
use advisory_runtime::blocking::xact;
use advisory_runtime::{Error, advisory_lock};
use advisory_tests::{Proxy, debug_checks_are_on};
use diesel::connection::{AnsiTransactionManager, SimpleConnection, TransactionManager};
use diesel::pg::PgConnection;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::{Connection, QueryResult};

#[derive(Debug)]
enum AppError {
    Refused,
    Lock(Error),
    #[expect(dead_code, reason = "shown by Debug when an assertion fails")]
    Diesel(DieselError),
}

impl From<Error> for AppError {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

impl From<DieselError> for AppError {
    fn from(error: DieselError) -> Self {
        Self::Diesel(error)
    }
}

/// Books, then runs the statement and ignores its result.
#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
fn book_then(conn: &mut PgConnection, room: i64, sql: &str) -> QueryResult<()> {
    insert(conn, room, "Ada")?;
    drop(conn.batch_execute(sql));
    Ok(())
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
fn refuse(conn: &mut PgConnection, room: i64) -> Result<(), AppError> {
    insert(conn, room, "Ada")?;
    Err(AppError::Refused)
}

/// The error is detected, nothing is left behind when the call returns, and the connection stays usable.
async fn found(sql: &str) -> (Error, i64) {
    let db = database().await;
    let mut conn = db.establish();
    let error = book_then(&mut conn, 7, sql).unwrap_err();
    assert_eq!(db.locks().await, []);
    db.until_quiet().await;
    assert!(
        book(&mut conn, 8, "Grace").unwrap(),
        "the connection stays usable"
    );
    assert_eq!(committed(&db, 8).await, 1);
    (error.into(), committed(&db, 7).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_is_the_bodys_own_and_rolls_back_and_frees_the_lock() {
    let db = database().await;
    let mut conn = db.establish();
    let error = refuse(&mut conn, 7).unwrap_err();
    assert!(matches!(error, AppError::Refused), "{error:?}");
    assert_eq!(db.locks().await, []);
    assert_eq!(committed(&db, 7).await, 0);
    assert!(book(&mut conn, 7, "Grace").unwrap());
    assert_eq!(committed(&db, 7).await, 1);
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_functions_that_the_attribute_calls_do_the_same() {
    let db = database().await;
    let mut conn = db.establish();
    for (room, result) in [(1, Ok(5)), (2, Err(AppError::Refused))] {
        let mut held = xact::begin(&mut conn, key_of(room)).unwrap();
        assert_eq!(held.info().keys(), [key_of(room).into()]);
        insert(held.conn(), room, "Ada").unwrap();
        let is_ok = result.is_ok();
        assert_eq!(held.finish(result).is_ok(), is_ok);
        assert_eq!(committed(&db, room).await, i64::from(is_ok));
    }
    let mut held = xact::begin(&mut conn, key_of(3)).unwrap();
    insert(held.conn(), 3, "Ada").unwrap();
    drop(held);
    assert_eq!(db.locks().await, [], "gone when the guard is dropped");
    assert_eq!(committed(&db, 3).await, 0);
    assert!(book(&mut conn, 3, "Grace").unwrap());
    assert_eq!(committed(&db, 3).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ignored_database_error_is_not_a_commit() {
    let (error, rows) = found("SELECT 1 FROM no_such_table").await;
    assert!(
        matches!(&error, Error::RolledBack { lock, .. } if lock == "room:<room>"),
        "{error:?}"
    );
    assert_eq!(rows, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_ended_by_hand_is_found_out() {
    for (sql, kept) in [("COMMIT", 1), ("ROLLBACK", 0), ("COMMIT AND CHAIN", 1)] {
        if sql == "COMMIT AND CHAIN" && !debug_checks_are_on() {
            continue;
        }
        let (error, rows) = found(sql).await;
        assert!(
            matches!(error, Error::TransactionEnded { .. }),
            "{sql}: {error:?}"
        );
        assert_eq!(rows, kept, "{sql}: what the body committed stays");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_without_the_lock_is_rolled_back() {
    #[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
    fn begin_again(conn: &mut PgConnection, room: i64) -> QueryResult<()> {
        execute(conn, "COMMIT")?;
        execute(conn, "BEGIN")?;
        insert(conn, room, "without the lock").map(drop)
    }
    let db = database().await;
    let mut conn = db.establish();
    let error = begin_again(&mut conn, 7).unwrap_err();
    assert!(
        matches!(
            Error::find(&error).as_deref(),
            Some(Error::TransactionEnded { .. })
        ),
        "{error:?}"
    );
    assert_eq!(committed(&db, 7).await, 0);
    assert!(book(&mut conn, 8, "Grace").unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_of_diesel_that_do_not_pair_are_found_out() {
    #[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
    fn unpaired(conn: &mut PgConnection, room: i64, ends: bool) -> QueryResult<()> {
        insert(conn, room, "Ada")?;
        if ends {
            AnsiTransactionManager::commit_transaction(conn)
        } else {
            AnsiTransactionManager::begin_transaction(conn)
        }
    }
    let db = database().await;
    let mut conn = db.establish();
    let error = unpaired(&mut conn, 1, true).unwrap_err();
    assert!(
        matches!(
            Error::find(&error).as_deref(),
            Some(Error::TransactionEnded { .. })
        ),
        "{error:?}"
    );
    db.until_quiet().await;
    let error = unpaired(&mut conn, 2, false).unwrap_err();
    assert!(
        matches!(
            Error::find(&error).as_deref(),
            Some(Error::RolledBack { .. })
        ),
        "{error:?}"
    );
    db.until_quiet().await;
    assert_eq!([committed(&db, 1).await, committed(&db, 2).await], [1, 0]);
    assert!(book(&mut conn, 7, "Grace").unwrap());
    assert_eq!(committed(&db, 7).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn savepoints_inside_the_body_are_its_own_business() {
    #[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
    fn retry(conn: &mut PgConnection, room: i64) -> QueryResult<()> {
        let undone = conn.transaction(|conn| execute(conn, "SELECT 1 FROM no_such_table"));
        assert!(undone.is_err());
        insert(conn, room, "Ada").map(drop)
    }
    let db = database().await;
    retry(&mut db.establish(), 7).unwrap();
    assert_eq!(committed(&db, 7).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deferred_constraint_is_reported_as_what_it_is() {
    let db = database().await;
    db.run("ALTER TABLE booking ADD UNIQUE (room) DEFERRABLE INITIALLY DEFERRED")
        .await;
    let mut conn = db.establish();
    let error = book_then(&mut conn, 7, "INSERT INTO booking VALUES (7, 'Grace')").unwrap_err();
    assert!(
        matches!(
            error,
            DieselError::DatabaseError(DatabaseErrorKind::UniqueViolation, _)
        ),
        "{error:?}"
    );
    db.until_quiet().await;
    assert!(
        book(&mut conn, 7, "Ada").unwrap(),
        "the connection stays usable"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_cut_during_commit_is_an_unknown_outcome() {
    for executed in [false, true] {
        let db = database().await;
        let proxy = Proxy::start(&db).await;
        let mut conn = PgConnection::establish(proxy.url()).unwrap();
        if executed {
            proxy.cut_after_forwarding(";COMMIT");
        } else {
            proxy.cut_before(";COMMIT");
        }
        let error = book(&mut conn, 7, "Ada").unwrap_err();
        assert!(
            matches!(
                Error::find(&error).as_deref(),
                Some(Error::CommitUnknown { .. })
            ),
            "{error:?}"
        );
        db.until_quiet().await;
        assert_eq!(
            committed(&db, 7).await,
            i64::from(executed),
            "both are possible, so neither is claimed"
        );
    }
}

/// The state of the connection, as the next call on it sees it.
fn is_broken(conn: &mut PgConnection) -> bool {
    let next = book(conn, 99, "Ada");
    let error = next.as_ref().err().and_then(|error| Error::find(error));
    matches!(error.as_deref(), Some(Error::BrokenConnection { .. }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_lost_in_the_body_is_unknown_or_the_bodys_error() {
    #[advisory_lock(key = "job", name = "job", scope = "xact")]
    fn lost(
        conn: &mut PgConnection,
        other: &mut PgConnection,
        is_ok: bool,
    ) -> Result<(), AppError> {
        let pid = pid_of(conn);
        execute(other, &format!("SELECT pg_terminate_backend({pid}, 10000)"))?;
        if is_ok {
            Ok(())
        } else {
            Err(AppError::Refused)
        }
    }
    let db = database().await;
    let mut other = db.establish();
    for is_ok in [false, true] {
        let mut conn = db.establish();
        let error = lost(&mut conn, &mut other, is_ok).unwrap_err();
        match (is_ok, &error) {
            (true, AppError::Lock(Error::CommitUnknown { .. })) | (false, AppError::Refused) => {}
            _ => panic!("{is_ok}: {error:?}"),
        }
        assert!(is_broken(&mut conn), "{is_ok}");
    }
}

/// Even if Diesel has noticed the loss: the body may have committed by hand before.
#[tokio::test(flavor = "multi_thread")]
async fn a_loss_that_the_body_has_seen_is_an_unknown_outcome() {
    let db = database().await;
    let terminate = "SELECT pg_terminate_backend(pg_backend_pid())";
    for (statement, kept) in [
        (terminate, 0),
        ("COMMIT; SELECT pg_terminate_backend(pg_backend_pid())", 1),
    ] {
        let mut conn = db.establish();
        let error = book_then(&mut conn, 7, statement).unwrap_err();
        assert!(
            matches!(
                Error::find(&error).as_deref(),
                Some(Error::CommitUnknown { .. })
            ),
            "{error:?}"
        );
        assert!(is_broken(&mut conn));
        assert_eq!(committed(&db, 7).await, kept);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_lost_before_the_begin_is_replaced_by_its_pool() {
    let db = database().await;
    let pool = db.r2d2(1);
    {
        let mut conn = pool.get().unwrap();
        let pid = pid_of(&mut conn);
        db.terminate(pid).await;
        book(&mut conn, 7, "Ada").unwrap_err();
        assert!(is_broken(&mut conn));
    }
    assert!(book(&mut pool.get().unwrap(), 7, "Ada").unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_sql_transaction_is_refused_and_not_committed() {
    for begin in [
        "BEGIN",
        "BEGIN ISOLATION LEVEL REPEATABLE READ",
        "BEGIN; SELECT 1 FROM no_such_table",
    ] {
        let db = database().await;
        let mut conn = db.establish();
        drop(conn.batch_execute(begin));
        drop(insert(&mut conn, 7, "by hand"));
        let error = book(&mut conn, 8, "Ada").unwrap_err();
        assert!(
            matches!(
                Error::find(&error).as_deref(),
                Some(Error::ForeignTransaction { .. })
            ),
            "{begin}: {error:?}"
        );
        execute(&mut conn, "COMMIT").unwrap();
        assert_eq!([committed(&db, 7).await, committed(&db, 8).await], [0, 0]);
        assert!(
            book(&mut conn, 8, "Ada").unwrap(),
            "the connection stays usable"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_does_not_commit_another_guards_transaction() {
    if !debug_checks_are_on() {
        return;
    }
    let db = database().await;
    let (mut one, mut two) = (db.establish(), db.establish());
    let mut first = xact::begin(&mut one, 1).unwrap();
    let mut second = xact::begin(&mut two, 2).unwrap();
    std::mem::swap(first.conn(), second.conn());
    for held in [first, second] {
        let result = held.finish(Ok::<_, Error>(()));
        assert!(
            matches!(result, Err(Error::TransactionEnded { .. })),
            "{result:?}"
        );
    }
    db.until_quiet().await;
}
