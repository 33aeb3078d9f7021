//! `max_hold`: a late end is refused, and the wait does not count.

use super::super::{acquire, begin, connect, end, insert, spawn};
use advisory_runtime::{Error, Isolation, Request};
use advisory_tests::assert_error;
use advisory_tests::bookings::{committed, database, key_of};
use advisory_tests::holds::{in_time, is_early};
use std::time::{Duration, Instant};

/// `Request::max_hold` alone does not drop a body; a late end is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_comes_too_late_is_refused() {
    let db = database().await;
    let bound = Duration::from_nanos(1);
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        let request = Request::new(7).isolation(isolation).max_hold(bound);
        let (inserted, end) = in_time(async || {
            db.until_no_locks().await;
            let (mut conn, started) = (connect(&db).await, Instant::now());
            let mut held = begin(&mut conn, request.clone()).await.unwrap();
            let inserted = insert(held.conn(), 7, "Ada").await;
            let end = end(held, Ok::<_, Error>(())).await;
            is_early(started, bound).then_some((inserted, end))
        })
        .await;
        inserted.unwrap();
        assert_error!(end, HoldExceeded);
        assert_eq!(db.locks().await, []);
    }
    assert_eq!(committed(&db, 7).await, 0);
    let (inserted, end) = in_time(async || {
        db.until_no_locks().await;
        db.run("DELETE FROM booking").await;
        let (mut conn, started) = (connect(&db).await, Instant::now());
        let request = Request::new(7).max_hold(bound);
        let mut held = acquire(&mut conn, request).await.unwrap();
        let inserted = insert(held.conn(), 8, "a body's commit stays").await;
        let end = end(held, Ok::<_, Error>(())).await;
        is_early(started, bound).then_some((inserted, end))
    })
    .await;
    inserted.unwrap();
    assert_error!(end, HoldExceeded);
    assert_eq!(committed(&db, 8).await, 1);
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wait_is_not_part_of_it() {
    let bound = Duration::from_millis(1500);
    let request = Request::new(key_of(7)).max_hold(bound);
    let strict = request.clone().isolation(Isolation::Serializable);
    tokio::join!(
        waits_for_longer_than_its_bound(request.clone(), bound, false),
        waits_for_longer_than_its_bound(strict, bound, false),
        waits_for_longer_than_its_bound(request, bound, true),
    );
}

async fn waits_for_longer_than_its_bound(request: Request, bound: Duration, is_session: bool) {
    let db = database().await;
    in_time(async || {
        let (mut holder, mut conn) = (connect(&db).await, connect(&db).await);
        let held = begin(&mut holder, key_of(7)).await.unwrap();
        let request = request.clone();
        let waiting = spawn(async move {
            let mut held = if is_session {
                acquire(&mut conn, request).await?
            } else {
                begin(&mut conn, request).await?
            };
            let inserted = insert(held.conn(), 7, "Ada").await;
            end(held, inserted.map_err(Error::Database)).await
        });
        db.until_waiting(key_of(7)).await;
        // Longer than the server's own bound, which is a second later. This test is about time.
        db.run("SELECT pg_sleep(2.7)").await;
        let freed = Instant::now();
        end(held, Ok::<_, Error>(())).await.unwrap();
        match waiting.await.unwrap() {
            Ok(_) => Some(()),
            // This process was suspended for the whole bound.
            Err(error) => {
                assert!(freed.elapsed() > bound, "{error:?}");
                None
            }
        }
    })
    .await;
    assert_eq!(committed(&db, 7).await, 1);
    db.until_quiet().await;
}
