//! What a dropped call leaves of a connection that no pool replaces: one that goes on, or one that refuses whatever comes.

use crate::bookings::{book, committed, database, execute, insert, key_of};
use crate::cancel::{Body, caught, dropped, polled, work};
use advisory_runtime::{Connection, Error, advisory_lock, xact};
use advisory_tests::{Database, Proxy};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::pin::pin;
use tokio::sync::oneshot;

#[tokio::test]
async fn a_panic_caught_below_the_connection_leaves_a_connection_that_goes_on() {
    let db = database().await;
    let mut conn = db.connect().await;
    assert!(caught(work(&mut conn, 7, Body::Panics)).await.is_err());
    assert!(book(&mut conn, 7, "Ada").await.unwrap());
    assert_eq!(committed(&db, 7).await, 1);
    db.until_quiet().await;
}

/// A cancel request travels on a connection of its own, and can arrive when the next query runs.
#[tokio::test]
async fn no_later_query_is_cancelled_in_the_place_of_a_dropped_call() {
    let db = database().await;
    let mut holder = db.connect().await;
    let mut conn = db.connect().await;
    for _ in 0..20 {
        let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
        dropped(book(&mut conn, 7, "Ada"), db.until_waiting(key_of(7))).await;
        // Freed at once, so that the request finds the next query running if there is one.
        xact::finish(held, Ok::<_, Error>(())).await.unwrap();
        // Time in which a request that comes late would hit it: that it runs is the subject.
        execute(&mut conn, "SELECT pg_sleep(0.02)").await.unwrap();
    }
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 0);
}

#[tokio::test]
async fn after_a_dropped_nested_call_the_outer_one_goes_on() {
    #[advisory_lock(key = "outer", name = "outer", scope = "xact")]
    async fn outer(conn: &mut AsyncPgConnection) -> QueryResult<()> {
        insert(conn, 1, "outer").await?;
        let (reach, reached) = oneshot::channel();
        dropped(work(conn, 7, Body::Idle(reach)), async {
            reached.await.unwrap();
        })
        .await;
        insert(conn, 1, "after the drop").await.map(drop)
    }
    let db = database().await;
    let mut conn = db.connect().await;
    outer(&mut conn).await.unwrap();
    db.until_quiet().await;
    assert_eq!([committed(&db, 1).await, committed(&db, 7).await], [2, 0]);
}

/// Diesel leaves a savepoint that it has rolled back to, under the name that the next one gets.
#[tokio::test]
async fn a_refused_nested_call_undoes_nothing_but_itself() {
    let db = database().await;
    let mut conn = db.connect().await;
    let mut outer = xact::begin(&mut conn, 1).await.unwrap();
    let inner = xact::begin(outer.conn(), 2).await.unwrap();
    xact::finish(inner, Err::<(), _>(Error::from(DieselError::NotFound)))
        .await
        .unwrap_err();
    insert(outer.conn(), 1, "after the savepoint")
        .await
        .unwrap();
    execute(outer.conn(), "SELECT 1/0").await.unwrap_err();
    // Refused, since the transaction has failed; an older savepoint must not bring it back to life without the insert.
    xact::begin(outer.conn(), 2).await.unwrap_err();
    insert(outer.conn(), 1, "in a failed transaction")
        .await
        .unwrap_err();
    let error = xact::finish(outer, Ok::<_, Error>(())).await.unwrap_err();
    assert!(matches!(error, Error::RolledBack { .. }), "{error:?}");
    assert_eq!(committed(&db, 1).await, 0);
    assert!(book(&mut conn, 7, "Ada").await.unwrap());
}

#[tokio::test]
async fn dropped_in_the_commit_the_connection_goes_on() {
    let db = database().await;
    let mut conn = db.connect().await;
    let held = xact::begin(&mut conn, 1).await.unwrap();
    let finished = polled(pin!(xact::finish(held, Ok::<_, Error>(()))), 1).await;
    assert!(!finished);
    assert!(book(&mut conn, 7, "Ada").await.unwrap());
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 1);
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
    async fn outer<C: Connection>(conn: &mut C) -> QueryResult<()> {
        let (reach, reached) = oneshot::channel();
        dropped(work(conn, 7, Body::Idle(reach)), async {
            reached.await.unwrap();
        })
        .await;
        insert(conn.pg(), 1, "after the drop").await.unwrap_err();
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
    let pool = db.bb8(1).await;
    let mut conn = pool.get().await.unwrap();
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

/// Behind some firewalls the request to cancel does not arrive.
#[tokio::test]
async fn where_no_cancel_request_arrives_the_dropped_wait_ends_when_the_holder_does() {
    #[advisory_lock(key = "outer", name = "outer", scope = "xact")]
    async fn outer(
        conn: &mut AsyncPgConnection,
        db: &Database,
        gave_up: oneshot::Sender<()>,
    ) -> QueryResult<()> {
        dropped(book(conn, 7, "Ada"), db.until_waiting(key_of(7))).await;
        gave_up.send(()).unwrap();
        Ok(())
    }
    let db = database().await;
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    let (gave_up, is_given_up) = oneshot::channel();
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    proxy.refuse_connections().await;
    let (outcome, ()) = tokio::join!(outer(&mut conn, &db, gave_up), async {
        is_given_up.await.unwrap();
        xact::finish(held, Ok::<_, Error>(())).await.unwrap();
    });
    outcome.unwrap();
    assert!(book(&mut conn, 8, "Ada").await.unwrap());
    db.until_quiet().await;
    assert_eq!([committed(&db, 7).await, committed(&db, 8).await], [0, 1]);
}

fn assert_broken<T: std::fmt::Debug>(result: QueryResult<T>) {
    let error = result.unwrap_err();
    let found = Error::find(&error);
    assert!(
        matches!(found, Some(Error::BrokenConnection { .. })),
        "{error:?}"
    );
}
