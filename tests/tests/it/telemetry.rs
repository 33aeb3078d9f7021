//! Telemetry of locks: spans, events, counters and histograms.

use crate::observers::{each_alone, watch, watch_warnings};
use advisory_runtime::lease::{Error as LeaseError, Leases};
use advisory_runtime::migrations::{KEY, Migrator, Step};
use advisory_runtime::{Error, Key, advisory_lease, advisory_lock, lock_key, xact};
use advisory_tests::bookings::{database, insert};
use advisory_tests::futures::dropped;
use advisory_tests::written_migrations::Written;
use advisory_tests::{Database, leases};
use diesel::QueryResult;
use diesel_async::pooled_connection::deadpool;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::future::pending;
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::Notify;

#[advisory_lock(key = "watched:<room>", wait = "never")]
async fn watched(
    conn: &mut AsyncPgConnection,
    room: i64,
    how: &str,
    started: &Notify,
) -> Result<(), Error> {
    started.notify_one();
    tracing::info!(target: "body", "running");
    match how {
        "fails" => return Err(Error::Database(diesel::NotFound)),
        "swallows" => drop(insert(conn, room, "\0").await),
        "hangs" => pending().await,
        _ => {}
    }
    Ok(())
}

#[advisory_lock(key = "watched-session:<room>", scope = "session")]
async fn watched_session(conn: &mut AsyncPgConnection, room: i64) -> Result<(), Error> {
    Ok(())
}

#[advisory_lease(key = "leased-watch:<room>", pool = leases)]
async fn leased<P: advisory_runtime::lease::Store>(
    leases: &Leases<P>,
    room: i64,
) -> QueryResult<i64> {
    tracing::info!(target: "body", "running");
    Ok(room)
}

async fn calls(db: &Database) {
    let mut conn = db.connect().await;
    let (started, never) = (Notify::new(), Notify::new());
    watched(&mut conn, 1, "", &never).await.unwrap();
    for how in ["fails", "swallows"] {
        watched(&mut conn, 1, how, &never).await.unwrap_err();
    }
    let mut other = db.connect().await;
    let refused = async {
        started.notified().await;
        let error = watched(&mut conn, 1, "", &never).await.unwrap_err();
        assert!(error.is_busy(), "{error:?}");
    };
    dropped(watched(&mut other, 1, "hangs", &started), refused).await;
}

#[tokio::test]
async fn each_watcher_sees_what_it_should() {
    let names = [
        "each_lock_is_a_span_with_its_pattern_and_its_outcome",
        "counters_and_histograms_go_by_pattern",
        "a_lease_is_followed_like_a_lock",
        "done_work_is_reported_as_done_and_without_a_warning",
        "a_lock_left_to_its_transaction_is_not_a_leak",
        "a_run_of_migrations_tells_its_steps",
    ];
    each_alone("telemetry", &names).await;
}

/// Does nothing unless another test starts it, like those below.
#[tokio::test]
async fn each_lock_is_a_span_with_its_pattern_and_its_outcome() {
    let Some(seen) = watch() else { return };
    let db = database().await;
    calls(&db).await;
    watched_session(&mut db.connect().await, 1).await.unwrap();
    seen.heard.assert_has(&[
        "new advisory_lock pattern=\"watched:<room>\" scope=\"xact\" mode=\"exclusive\" db.system.name=\"postgresql\" \
         db.query.summary=\"SELECT pg_try_advisory_xact_lock\"",
        "new advisory_lock pattern=\"watched-session:<room>\" scope=\"session\"",
        "record error.type=\"not_available\"",
        "record error.type=\"rolled_back\"",
        "DEBUG in 0 message=acquired",
        // The body's own events are inside the span.
        "INFO in 1 message=running",
        "record outcome=\"done\"",
        "record outcome=\"failed\"",
        "record outcome=\"rolled_back\"",
        "WARN in 0 message=ignored error: the call under advisory lock `watched:<room>`",
        "record outcome=\"not_available\"",
        "contention: advisory lock `watched:<room>` is held",
        "record outcome=\"dropped\"",
        "WARN in 0 message=the call was dropped, and its lock is released",
    ]);
    // Never a key.
    assert!(!seen.heard.has("watched:1"));
}

#[tokio::test]
async fn a_run_of_migrations_tells_its_steps() {
    let Some(seen) = watch() else { return };
    let db = database().await;
    let conn = db.connect().await;
    let holder = advisory_runtime::session::acquire_owned(conn, KEY).await;
    let holder = Mutex::new(Some(holder.unwrap()));
    let migrator = Migrator::new(Written(vec![("1", "SELECT 1")])).on_step(move |step| {
        if matches!(step, Step::Waiting { .. }) {
            drop(holder.lock().unwrap().take());
        }
    });
    migrator.run(db.url()).await.unwrap();
    seen.heard.assert_has(&[
        "message=waiting for process ",
        "INFO in 0 message=the lock is held: 1 migration is pending pending=1 reverts=0",
        "INFO in 0 message=running `1` (1 of 1) migration=\"1\"",
        "INFO in 0 message=`1` done in",
    ]);
}

#[tokio::test]
async fn counters_and_histograms_go_by_pattern() {
    let Some(seen) = watch() else { return };
    let db = database().await;
    calls(&db).await;
    let labels = "watched:<room>/xact/exclusive";
    for (name, times) in [
        (format!("advisory_acquired_total/{labels}"), 4),
        (format!("advisory_wait_seconds/{labels}"), 4),
        (format!("advisory_hold_seconds/{labels}"), 4),
        (format!("advisory_refused_total/{labels}/not_available"), 1),
        (format!("advisory_ended_total/{labels}/done"), 1),
        (format!("advisory_ended_total/{labels}/failed"), 1),
        (format!("advisory_ended_total/{labels}/rolled_back"), 1),
        (format!("advisory_ended_total/{labels}/dropped"), 1),
    ] {
        assert_eq!(seen.counted.count(&name), times, "{name}");
    }
}

#[tokio::test]
async fn a_lease_is_followed_like_a_lock() {
    let Some(seen) = watch() else { return };
    let db = leases::database().await;
    let leases = Leases::new(db.deadpool(1));
    leased(&leases, 5).await.unwrap();
    assert!(!seen.heard.has("record outcome=\"failed\""));
    let held = leases.acquire(leases::key("leased-watch:6")).await.unwrap();
    let failed = Err::<(), _>(LeaseError::Database(diesel::NotFound));
    held.finish(failed).await.unwrap_err();
    seen.heard.assert_has(&[
        "new advisory_lock pattern=\"leased-watch:<room>\" scope=\"lease\"",
        "INFO in 1 message=running",
        "record outcome=\"done\"",
        "record outcome=\"failed\"",
    ]);
    let done = "advisory_ended_total/leased-watch:<room>/lease/exclusive/done";
    assert_eq!(seen.counted.count(done), 1);
}

#[tokio::test]
async fn done_work_is_reported_as_done_and_without_a_warning() {
    let Some(seen) = watch() else { return };
    let db = leases::database().await;
    let leases = Leases::new(db.deadpool(1));
    let keep = Duration::from_secs(3600);
    let request = leases::key("leased-watch:6").keep(keep);
    leases::once(&leases, request).await.unwrap();
    let error = leased(&leases, 6).await.unwrap_err();
    assert!(LeaseError::find(&error).is_some_and(|found| found.is_done()));
    assert!(seen.heard.has("record outcome=\"already_done\""));
    assert!(!seen.heard.has("WARN"), "{:#?}", seen.heard.lines);
    let refused = "advisory_refused_total/leased-watch:<room>/lease/exclusive/already_done";
    assert_eq!(seen.counted.count(refused), 1);
}

#[tokio::test]
async fn a_lock_left_to_its_transaction_is_not_a_leak() {
    let Some(seen) = watch() else { return };
    let db = database().await;
    let mut conn = db.connect().await;
    let locked = conn.transaction::<_, Error, _>(async |conn| xact::lock(conn, 7).await);
    locked.await.unwrap();
    assert!(seen.heard.has("record outcome=\"left\""));
    assert!(!seen.heard.has("WARN"), "{:#?}", seen.heard.lines);
    for name in [
        "advisory_acquired_total/number/xact/exclusive",
        "advisory_wait_seconds/number/xact/exclusive",
    ] {
        assert_eq!(seen.counted.count(name), 1, "{name}");
    }
    let reported = seen.counted.0.lock().unwrap();
    assert_eq!(reported.len(), 2, "{:?}", reported.keys());
}

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
    let second = async {
        started.notified().await;
        let waiting = awaited(&mut other, room, &never);
        dropped(waiting, db.until_waiting(key)).await;
    };
    dropped(awaited(&mut conn, room, &started), second).await;
}

#[tokio::test]
async fn each_watcher_sees_the_calls_that_wait() {
    let names = [
        "a_waiter_that_is_dropped_was_turned_away",
        "a_warning_names_its_pattern_where_no_span_is_wanted",
        "a_call_that_polls_is_one_call_however_often_it_asks",
    ];
    each_alone("telemetry", &names).await;
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
    let short = Duration::from_millis(30);
    let error = polled(&pool, room, short).await.unwrap_err();
    let is_busy = Error::find(&*error).is_some_and(|found| found.is_busy());
    assert!(is_busy, "{error:?}");
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
