//! `Ok` means committed, and every other outcome is reported.

use crate::bookings::{book, committed, database, execute, insert};
use advisory_runtime::{Error, advisory_lock, xact};
use advisory_tests::{Proxy, debug_checks_are_on, pid_of};
use diesel::QueryResult;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_async::{
    AnsiTransactionManager, AsyncConnection, AsyncPgConnection, TransactionManager,
};

/// Books, then runs the statement and ignores its result.
#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
async fn book_then(conn: &mut AsyncPgConnection, room: i64, sql: &str) -> QueryResult<()> {
    insert(conn, room, "Ada").await?;
    drop(execute(conn, sql).await);
    Ok(())
}

/// The error is detected, nothing is left behind, and the connection stays usable.
async fn found(sql: &str) -> (Error, i64) {
    let db = database().await;
    let mut conn = db.connect().await;
    let error = book_then(&mut conn, 7, sql).await.unwrap_err();
    db.until_quiet().await;
    assert!(
        book(&mut conn, 8, "Grace").await.unwrap(),
        "the connection stays usable"
    );
    assert_eq!(committed(&db, 8).await, 1);
    let rows = committed(&db, 7).await;
    (Error::from(error), rows)
}

#[tokio::test]
async fn an_ignored_database_error_is_not_a_commit() {
    let (error, rows) = found("SELECT 1 FROM no_such_table").await;
    assert!(
        matches!(&error, Error::RolledBack { lock, .. } if lock == "room:<room>"),
        "{error:?}"
    );
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn a_commit_by_hand_is_found_out() {
    let (error, rows) = found("COMMIT").await;
    assert!(matches!(error, Error::TransactionEnded { .. }), "{error:?}");
    assert_eq!(rows, 1, "what the body committed stays");
}

#[tokio::test]
async fn a_rollback_by_hand_is_found_out() {
    let (error, rows) = found("ROLLBACK").await;
    assert!(matches!(error, Error::TransactionEnded { .. }), "{error:?}");
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn a_commit_and_chain_by_hand_is_found_out() {
    if !debug_checks_are_on() {
        return;
    }
    let (error, rows) = found("COMMIT AND CHAIN").await;
    assert!(matches!(error, Error::TransactionEnded { .. }), "{error:?}");
    assert_eq!(rows, 1);
}

#[tokio::test]
async fn a_commit_by_hand_and_a_new_transaction_are_found_out() {
    #[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
    async fn begin_again(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<()> {
        execute(conn, "COMMIT").await?;
        execute(conn, "BEGIN").await?;
        insert(conn, room, "without the lock").await.map(drop)
    }
    if !debug_checks_are_on() {
        return;
    }
    let db = database().await;
    let mut conn = db.connect().await;
    let error = begin_again(&mut conn, 7).await.unwrap_err();
    assert!(
        matches!(
            Error::find(&error).as_deref(),
            Some(Error::TransactionEnded { .. })
        ),
        "{error:?}"
    );
    assert_eq!(
        committed(&db, 7).await,
        0,
        "written without the lock, so rolled back"
    );
    assert!(book(&mut conn, 8, "Grace").await.unwrap());
}

#[tokio::test]
async fn a_commit_through_diesel_is_found_out() {
    #[advisory_lock(key = "job", name = "job", scope = "xact")]
    async fn commit(conn: &mut AsyncPgConnection) -> QueryResult<()> {
        AnsiTransactionManager::commit_transaction(conn).await
    }
    let db = database().await;
    let mut conn = db.connect().await;
    let error = commit(&mut conn).await.unwrap_err();
    assert!(
        matches!(
            Error::find(&error).as_deref(),
            Some(Error::TransactionEnded { .. })
        ),
        "{error:?}"
    );
    db.until_quiet().await;
}

#[tokio::test]
async fn a_transaction_left_open_through_diesel_is_not_committed() {
    #[advisory_lock(key = "job", name = "job", scope = "xact")]
    async fn begin(conn: &mut AsyncPgConnection) -> QueryResult<()> {
        AnsiTransactionManager::begin_transaction(conn).await?;
        insert(conn, 7, "Ada").await.map(drop)
    }
    let db = database().await;
    let mut conn = db.connect().await;
    let error = begin(&mut conn).await.unwrap_err();
    assert!(
        matches!(
            Error::find(&error).as_deref(),
            Some(Error::RolledBack { .. })
        ),
        "{error:?}"
    );
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 0);
}

#[tokio::test]
async fn savepoints_inside_the_body_are_its_own_business() {
    #[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
    async fn retry(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<()> {
        let undone = conn
            .transaction(async |conn| execute(conn, "SELECT 1 FROM no_such_table").await)
            .await;
        assert!(undone.is_err());
        insert(conn, room, "Ada").await.map(drop)
    }
    let db = database().await;
    retry(&mut db.connect().await, 7).await.unwrap();
    assert_eq!(committed(&db, 7).await, 1);
}

#[tokio::test]
async fn a_deferred_constraint_is_reported_as_what_it_is() {
    let db = database().await;
    db.run("ALTER TABLE booking ADD UNIQUE (room) DEFERRABLE INITIALLY DEFERRED")
        .await;
    let mut conn = db.connect().await;
    let error = book_then(&mut conn, 7, "INSERT INTO booking VALUES (7, 'Grace')")
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            DieselError::DatabaseError(DatabaseErrorKind::UniqueViolation, _)
        ),
        "{error:?}"
    );
    db.until_quiet().await;
    assert!(
        book(&mut conn, 7, "Ada").await.unwrap(),
        "the connection stays usable"
    );
}

#[tokio::test]
async fn a_connection_cut_during_commit_is_an_unknown_outcome() {
    for executed in [false, true] {
        let db = database().await;
        let proxy = Proxy::start(&db).await;
        let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
        if executed {
            proxy.cut_after_forwarding(";COMMIT");
        } else {
            proxy.cut_before(";COMMIT");
        }
        let error = book(&mut conn, 7, "Ada").await.unwrap_err();
        assert!(
            matches!(
                Error::find(&error).as_deref(),
                Some(Error::CommitUnknown { .. })
            ),
            "{error:?}"
        );
        // Like Diesel's own statements.
        assert!(
            matches!(
                error,
                DieselError::DatabaseError(DatabaseErrorKind::UnableToSendCommand, _)
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

#[tokio::test]
async fn a_backend_terminated_before_ok_is_an_unknown_outcome() {
    let db = database().await;
    let mut conn = db.connect().await;
    let error = book_then(
        &mut conn,
        7,
        "SELECT pg_terminate_backend(pg_backend_pid())",
    )
    .await
    .unwrap_err();
    assert!(
        matches!(
            Error::find(&error).as_deref(),
            Some(Error::CommitUnknown { .. })
        ),
        "{error:?}"
    );
    assert_eq!(committed(&db, 7).await, 0);
}

#[tokio::test]
async fn the_bodys_error_survives_a_rollback_that_fails() {
    #[advisory_lock(key = "job", name = "job", scope = "xact")]
    async fn terminated(
        conn: &mut AsyncPgConnection,
        db: &advisory_tests::Database,
    ) -> QueryResult<()> {
        let pid = pid_of(conn).await;
        db.terminate(pid).await;
        Err(DieselError::NotFound)
    }
    let db = database().await;
    let mut conn = db.connect().await;
    let error = terminated(&mut conn, &db).await.unwrap_err();
    assert!(matches!(error, DieselError::NotFound), "{error:?}");
    let refused = book(&mut conn, 7, "Ada").await;
    assert!(
        refused.is_err(),
        "nothing can be booked on a connection that is gone"
    );
}

#[tokio::test]
async fn a_plain_sql_transaction_is_refused_and_not_committed() {
    let db = database().await;
    let mut conn = db.connect().await;
    execute(&mut conn, "BEGIN").await.unwrap();
    insert(&mut conn, 7, "by hand").await.unwrap();
    let error = book(&mut conn, 8, "Ada").await.unwrap_err();
    assert!(
        matches!(
            Error::find(&error).as_deref(),
            Some(Error::ForeignTransaction { .. })
        ),
        "{error:?}"
    );
    execute(&mut conn, "ROLLBACK").await.unwrap();
    assert_eq!([committed(&db, 7).await, committed(&db, 8).await], [0, 0]);
}

fn says_broken(result: &QueryResult<bool>) -> bool {
    let error = result.as_ref().err().and_then(|error| Error::find(error));
    matches!(error.as_deref(), Some(Error::BrokenConnection { .. }))
}

#[tokio::test]
async fn a_connection_lost_in_the_body_says_that_it_is_broken() {
    #[advisory_lock(key = "job", name = "job", scope = "xact")]
    async fn lost(
        conn: &mut AsyncPgConnection,
        db: &advisory_tests::Database,
        is_ok: bool,
    ) -> QueryResult<()> {
        let pid = pid_of(conn).await;
        db.terminate(pid).await;
        if is_ok {
            Ok(())
        } else {
            Err(DieselError::NotFound)
        }
    }
    let db = database().await;
    for is_ok in [false, true] {
        let mut conn = db.connect().await;
        lost(&mut conn, &db, is_ok).await.unwrap_err();
        let next = book(&mut conn, 7, "Ada").await;
        assert!(says_broken(&next), "{is_ok}: {next:?}");
    }
}

#[tokio::test]
async fn a_connection_lost_before_the_begin_says_that_it_is_broken() {
    let db = database().await;
    let mut conn = db.connect().await;
    let pid = pid_of(&mut conn).await;
    db.terminate(pid).await;
    book(&mut conn, 7, "Ada").await.unwrap_err();
    let next = book(&mut conn, 7, "Ada").await;
    assert!(says_broken(&next), "{next:?}");
}

#[tokio::test]
async fn a_guard_does_not_commit_another_guards_transaction() {
    if !debug_checks_are_on() {
        return;
    }
    let db = database().await;
    let (mut one, mut two) = (db.connect().await, db.connect().await);
    let mut first = xact::begin(&mut one, 1).await.unwrap();
    let mut second = xact::begin(&mut two, 2).await.unwrap();
    std::mem::swap(first.conn(), second.conn());
    for held in [first, second] {
        let result = held.finish(Ok::<_, Error>(())).await;
        assert!(
            matches!(result, Err(Error::TransactionEnded { .. })),
            "{result:?}"
        );
    }
}

#[tokio::test]
async fn a_plain_sql_transaction_is_refused_in_any_state() {
    use diesel_async::SimpleAsyncConnection;
    for begin in [
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1",
        "BEGIN; SELECT 1 FROM no_such_table",
    ] {
        let db = database().await;
        let mut conn = db.connect().await;
        drop(conn.batch_execute(begin).await);
        let error = book(&mut conn, 8, "Ada").await.unwrap_err();
        let found = Error::find(&error);
        assert!(
            matches!(found.as_deref(), Some(Error::ForeignTransaction { .. })),
            "{begin}: {error:?}"
        );
    }
}
