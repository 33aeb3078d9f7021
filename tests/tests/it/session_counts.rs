//! Session-level locks are counted: each acquisition is released once, and nothing else.

use crate::calls::assert_closed;
use advisory_runtime::{Error, Request, Wait, session};
use advisory_tests::bookings::{database, execute, outcome, run};
use advisory_tests::held_keys::held;
use std::time::Duration;

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
