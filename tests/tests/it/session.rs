//! Session-level locks: released on every way out, reported when lost, and refused inside a
//! transaction.

use crate::calls::assert_closed;
use advisory_runtime::{Connection, Error, Pool, Request, Wait, advisory_lock, session};
use advisory_tests::bookings::{
    committed, database, diesel_outcome, execute, insert, key_of, outcome, run,
};
use advisory_tests::dropped_call::until_ended;
use advisory_tests::futures::caught;
use advisory_tests::held_keys::held;
use advisory_tests::{Database, LockedKey, Proxy, assert_error, debug_checks_are_on, pid_of};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use std::time::Duration;

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
async fn swallow(
    conn: &mut AsyncPgConnection,
    room: i64,
    sql: &str,
    is_ok: bool,
) -> QueryResult<()> {
    let swallowed = conn.batch_execute(sql).await;
    drop(swallowed);
    diesel_outcome(is_ok)
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

/// The query that releases a lock is prepared, but not needed.
#[tokio::test]
async fn it_is_released_without_its_prepared_statement() {
    let db = database().await;
    let mut conn = db.connect().await;
    let nothing = "SELECT 1";
    for sql in [nothing, "DEALLOCATE ALL", nothing] {
        swallow(&mut conn, 7, sql, true).await.unwrap();
        assert_eq!(held(&db).await, [], "{sql}");
    }
    let unlock = "SELECT pg_advisory_unlock_all()";
    assert_error!(swallow(&mut conn, 7, unlock, true).await, LockLost);
    swallow(&mut conn, 7, nothing, true).await.unwrap();
}

/// Calls in every way on the pool's one connection, each followed by one that works.
async fn leaves_nothing<P: Pool>(db: &Database, pool: P) {
    let call = async |room, way| leave(&mut pool.connection().await.unwrap(), db, room, way).await;
    for way in WAYS {
        drop(caught(call(7, way)).await);
        db.until_no_locks().await;
        call(8, Way::Ok).await.unwrap();
        assert_eq!(held(db).await, [], "{way:?}");
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
            let mut conn = pool.connection().await.unwrap();
            swallow(conn.pg(), 7, sql, is_ok).await.unwrap_err();
            drop(conn);
            call(8, Way::Ok).await.unwrap();
        }
    }
    db.until_quiet().await;
}

#[tokio::test]
async fn nothing_is_left_in_a_pool() {
    let db = database().await;
    leaves_nothing(&db, db.bb8(1).await).await;
    leaves_nothing(&db, db.deadpool(1)).await;
}

/// Behind a pooler that does not track prepared statements, another client's can have the name of
/// the try.
#[tokio::test]
async fn a_try_that_another_statement_answers_has_taken_nothing() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let requests = [
        Request::new(7),
        Request::all([7, 8]),
        Request::new(7).permits(3),
    ];
    let others = [
        "SELECT 1",
        "SELECT 'advisory:1'",
        "SELECT NULL",
        "SELECT 1 WHERE false",
    ];
    for request in requests {
        for other in others {
            let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
            proxy.prepare_instead("pg_try_advisory_lock", other);
            let request = request.clone().wait(Wait::Never);
            let taken = session::acquire(&mut conn, request.clone()).await.map(drop);
            assert_error!(taken, Database, "{other}");
            assert_closed(&mut conn, other).await;
            // The same without another statement.
            let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
            let taken = session::acquire(&mut conn, request).await.unwrap();
            assert_ne!(held(&db).await, []);
            taken.finish(Ok::<_, Error>(())).await.unwrap();
            assert_eq!(held(&db).await, []);
        }
    }
}

/// The release executes what the query before the lock has answered.
#[tokio::test]
async fn another_statements_answer_is_not_executed() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    for (room, other) in (1..).zip(["SELECT 'DROP TABLE booking'", "SELECT NULL"]) {
        let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
        proxy.prepare_instead("pg_catalog.pg_settings", other);
        let request = Request::new(7).max_hold(Duration::from_secs(60));
        let ended = match session::acquire(&mut conn, request).await {
            Ok(held) => held.finish(Ok::<_, Error>(())).await,
            Err(error) => Err(error),
        };
        let is_refused = matches!(ended, Err(Error::Database(_)));
        assert!(is_refused, "{other}: {ended:?}");
        assert!(insert(&mut conn, room, "Ada").await.unwrap() > 0, "{other}");
        assert_eq!(held(&db).await, []);
    }
}

/// The outer lock is released too, and its call learns so.
#[tokio::test]
async fn a_dropped_call_inside_another_one_takes_that_with_it() {
    let db = database().await;
    for is_ok in [true, false] {
        let mut conn = db.connect().await;
        let mut outer = session::acquire(&mut conn, 7).await.unwrap();
        drop(
            session::acquire(outer.conn(), Request::all([6, 7]))
                .await
                .unwrap(),
        );
        execute(outer.conn(), "SELECT 1").await.unwrap_err();
        let own = outcome(is_ok);
        match outer.finish(own).await.unwrap_err() {
            Error::LockLost { lock, .. } if is_ok => assert_eq!(lock, "7"),
            Error::Database(diesel::result::Error::NotFound) if !is_ok => {}
            error => panic!("{is_ok}: {error:?}"),
        }
        assert_eq!(held(&db).await, [], "gone when the call has returned");
        assert_closed(&mut conn, "a dropped call inside another one").await;
    }
    db.until_quiet().await;
}

/// Locks that the caller has acquired by hand, on the same keys, are neither released nor counted.
#[tokio::test]
async fn a_lock_that_the_caller_took_by_hand_is_kept() {
    let db = database().await;
    for (by_hand, mode) in [
        ("pg_advisory_lock", "ExclusiveLock"),
        ("pg_advisory_lock_shared", "ShareLock"),
    ] {
        let (mut holder, mut conn) = (db.connect().await, db.connect().await);
        run(&mut conn, &format!("SELECT {by_hand}(1)")).await;
        let theirs = session::acquire(&mut holder, 2).await.unwrap();
        let mut kept = db.locks().await;
        kept.sort_by_key(|lock| lock.key);
        assert_eq!([&*kept[0].mode, &*kept[1].mode], [mode, "ExclusiveLock"]);
        for wait in [Wait::Never, Wait::For(Duration::from_millis(30))] {
            for request in [
                Request::all([1, 2]),
                Request::all([0, 1, 2]).shared(),
                Request::all([2, 3]),
            ] {
                let error = session::acquire(&mut conn, request.wait(wait))
                    .await
                    .unwrap_err();
                assert!(error.is_busy(), "{error:?}");
                let mut left = db.locks().await;
                left.sort_by_key(|lock| lock.key);
                assert_eq!(left, kept);
            }
        }
        for request in [
            Request::new(1),
            Request::new(1).shared(),
            Request::all([0, 1]),
        ] {
            let mine = session::acquire(&mut conn, request).await.unwrap();
            mine.finish(Ok::<_, Error>(())).await.unwrap();
            let mut left = db.locks().await;
            left.sort_by_key(|lock| lock.key);
            assert_eq!(left, kept);
        }
        // Counted once: one manual unlock releases it.
        let unlock = by_hand.replace("_lock", "_unlock");
        run(&mut conn, &format!("SELECT {unlock}(1)")).await;
        theirs.finish(Ok::<_, Error>(())).await.unwrap();
        db.until_no_locks().await;
    }
    // Held shared by hand and by another session: an exclusive request fails, and the shared lock
    // stays.
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    run(&mut conn, "SELECT pg_advisory_lock_shared(1)").await;
    let theirs = session::acquire(&mut holder, Request::new(1).shared())
        .await
        .unwrap();
    for wait in [Wait::Never, Wait::For(Duration::from_millis(30))] {
        let error = session::acquire(&mut conn, Request::new(1).wait(wait))
            .await
            .unwrap_err();
        assert!(error.is_busy(), "{error:?}");
        assert_eq!(held(&db).await.len(), 2);
    }
    theirs.finish(Ok::<_, Error>(())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_body_with_extra_acquires_leaves_nothing() {
    let db = database().await;
    for key in [1, 2] {
        let mut conn = db.connect().await;
        let (reach, reached) = tokio::sync::oneshot::channel::<()>();
        let call = async {
            let mut outer = session::acquire(&mut conn, Request::all([1, 3]))
                .await
                .unwrap();
            let inner = session::acquire(outer.conn(), key).await.unwrap();
            inner.finish(Ok::<_, Error>(())).await.unwrap();
            reach.send(()).unwrap();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = call => {}
            _ = reached => {}
        }
        db.until_no_locks().await;
        assert_closed(&mut conn, "a dropped body").await;
    }
}
