//! A body that holds its lock without running statements: debug builds warn about it, and about
//! nothing else.
//!
//! In processes of their own, since `tracing` caches for the whole process whether an event is
//! enabled.

use crate::observers::{Heard, alone, watch_warnings};
use advisory_runtime::{Error, advisory_lock, xact};
use advisory_tests::bookings::{database, execute, run};
use advisory_tests::{Database, assert_matches, debug_checks_are_on, pid_of};
use diesel::QueryResult;
use diesel::connection::Connection as _;
use diesel::pg::PgConnection;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const WARNING: &str = "idle under a lock: ";

#[tokio::test]
async fn each_body_is_distinguished_from_the_others() {
    if !debug_checks_are_on() {
        return;
    }
    let names = [
        "a_body_idle_for_a_second_is_reported_once",
        "a_long_statement_causes_no_warning",
        "slow_rows_cause_no_warning",
        "a_blocking_body_is_reported_too",
        "an_instrumentation_of_the_programs_own_is_left_alone",
        "the_innermost_call_is_reported",
    ];
    alone("idle", &names).await;
}

fn warnings(heard: &Heard) -> Vec<String> {
    let lines = heard.lines.lock().unwrap();
    let warnings = lines.iter().filter(|line| line.contains(WARNING));
    warnings.cloned().collect()
}

/// Waits until the session has been idle for more than a second.
async fn something_else(db: &Database, pid: i32) {
    let busy = format!(
        "SELECT state FROM pg_stat_activity WHERE pid = {pid} AND clock_timestamp() - state_change < interval '1.1s'"
    );
    db.until_none("an idle session", &busy).await;
}

#[advisory_lock(key = "idle:<id>")]
async fn call_a_service(conn: &mut AsyncPgConnection, id: i64, db: &Database) -> Result<(), Error> {
    let pid = pid_of(conn).await;
    something_else(db, pid).await;
    execute(conn, "SELECT 1").await?;
    Ok(())
}

#[tokio::test]
async fn a_body_idle_for_a_second_is_reported_once() {
    let Some(seen) = watch_warnings() else { return };
    let db = database().await;
    let mut conn = db.connect().await;
    for id in 0..2 {
        call_a_service(&mut conn, id, &db).await.unwrap();
    }
    let warnings = warnings(&seen.heard);
    let [warning] = &warnings[..] else {
        panic!("{warnings:?}")
    };
    for part in [
        "WARN in 0 message=idle under a lock: `call_a_service` (tests/tests/it/idle.rs:",
        "without a statement",
        "pattern=\"idle:<id>\"",
    ] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    let page = include_str!("../../../advisory-runtime/docs/connections.md");
    let page: Vec<&str> = page.split_whitespace().collect();
    let page = page.join(" ");
    let (_, said) = warning.split_once("without a statement").unwrap();
    let (said, _) = said.split_once(" (reported once").unwrap();
    assert!(page.contains(said), "{said}");
}

#[advisory_lock(key = "busy:<id>")]
async fn ask_for_long(
    conn: &mut AsyncPgConnection,
    id: i64,
    beside: &AsyncPgConnection,
) -> Result<(), Error> {
    // Woken by other tasks meanwhile.
    let tick = async {
        for _ in 0..10 {
            let mut beside = beside;
            let tick = diesel::sql_query("SELECT pg_sleep(0.1)");
            diesel_async::RunQueryDsl::execute(tick, &mut beside).await?;
        }
        QueryResult::Ok(())
    };
    let (asked, ticked) = tokio::join!(execute(conn, "SELECT pg_sleep(1.5)"), tick);
    asked?;
    ticked?;
    execute(conn, "SELECT pg_sleep(1.2)").await?;
    Ok(())
}

#[tokio::test]
async fn a_long_statement_causes_no_warning() {
    let Some(seen) = watch_warnings() else { return };
    let db = database().await;
    let (mut conn, beside) = (db.connect().await, db.connect().await);
    ask_for_long(&mut conn, 1, &beside).await.unwrap();
    assert_eq!(warnings(&seen.heard), Vec::<String>::new());
}

/// The server sends a full buffer, four of these rows, about every second.
const SLOW_ROWS: &str = "SELECT repeat(md5(number::text), 70) FROM generate_series(1, 11) AS number, \
     LATERAL (SELECT pg_sleep(0.3 + 0 * number)) AS slow";

#[advisory_lock(key = "rows:<id>")]
async fn read_slowly(conn: &mut AsyncPgConnection, id: i64) -> Result<usize, Error> {
    let rows = diesel::dsl::sql::<diesel::sql_types::Text>(SLOW_ROWS);
    let rows: Vec<String> = diesel_async::RunQueryDsl::load(rows, conn).await?;
    Ok(rows.len())
}

#[tokio::test]
async fn slow_rows_cause_no_warning() {
    let Some(seen) = watch_warnings() else { return };
    let db = database().await;
    let mut conn = db.connect().await;
    assert_eq!(read_slowly(&mut conn, 1).await.unwrap(), 11);
    assert_eq!(warnings(&seen.heard), Vec::<String>::new());
}

#[advisory_lock(key = "blocking-idle:<id>")]
fn call_a_service_blocking(
    conn: &mut PgConnection,
    id: i64,
    other: &mut PgConnection,
    asks: bool,
) -> QueryResult<()> {
    if asks {
        advisory_tests::blocking::execute(conn, "SELECT pg_sleep(1.2)")?;
    } else {
        advisory_tests::blocking::execute(other, "SELECT pg_sleep(1.2)")?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_body_is_reported_too() {
    let Some(seen) = watch_warnings() else { return };
    let db = database().await;
    let (mut conn, mut other) = (db.establish(), db.establish());
    call_a_service_blocking(&mut conn, 1, &mut other, true).unwrap();
    assert_eq!(warnings(&seen.heard), Vec::<String>::new());
    call_a_service_blocking(&mut conn, 1, &mut other, false).unwrap();
    assert_eq!(warnings(&seen.heard).len(), 1);
    conn.transaction(|conn| call_a_service_blocking(conn, 1, &mut other, false))
        .unwrap();
    assert_eq!(warnings(&seen.heard).len(), 1, "once for each place");
}

#[tokio::test]
async fn an_instrumentation_of_the_programs_own_is_left_alone() {
    let Some(seen) = watch_warnings() else { return };
    let db = database().await;
    let mut conn = db.connect().await;
    let counted = Arc::new(AtomicU32::new(0));
    let events = Arc::clone(&counted);
    conn.set_instrumentation(move |_: diesel::connection::InstrumentationEvent<'_>| {
        events.fetch_add(1, Ordering::Relaxed);
    });
    call_a_service(&mut conn, 1, &db).await.unwrap();
    assert_eq!(warnings(&seen.heard), Vec::<String>::new());
    let before = counted.load(Ordering::Relaxed);
    run(&mut conn, "SELECT 1").await;
    assert!(before > 0 && counted.load(Ordering::Relaxed) > before);
}

#[tokio::test]
async fn the_innermost_call_is_reported() {
    #[advisory_lock(key = "outer-of-idle:<id>")]
    async fn outer(conn: &mut AsyncPgConnection, id: i64, db: &Database) -> Result<(), Error> {
        // There is no body, so nothing is known about it.
        let held = xact::begin(conn, id).await?;
        held.finish(Ok::<_, Error>(())).await?;
        inner(conn, id, db).await
    }
    #[advisory_lock(key = "inner-of-idle:<id>")]
    async fn inner(conn: &mut AsyncPgConnection, id: i64, db: &Database) -> Result<(), Error> {
        let pid = pid_of(conn).await;
        something_else(db, pid).await;
        Ok(())
    }
    let Some(seen) = watch_warnings() else { return };
    let db = database().await;
    let mut conn = db.connect().await;
    outer(&mut conn, 1, &db).await.unwrap();
    let warnings = warnings(&seen.heard);
    assert_matches!(&warnings[..], [one] if one.contains("`inner`"));
}
