//! `Ok` means committed, and every other outcome is reported; the body's own error is returned
//! unchanged.

use super::super::{
    Conn, IS_BLOCKING, batch, begin, begin_transaction, book, commit_transaction, connect, end,
    end_diesel, establish, execute, get, in_transaction, insert, locked, pid_of, pool,
};
use advisory_runtime::Error;
use advisory_tests::bookings::{committed, database, diesel_outcome, key_of};
use advisory_tests::{Proxy, assert_error, assert_matches, debug_checks_are_on};
use diesel::QueryResult;
use diesel::result::{DatabaseErrorKind, Error as DieselError};

async fn book_then(conn: &mut Conn, room: i64, sql: &str) -> QueryResult<()> {
    locked(conn, room, async |conn| {
        insert(conn, room, "Ada").await?;
        drop(batch(conn, sql).await);
        Ok(())
    })
    .await
}

/// The error is detected, nothing is left behind when the call returns, and the connection stays
/// usable.
async fn found(sql: &str) -> (Error, i64) {
    let db = database().await;
    let mut conn = connect(&db).await;
    let error = book_then(&mut conn, 7, sql).await.unwrap_err();
    assert_eq!(db.locks().await, []);
    db.until_quiet().await;
    assert!(
        book(&mut conn, 8, "Grace").await.unwrap(),
        "the connection stays usable"
    );
    assert_eq!(committed(&db, 8).await, 1);
    (error.into(), committed(&db, 7).await)
}

fn lock_error<T: std::fmt::Debug>(result: QueryResult<T>) -> Error {
    result.unwrap_err().into()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_functions_that_the_attribute_calls_do_the_same() {
    let db = database().await;
    let mut conn = connect(&db).await;
    for (room, is_ok) in [(1, true), (2, false)] {
        let result = if is_ok {
            Ok(5)
        } else {
            Err(DieselError::NotFound)
        };
        let mut held = begin(&mut conn, key_of(room)).await.unwrap();
        assert_eq!(held.info().keys(), [key_of(room).into()]);
        insert(held.conn(), room, "Ada").await.unwrap();
        let end = end(held, result).await;
        assert_eq!(end.ok(), is_ok.then_some(5));
        assert_eq!(committed(&db, room).await, i64::from(is_ok));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ignored_database_error_is_not_a_commit() {
    let (error, rows) = found("SELECT 1 FROM no_such_table").await;
    assert_error!(error, RolledBack { lock, .. } if lock == "room:<room>");
    assert_eq!(rows, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_ended_by_hand_is_found_out() {
    for (sql, rows_after) in [("COMMIT", 1), ("ROLLBACK", 0), ("COMMIT AND CHAIN", 1)] {
        if sql == "COMMIT AND CHAIN" && !debug_checks_are_on() {
            continue;
        }
        let (error, rows) = found(sql).await;
        assert_error!(error, TransactionEnded, "{sql}");
        assert_eq!(rows, rows_after, "{sql}: what the body committed stays");
    }
}

/// Found in debug builds only on async Diesel; libpq tells blocking Diesel when a transaction ends.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_without_the_lock_is_rolled_back() {
    if !IS_BLOCKING && !debug_checks_are_on() {
        return;
    }
    let db = database().await;
    let mut conn = connect(&db).await;
    let error = lock_error(
        locked(&mut conn, 7, async |conn| {
            execute(conn, "COMMIT").await?;
            execute(conn, "BEGIN").await?;
            insert(conn, 7, "without the lock").await
        })
        .await,
    );
    assert_error!(error, TransactionEnded);
    assert_eq!(committed(&db, 7).await, 0);
    assert!(book(&mut conn, 8, "Grace").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_through_diesel_is_found_out() {
    let db = database().await;
    let mut conn = connect(&db).await;
    let error = lock_error(
        locked(&mut conn, 7, async |conn| {
            insert(conn, 7, "Ada").await?;
            commit_transaction(conn).await
        })
        .await,
    );
    assert_error!(error, TransactionEnded);
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 1);
    assert!(book(&mut conn, 8, "Grace").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_left_open_through_diesel_is_not_committed() {
    let db = database().await;
    let mut conn = connect(&db).await;
    let error = lock_error(
        locked(&mut conn, 7, async |conn| {
            begin_transaction(conn).await?;
            insert(conn, 7, "Ada").await
        })
        .await,
    );
    assert_error!(error, RolledBack);
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 0);
    assert!(book(&mut conn, 8, "Grace").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn savepoints_inside_the_body_are_its_own_business() {
    let db = database().await;
    let mut conn = connect(&db).await;
    let inserted = locked(&mut conn, 7, async |conn| {
        let undone = in_transaction::<_, DieselError>(conn, async |conn| {
            execute(conn, "SELECT 1 FROM no_such_table").await
        });
        undone.await.unwrap_err();
        insert(conn, 7, "Ada").await
    });
    assert_eq!(inserted.await, Ok(1));
    assert_eq!(committed(&db, 7).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deferred_constraint_is_reported_as_what_it_is() {
    let db = database().await;
    db.run("ALTER TABLE booking ADD UNIQUE (room) DEFERRABLE INITIALLY DEFERRED")
        .await;
    let mut conn = connect(&db).await;
    let error = book_then(&mut conn, 7, "INSERT INTO booking VALUES (7, 'Grace')").await;
    let error = error.unwrap_err();
    assert_matches!(
        error,
        DieselError::DatabaseError(DatabaseErrorKind::UniqueViolation, _)
    );
    db.until_quiet().await;
    assert!(
        book(&mut conn, 7, "Ada").await.unwrap(),
        "the connection stays usable"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_cut_during_commit_is_an_unknown_outcome() {
    for executed in [false, true] {
        let db = database().await;
        let proxy = Proxy::start(&db).await;
        let mut conn = establish(proxy.url()).await;
        if executed {
            proxy.cut_after_forwarding(";COMMIT");
        } else {
            proxy.cut_before(";COMMIT");
        }
        let error = book(&mut conn, 7, "Ada").await.unwrap_err();
        // Like the driver's own statements.
        assert!(
            matches!(&error, DieselError::DatabaseError(kind, _)
                if matches!(kind, DatabaseErrorKind::ClosedConnection) == IS_BLOCKING
                && matches!(kind, DatabaseErrorKind::UnableToSendCommand) != IS_BLOCKING),
            "{error:?}"
        );
        let error = Error::from(error);
        assert_error!(error, CommitUnknown);
        db.until_quiet().await;
        assert_eq!(
            committed(&db, 7).await,
            i64::from(executed),
            "both are possible, so neither is claimed"
        );
    }
}

async fn assert_broken(conn: &mut Conn, after: &str) {
    let error = book(conn, 99, "Ada").await.unwrap_err();
    assert_matches!(error, DieselError::QueryBuilderError(_), "{after}");
    let error = Error::from(error);
    assert_error!(error, BrokenConnection { lock, .. } if lock == "room:<room>", "{after}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_lost_in_the_body_is_unknown_or_the_bodys_error() {
    let db = database().await;
    for is_ok in [false, true] {
        let mut conn = connect(&db).await;
        let end = locked(&mut conn, 7, async |conn| {
            let pid = pid_of(conn).await;
            db.terminate(pid).await;
            diesel_outcome(is_ok)
        });
        let error = Error::from(end.await.unwrap_err());
        match (is_ok, &error) {
            (true, Error::CommitUnknown { .. })
            | (false, Error::Database(DieselError::NotFound)) => {}
            _ => panic!("{is_ok}: {error:?}"),
        }
        assert_broken(&mut conn, &format!("{is_ok}")).await;
    }
}

/// Even if Diesel has noticed the loss: the body may have committed by hand before.
#[tokio::test(flavor = "multi_thread")]
async fn a_loss_that_the_body_has_seen_is_an_unknown_outcome() {
    let db = database().await;
    for (statements, rows) in [
        ("SELECT pg_terminate_backend(pg_backend_pid())", 0),
        ("COMMIT; SELECT pg_terminate_backend(pg_backend_pid())", 1),
    ] {
        let mut conn = connect(&db).await;
        assert_error!(book_then(&mut conn, 7, statements).await, CommitUnknown);
        assert_broken(&mut conn, statements).await;
        assert_eq!(committed(&db, 7).await, rows);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_lost_before_the_begin_is_replaced_by_its_pool() {
    let db = database().await;
    let pool = pool(&db);
    {
        let mut conn = get(&pool).await;
        let pid = pid_of(&mut conn).await;
        db.terminate(pid).await;
        book(&mut conn, 7, "Ada").await.unwrap_err();
        assert_broken(&mut conn, "a failed begin").await;
    }
    let mut conn = get(&pool).await;
    assert!(book(&mut conn, 7, "Ada").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_sql_transaction_is_refused_and_not_committed() {
    for begin in [
        "BEGIN",
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1",
        "BEGIN; SELECT 1 FROM no_such_table",
    ] {
        let db = database().await;
        let mut conn = connect(&db).await;
        drop(batch(&mut conn, begin).await);
        drop(insert(&mut conn, 7, "by hand").await);
        let error = lock_error(book(&mut conn, 8, "Ada").await);
        assert_error!(error, ForeignTransaction, "{begin}");
        // An async connection is closed if its transaction had failed before.
        let is_usable = IS_BLOCKING || !begin.contains("no_such_table");
        assert_eq!(execute(&mut conn, "COMMIT").await.is_ok(), is_usable);
        assert_eq!([committed(&db, 7).await, committed(&db, 8).await], [0, 0]);
        assert_eq!(book(&mut conn, 8, "Ada").await.is_ok(), is_usable);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_does_not_commit_another_guards_transaction() {
    if !debug_checks_are_on() {
        return;
    }
    let db = database().await;
    let (mut one, mut two) = (connect(&db).await, connect(&db).await);
    let mut first = begin(&mut one, 1).await.unwrap();
    let mut second = begin(&mut two, 2).await.unwrap();
    std::mem::swap(first.conn(), second.conn());
    for held in [first, second] {
        let result = end(held, Ok::<_, Error>(())).await;
        assert_error!(result, TransactionEnded);
    }
    db.until_quiet().await;
}

/// An error of a program's own that is made of Diesel's alone.
#[derive(Debug)]
struct StoreError(DieselError);

impl From<DieselError> for StoreError {
    fn from(error: DieselError) -> Self {
        Self(error)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_ends_with_an_error_that_is_made_of_diesels() {
    let db = database().await;
    let mut conn = connect(&db).await;
    let held = begin(&mut conn, 7).await.unwrap();
    assert_eq!(end_diesel(held, Ok::<_, StoreError>(3)).await.unwrap(), 3);
    let held = begin(&mut conn, 7).await.unwrap();
    let own = end_diesel(held, Err::<(), _>(StoreError(DieselError::NotFound))).await;
    assert_matches!(own, Err(StoreError(DieselError::NotFound)));
    let mut held = begin(&mut conn, 7).await.unwrap();
    batch(held.conn(), "COMMIT").await.unwrap();
    let StoreError(error) = end_diesel(held, Ok(())).await.unwrap_err();
    assert_error!(error, TransactionEnded);
}
