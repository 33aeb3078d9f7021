//! Telemetry of a call that waits: when it is dropped, and when it polls.

use crate::observers::{each_alone, watch, watch_warnings};
use advisory_runtime::{Error, Key, advisory_lock, lock_key, xact};
use advisory_tests::Database;
use advisory_tests::bookings::{database, insert};
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool;
use std::future::pending;
use std::time::Duration;
use tokio::sync::Notify;

#[advisory_lock(key = "awaited:<room>", name = "awaited")]
async fn awaited(conn: &mut AsyncPgConnection, room: i64, started: &Notify) -> Result<(), Error> {
    insert(conn, room, "Ada").await?;
    started.notify_one();
    pending().await
}

/// One call holds the lock, another one waits for it, and both are dropped.
async fn drops(db: &Database) {
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    let (started, never) = (Notify::new(), Notify::new());
    let room = 1;
    let Key::BigInt(key) = lock_key!("awaited:<room: int>", name = "awaited") else {
        panic!("a pattern's key is a bigint");
    };
    let mut first = Box::pin(awaited(&mut conn, room, &started));
    tokio::select! {
        ended = &mut first => panic!("{ended:?}"),
        () = started.notified() => {}
    }
    let mut second = Box::pin(awaited(&mut other, room, &never));
    tokio::select! {
        ended = &mut second => panic!("{ended:?}"),
        () = db.until_waiting(key) => {}
    }
    drop(second);
    drop(first);
}

#[tokio::test]
async fn each_watcher_sees_the_calls_that_wait() {
    let names = [
        "a_waiter_that_is_dropped_was_turned_away",
        "a_warning_names_its_pattern_where_no_span_is_wanted",
        "a_call_that_polls_is_one_call_however_often_it_asks",
    ];
    each_alone("telemetry_waits", &names).await;
}

/// Does nothing unless another test starts it, like those below.
#[tokio::test]
async fn a_waiter_that_is_dropped_was_turned_away() {
    let Some(seen) = watch() else { return };
    let db = database().await;
    drops(&db).await;
    let labels = "awaited:<room>/xact/exclusive";
    // One was held, and only that one has ended.
    for name in [
        format!("advisory_acquired_total/{labels}"),
        format!("advisory_hold_seconds/{labels}"),
        format!("advisory_ended_total/{labels}/dropped"),
        format!("advisory_refused_total/{labels}/dropped"),
    ] {
        assert_eq!(seen.counted.count(&name), 1, "{name}");
    }
    assert!(seen.heard.has("the call was dropped while it waited"));
}

#[tokio::test]
async fn a_warning_names_its_pattern_where_no_span_is_wanted() {
    let Some(seen) = watch_warnings() else { return };
    let db = database().await;
    drops(&db).await;
    for what in ["while it waited", "and its lock is released"] {
        let lines = seen.heard.lines.lock().unwrap();
        let warned = lines.iter().find(|line| line.contains(what));
        let warned = warned.unwrap_or_else(|| panic!("{what}: {lines:#?}"));
        assert!(warned.contains("pattern=\"awaited:<room>\""), "{warned}");
    }
}

#[advisory_lock(key = "polled:<room>", name = "polled", conn = pool.get().await?, wait = wait, poll = "2ms")]
async fn polled(
    pool: &deadpool::Pool<AsyncPgConnection>,
    room: i64,
    wait: Duration,
) -> anyhow::Result<()> {
    insert(conn, room, "Ada").await?;
    Ok(())
}

#[tokio::test]
async fn a_call_that_polls_is_one_call_however_often_it_asks() {
    let Some(seen) = watch() else { return };
    let db = database().await;
    let pool = db.deadpool(1);
    let mut holder = db.connect().await;
    let room = 1;
    let key = lock_key!("polled:<room: int>", name = "polled");
    let held = xact::begin(&mut holder, key).await.unwrap();
    let error = polled(&pool, room, Duration::from_millis(30))
        .await
        .unwrap_err();
    assert!(
        Error::find(&*error).is_some_and(|found| found.is_busy()),
        "{error:?}"
    );
    let hour = Duration::from_secs(3600);
    polled(&pool, 2, hour).await.unwrap();
    // A pool without a connection for the next try is an error for the caller, and drops no call.
    let closing = async {
        while pool.status().available == 1 {
            tokio::task::yield_now().await;
        }
        while pool.status().available == 0 {
            tokio::task::yield_now().await;
        }
        pool.close();
    };
    let (ended, ()) = tokio::join!(polled(&pool, room, hour), closing);
    ended.unwrap_err();
    held.finish(Ok::<_, Error>(())).await.unwrap();
    let labels = "polled:<room>/xact/exclusive";
    for name in [
        format!("advisory_refused_total/{labels}/timed_out"),
        format!("advisory_acquired_total/{labels}"),
        format!("advisory_wait_seconds/{labels}"),
        format!("advisory_ended_total/{labels}/done"),
    ] {
        assert_eq!(seen.counted.count(&name), 1, "{name}");
    }
    assert!(!seen.heard.has("the call was dropped"));
}
