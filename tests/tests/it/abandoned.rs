//! What a dropped call leaves of a connection that no pool replaces: closed or refusing, and never in use for something else.

use crate::bookings::{book, committed, database, execute, insert, key_of};
use crate::cancel::{Body, caught, dropped, polled, work};
use advisory_runtime::{Error, advisory_lock, xact};
use advisory_tests::{Database, Proxy};
use diesel::QueryResult;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::pin::pin;
use tokio::sync::oneshot;

#[tokio::test]
async fn a_panic_caught_below_the_connection_leaves_a_connection_that_says_it_is_broken() {
    let db = database().await;
    let mut conn = db.connect().await;
    assert!(caught(work(&mut conn, 7, Body::Panics)).await.is_err());
    db.until_quiet().await;
    let error = book(&mut conn, 7, "Ada").await.unwrap_err();
    assert!(
        matches!(Error::find(&error), Some(Error::BrokenConnection { .. })),
        "{error:?}"
    );
    assert_eq!(committed(&db, 7).await, 0);
}

/// A cancel request travels on a connection of its own, and can arrive when the next query runs.
#[tokio::test]
async fn a_dropped_future_closes_its_connection_so_that_no_later_query_is_cancelled_in_its_place() {
    let db = database().await;
    let mut holder = db.connect().await;
    for _ in 0..20 {
        let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
        let mut conn = db.connect().await;
        dropped(book(&mut conn, 7, "Ada"), db.until_waiting(key_of(7))).await;
        // Freed at once, so that the request finds the next query running if there is one.
        xact::finish(held, Ok::<_, Error>(())).await.unwrap();
        let error = execute(&mut conn, "SELECT pg_sleep(0.02)")
            .await
            .unwrap_err();
        assert!(is_closed(&error), "{error:?}");
    }
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 0);
}

#[tokio::test]
async fn a_dropped_nested_call_dooms_the_outer_one() {
    #[advisory_lock(key = "outer", name = "outer", scope = "xact")]
    async fn outer(conn: &mut AsyncPgConnection) -> QueryResult<()> {
        insert(conn, 1, "outer").await?;
        let (reach, reached) = oneshot::channel();
        dropped(work(conn, 7, Body::Idle(reach)), async {
            reached.await.unwrap();
        })
        .await;
        Ok(())
    }
    let db = database().await;
    let mut conn = db.connect().await;
    let error = outer(&mut conn).await.unwrap_err();
    assert!(
        matches!(Error::find(&error), Some(Error::RolledBack { .. })),
        "{error:?}"
    );
    db.until_quiet().await;
    assert_eq!([committed(&db, 1).await, committed(&db, 7).await], [0, 0]);
}

#[tokio::test]
async fn dropped_in_the_commit_the_connection_says_that_it_is_broken() {
    let db = database().await;
    let mut conn = db.connect().await;
    let held = xact::begin(&mut conn, 1).await.unwrap();
    let finished = polled(pin!(xact::finish(held, Ok::<_, Error>(()))), 1).await;
    assert!(!finished);
    assert_broken(book(&mut conn, 7, "Ada").await);
    db.until_quiet().await;
}

#[tokio::test]
async fn a_connection_that_diesels_own_dropped_begin_left_is_refused() {
    let db = database().await;
    let mut conn = db.connect().await;
    {
        let transaction = pin!(conn.transaction::<(), DieselError, _>(async |_| Ok(())));
        assert!(!polled(transaction, 1).await);
    }
    assert_broken(book(&mut conn, 7, "Ada").await);
}

/// Where a session may not end itself, as after a SET ROLE, it has to refuse what comes instead.
#[tokio::test]
async fn where_a_session_may_not_end_itself_nothing_more_is_committed_on_it() {
    #[advisory_lock(key = "outer", name = "outer", scope = "xact")]
    async fn outer(conn: &mut AsyncPgConnection) -> QueryResult<()> {
        let (reach, reached) = oneshot::channel();
        dropped(work(conn, 7, Body::Idle(reach)), async {
            reached.await.unwrap();
        })
        .await;
        insert(conn, 1, "after the drop").await.unwrap_err();
        Ok(())
    }
    let db = database().await;
    let role = format!("app_{}", std::process::id());
    db.run("REVOKE EXECUTE ON FUNCTION pg_terminate_backend FROM PUBLIC")
        .await;
    db.run(&format!(
        "CREATE ROLE {role}; GRANT ALL ON booking TO {role}"
    ))
    .await;
    let mut conn = db.connect().await;
    execute(&mut conn, &format!("SET ROLE {role}"))
        .await
        .unwrap();
    let error = outer(&mut conn).await.unwrap_err();
    assert!(
        matches!(Error::find(&error), Some(Error::RolledBack { .. })),
        "{error:?}"
    );
    assert_eq!([committed(&db, 1).await, committed(&db, 7).await], [0, 0]);
    db.until_no_locks().await;
    drop(conn);
    db.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"))
        .await;
}

/// Where connections need TLS, or behind some firewalls, the request to cancel does not arrive.
#[tokio::test]
async fn where_no_cancel_request_arrives_the_call_returns_all_the_same() {
    #[advisory_lock(key = "outer", name = "outer", scope = "xact")]
    async fn outer(conn: &mut AsyncPgConnection, db: &Database) -> QueryResult<()> {
        dropped(book(conn, 7, "Ada"), db.until_waiting(key_of(7))).await;
        Ok(())
    }
    let db = database().await;
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    proxy.refuse_connections().await;
    let error = outer(&mut conn, &db).await.unwrap_err();
    assert!(
        matches!(Error::find(&error), Some(Error::RolledBack { .. })),
        "{error:?}"
    );
    db.until_waiters(key_of(7), 1).await;
    // The server notices by itself that nobody is there any more.
    drop((conn, proxy));
    db.until_no_waiters(key_of(7)).await;
    xact::finish(held, Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 0);
}

fn is_closed(error: &DieselError) -> bool {
    matches!(
        error,
        DieselError::DatabaseError(DatabaseErrorKind::UnableToSendCommand, _)
    )
}

fn assert_broken<T: std::fmt::Debug>(result: QueryResult<T>) {
    let error = result.unwrap_err();
    let found = Error::find(&error);
    assert!(
        matches!(found, Some(Error::BrokenConnection { .. })),
        "{error:?}"
    );
}
