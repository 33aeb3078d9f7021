//! `max_hold`: a body that holds the lock for too long is dropped and rolled back. If none of its
//! statements is running, the connection stays usable; otherwise it is closed.

use crate::calls::{assert_closed, book};
use advisory_runtime::{Error, advisory_lock, xact};
use advisory_tests::bookings::{committed, database, insert};
use advisory_tests::dropped_call::until_ended;
use advisory_tests::holds::{in_time, is_early};
use advisory_tests::settings::settings;
use advisory_tests::{assert_error, pid_of};
use diesel::QueryResult;
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use std::future::pending;
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(200);
const BRIEF: Duration = Duration::from_millis(20);
const AN_HOUR: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug)]
enum Body {
    Finishes,
    Idles,
    /// In a statement that would take a minute.
    Runs,
}

async fn body(conn: &mut AsyncPgConnection, room: i64, body: Body) -> QueryResult<()> {
    if let Body::Runs = body {
        // One message: however short the bound and slow the machine, the body is dropped only after
        // the long statement was sent.
        let insert = format!("INSERT INTO booking VALUES ({room}, 'Ada')");
        return conn
            .batch_execute(&format!("{insert}; SELECT pg_sleep(60)"))
            .await;
    }
    insert(conn, room, "Ada").await?;
    if let Body::Idles = body {
        pending::<()>().await;
    }
    Ok(())
}

#[advisory_lock(key = "room:<room>", name = "room", max_hold = bound)]
async fn plain(
    conn: &mut AsyncPgConnection,
    room: i64,
    bound: Duration,
    does: Body,
) -> QueryResult<()> {
    body(conn, room, does).await
}

#[advisory_lock(key = "room:<room>", name = "room", max_hold = bound, isolation = "serializable")]
async fn strict(
    conn: &mut AsyncPgConnection,
    room: i64,
    bound: Duration,
    does: Body,
) -> QueryResult<()> {
    body(conn, room, does).await
}

#[advisory_lock(key = "room:<room>", name = "room", max_hold = bound, scope = "session")]
async fn in_session(
    conn: &mut AsyncPgConnection,
    room: i64,
    bound: Duration,
    does: Body,
) -> QueryResult<()> {
    conn.transaction(async |conn| body(conn, room, does).await)
        .await
}

#[derive(Clone, Copy, Debug)]
enum Site {
    Plain,
    Strict,
    Session,
}

const SITES: [Site; 3] = [Site::Plain, Site::Strict, Site::Session];

impl Site {
    async fn call(
        self,
        conn: &mut AsyncPgConnection,
        bound: Duration,
        does: Body,
    ) -> QueryResult<()> {
        match self {
            Self::Plain => plain(conn, 7, bound, does).await,
            Self::Strict => strict(conn, 7, bound, does).await,
            Self::Session => in_session(conn, 7, bound, does).await,
        }
    }
}

fn is_exceeded(end: &QueryResult<()>, bound: Duration) -> bool {
    let error = end.as_ref().err().and_then(|error| Error::find(error));
    matches!(error.as_deref(), Some(Error::HoldExceeded { lock, max_hold, .. }) if lock == "room:<room>" && *max_hold == bound)
}

#[tokio::test]
async fn a_body_that_exceeds_max_hold_is_dropped_and_rolled_back() {
    let db = database().await;
    let before = settings(&mut db.connect().await).await;
    for site in SITES {
        for does in [Body::Idles, Body::Runs] {
            let what = format!("{site:?} {does:?}");
            let seen = in_time(async || {
                db.until_no_locks().await;
                let mut conn = db.connect().await;
                let pid = pid_of(&mut conn).await;
                let started = Instant::now();
                let end = site.call(&mut conn, SHORT, does).await;
                // The statement takes twice as long.
                let elapsed = started.elapsed();
                assert!(
                    elapsed >= SHORT && elapsed < Duration::from_secs(30),
                    "{what}: {elapsed:?}"
                );
                assert!(end.is_err(), "{what}");
                assert_eq!(committed(&db, 7).await, 0, "{what}: {end:?}");
                let is_early = is_early(started, SHORT);
                is_early.then_some((conn, pid, end, db.locks().await))
            });
            let (mut conn, pid, end, locks) = seen.await;
            assert!(is_exceeded(&end, SHORT), "{what}: {end:?}");
            assert_eq!(locks, [], "{what}: freed when the function has returned");
            if let Body::Runs = does {
                assert_closed(&mut conn, &what).await;
                until_ended(&db, pid, &what).await;
            } else {
                assert_eq!(settings(&mut conn).await, before, "{what}");
                assert!(book(&mut conn, 8, "Grace").await.unwrap(), "{what}");
                assert_eq!(pid_of(&mut conn).await, pid, "{what}");
                assert_eq!([committed(&db, 7).await, committed(&db, 8).await], [0, 1]);
            }
            db.run("DELETE FROM booking").await;
        }
    }
    db.until_quiet().await;
}

#[tokio::test]
async fn a_body_that_finishes_in_time_is_committed() {
    let db = database().await;
    let mut conn = db.connect().await;
    let before = settings(&mut conn).await;
    for site in SITES {
        site.call(&mut conn, AN_HOUR, Body::Finishes).await.unwrap();
        assert_eq!(db.locks().await, [], "{site:?}");
        assert_eq!(settings(&mut conn).await, before, "{site:?}");
        assert_eq!(committed(&db, 7).await, 1, "{site:?}");
        db.run("DELETE FROM booking").await;
    }
}

#[tokio::test]
async fn an_idle_nested_bodys_savepoint_is_rolled_back_alone() {
    let db = database().await;
    in_time(async || {
        db.until_no_locks().await;
        let mut conn = db.connect().await;
        let mut outer = xact::begin(&mut conn, 1).await.unwrap();
        let before = settings(outer.conn()).await;
        for room in [7, 8] {
            insert(outer.conn(), 1, "outer").await.unwrap();
            let started = Instant::now();
            let end = plain(outer.conn(), room, BRIEF, Body::Idles).await;
            if !is_early(started, BRIEF) {
                return None;
            }
            assert!(is_exceeded(&end, BRIEF), "{end:?}");
            assert_eq!(db.locks().await.len(), 1, "the outer one's");
            assert_eq!(settings(outer.conn()).await, before);
        }
        plain(outer.conn(), 9, AN_HOUR, Body::Finishes)
            .await
            .unwrap();
        assert_eq!(settings(outer.conn()).await, before);
        outer.finish(Ok::<_, Error>(())).await.unwrap();
        Some(())
    })
    .await;
    let rooms = [1, 7, 8, 9];
    let mut kept = Vec::new();
    for room in rooms {
        kept.push(committed(&db, room).await);
    }
    assert_eq!(kept, [2, 0, 0, 1]);
    db.until_quiet().await;
}

#[tokio::test]
async fn a_running_nested_statement_ends_the_outer_transaction() {
    let db = database().await;
    in_time(async || {
        db.until_no_locks().await;
        let mut conn = db.connect().await;
        let pid = pid_of(&mut conn).await;
        let mut outer = xact::begin(&mut conn, 1).await.unwrap();
        insert(outer.conn(), 1, "outer").await.unwrap();
        let started = Instant::now();
        let end = plain(outer.conn(), 7, BRIEF, Body::Runs).await;
        if !is_early(started, BRIEF) {
            return None;
        }
        assert!(is_exceeded(&end, BRIEF), "{end:?}");
        assert_eq!(db.locks().await, [], "freed when the function has returned");
        insert(outer.conn(), 1, "behind it").await.unwrap_err();
        assert_error!(outer.finish(Ok::<_, Error>(())).await, RolledBack);
        assert_closed(&mut conn, "a nested body in a statement").await;
        until_ended(&db, pid, "a nested body in a statement").await;
        Some(())
    })
    .await;
    assert_eq!([committed(&db, 1).await, committed(&db, 7).await], [0, 0]);
    db.until_quiet().await;
}

#[tokio::test]
async fn of_nested_bounds_the_outer_one_counts_for_both() {
    #[advisory_lock(key = "outer", name = "outer", max_hold = "200ms")]
    async fn outer(conn: &mut AsyncPgConnection, does: Body) -> QueryResult<()> {
        plain(conn, 7, AN_HOUR, does).await
    }
    let db = database().await;
    for does in [Body::Idles, Body::Runs] {
        let (mut conn, end) = in_time(async || {
            db.until_no_locks().await;
            let mut conn = db.connect().await;
            let started = Instant::now();
            let end = outer(&mut conn, does).await.unwrap_err();
            is_early(started, SHORT).then_some((conn, end))
        })
        .await;
        assert_error!(end, HoldExceeded { lock, .. } if lock == "outer", "{does:?}");
        assert_eq!(db.locks().await, [], "{does:?}");
        // The inner call ends with the body of the outer one.
        match does {
            Body::Idles => assert!(insert(&mut conn, 8, "after it").await.is_ok()),
            _ => assert_closed(&mut conn, "a nested body in a statement").await,
        }
    }
    assert_eq!(committed(&db, 7).await, 0);
    db.until_quiet().await;
}
