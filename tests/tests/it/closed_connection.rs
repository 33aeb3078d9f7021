//! The connection of a call that was dropped or panicked: it is closed, and every later locked call
//! on it is refused.

use crate::calls::{Body, assert_closed, book, work};
use advisory_runtime::{Connection, Error, Request, Wait, advisory_lock, xact};
use advisory_tests::bookings::{committed, database, diesel_outcome, execute, insert, key_of, run};
use advisory_tests::dropped_call::until_ended;
use advisory_tests::futures::{caught, dropped, is_ready_within};
use advisory_tests::{Database, Proxy, assert_error, pid_of};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::pin::pin;
use std::time::Duration;
use tokio::sync::oneshot;

#[tokio::test]
async fn a_panic_caught_below_the_connection_closes_it() {
    let db = database().await;
    let mut conn = db.connect().await;
    let pid = pid_of(&mut conn).await;
    assert!(caught(work(&mut conn, 7, Body::Panics)).await.is_err());
    assert_closed(&mut conn, "a panic").await;
    until_ended(&db, pid, "a panic").await;
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 0);
}

#[tokio::test]
async fn the_refusal_says_why_and_what_to_do() {
    let db = database().await;
    let mut conn = db.connect().await;
    drop(xact::begin(&mut conn, 1).await.unwrap());
    let error = book(&mut conn, 7, "Ada").await.unwrap_err();
    let text = Error::find(&error).unwrap().to_string();
    for word in ["`room:<room>`", "dropped", "closed"] {
        assert!(text.contains(word), "{text}");
    }
}

/// A cancel request uses a connection of its own, and could arrive while the program's next query
/// runs on its next connection.
#[tokio::test]
async fn a_late_cancel_never_hits_the_next_connections_query() {
    let db = database().await;
    let mut holder = db.connect().await;
    for _ in 0..20 {
        let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
        let mut conn = db.connect().await;
        dropped(book(&mut conn, 7, "Ada"), db.until_waiting(key_of(7))).await;
        drop(conn);
        // Released at once, so that the request would hit the next query.
        held.finish(Ok::<_, Error>(())).await.unwrap();
        let mut next = db.connect().await;
        // Runs long enough for a late request to hit it.
        run(&mut next, "SELECT pg_sleep(0.02)").await;
    }
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 0);
}

/// A function that continues after a dropped call cannot commit, and gets an error.
#[tokio::test]
async fn a_dropped_nested_call_takes_the_outer_one_with_it() {
    #[advisory_lock(key = "outer", name = "outer", scope = "xact")]
    async fn outer(conn: &mut AsyncPgConnection, is_ok: bool) -> QueryResult<()> {
        insert(conn, 1, "outer").await?;
        let (reach, reached) = oneshot::channel();
        dropped(work(conn, 7, Body::Idle(reach)), async {
            reached.await.unwrap();
        })
        .await;
        insert(conn, 1, "after the drop").await.unwrap_err();
        diesel_outcome(is_ok)
    }
    let db = database().await;
    for is_ok in [true, false] {
        let mut conn = db.connect().await;
        let error = outer(&mut conn, is_ok).await.unwrap_err();
        assert_eq!(db.locks().await, [], "gone when the call has returned");
        if is_ok {
            assert_error!(error, RolledBack { lock, .. } if lock == "outer");
        } else {
            assert_eq!(error, DieselError::NotFound, "the body's own error");
        }
        assert_closed(&mut conn, "a dropped nested call").await;
    }
    db.until_quiet().await;
    assert_eq!([committed(&db, 1).await, committed(&db, 7).await], [0, 0]);
}

/// Diesel keeps a savepoint after rolling back to it, under the name that the next one gets.
#[tokio::test]
async fn a_refused_nested_call_undoes_nothing_but_itself() {
    let db = database().await;
    let mut conn = db.connect().await;
    let mut outer = xact::begin(&mut conn, 1).await.unwrap();
    let inner = xact::begin(outer.conn(), 2).await.unwrap();
    inner
        .finish(Err::<(), _>(Error::from(DieselError::NotFound)))
        .await
        .unwrap_err();
    insert(outer.conn(), 1, "after the savepoint")
        .await
        .unwrap();
    execute(outer.conn(), "SELECT 1/0").await.unwrap_err();
    // Refused, since the transaction has failed; an older savepoint must not revive it without the
    // insert.
    xact::begin(outer.conn(), 2).await.unwrap_err();
    insert(outer.conn(), 1, "in a failed transaction")
        .await
        .unwrap_err();
    assert_error!(outer.finish(Ok::<_, Error>(())).await, RolledBack);
    assert_eq!(committed(&db, 1).await, 0);
    assert!(book(&mut conn, 7, "Ada").await.unwrap());
}

#[tokio::test]
async fn a_connection_that_diesels_own_dropped_begin_left_is_refused() {
    let db = database().await;
    let mut conn = db.connect().await;
    {
        let transaction = pin!(conn.transaction::<(), DieselError, _>(async |_| Ok(())));
        assert!(!is_ready_within(1, transaction).await);
    }
    assert_error!(book(&mut conn, 7, "Ada").await, BrokenConnection);
}

/// If a session may not end itself, for example after SET ROLE, it has to refuse all further
/// statements.
#[tokio::test]
async fn a_session_that_may_not_end_itself_commits_nothing_more() {
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
    run(&mut conn, &format!("SET ROLE {role}")).await;
    assert_error!(outer(&mut conn).await, RolledBack);
    assert_eq!([committed(&db, 1).await, committed(&db, 7).await], [0, 0]);
    db.until_no_locks().await;
    drop(conn);
    db.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"))
        .await;
}

/// Some firewalls drop cancel requests.
#[tokio::test]
async fn without_cancel_requests_a_dropped_wait_ends_with_the_holder() {
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
    let pid = pid_of(&mut conn).await;
    proxy.refuse_connections().await;
    let (outcome, ()) = tokio::join!(outer(&mut conn, &db, gave_up), async {
        is_given_up.await.unwrap();
        held.finish(Ok::<_, Error>(())).await.unwrap();
    });
    assert_error!(outcome, RolledBack);
    until_ended(&db, pid, "a wait that was not cancelled").await;
    assert_closed(&mut conn, "a wait that was not cancelled").await;
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 0);
}

/// The begin of a try with `max_hold` is a `BEGIN` and a `SELECT`. If the second fails, the first
/// must not stay in effect.
#[tokio::test]
async fn a_begin_that_is_interrupted_halfway_closes_the_connection() {
    let db = Database::create().await;
    let (mut conn, mut holder) = (db.connect().await, db.connect().await);
    run(&mut conn, "SET lock_timeout = '20ms'").await;
    run(&mut holder, "BEGIN").await;
    // While the catalog is locked, a session cannot look up a function that it has not called
    // before.
    run(&mut holder, "LOCK TABLE pg_catalog.pg_proc").await;
    let bounded = Request::new(7).max_hold(Duration::from_secs(5));
    xact::begin(&mut conn, bounded.wait(Wait::Never))
        .await
        .unwrap_err();
    run(&mut holder, "ROLLBACK").await;
    assert_closed(&mut conn, "interrupted").await;
}
