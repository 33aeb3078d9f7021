//! Failovers with the servers' own programs: a standby is promoted, with every commit of its primary or without the last ones.

use crate::bookings::book;
use advisory_runtime::__private::lease::Steps as _;
use advisory_runtime::lease::{Lease, Request, Table};
use advisory_runtime::{Error as LockError, Wait};
use advisory_tests::{OwnServer, left_out, owns_server};
use diesel::sql_types::BigInt;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

pub(crate) const GENEROUS: Duration = Duration::from_secs(180);

/// The bits of a token below those of its timeline.
const BITS: u32 = 40;

pub(crate) fn timeline_of(token: i64) -> i64 {
    token >> BITS
}

pub(crate) async fn primary() -> Option<OwnServer> {
    if !owns_server() {
        left_out("failover", "the server is not our own");
        return None;
    }
    let server = OwnServer::start().await;
    let mut conn = connect(&server).await;
    Table::new().set_up(&mut conn).await.unwrap();
    Some(server)
}

pub(crate) async fn connect(server: &OwnServer) -> AsyncPgConnection {
    AsyncPgConnection::establish(server.url()).await.unwrap()
}

pub(crate) async fn number(conn: &mut AsyncPgConnection, sql: &str) -> i64 {
    let asked = diesel::dsl::sql::<BigInt>(sql).get_result(conn).await;
    asked.unwrap()
}

/// Asks until the condition holds.
pub(crate) async fn until(conn: &mut AsyncPgConnection, condition: &str) {
    let since = Instant::now();
    while number(conn, &format!("SELECT count(*) WHERE {condition}")).await == 0 {
        assert!(since.elapsed() < GENEROUS, "{condition}");
        tokio::task::yield_now().await;
    }
}

/// The standby has what was committed until now, and gets nothing of what comes later.
pub(crate) async fn cut_off(primary: &OwnServer, standby: &OwnServer) {
    let (mut from, mut to) = (connect(primary).await, connect(standby).await);
    // A release is not flushed to the disk by its own commit, and not sent before that.
    let flush = "SELECT pg_logical_emit_message(true, '', '')";
    from.batch_execute(flush).await.unwrap();
    let now = "SELECT (pg_current_wal_flush_lsn() - '0/0')::int8";
    let now = number(&mut from, now).await;
    until(
        &mut to,
        &format!("pg_last_wal_replay_lsn() - '0/0' >= {now}"),
    )
    .await;
    to.batch_execute("ALTER SYSTEM SET primary_conninfo = ''")
        .await
        .unwrap();
    to.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    until(&mut to, "NOT EXISTS (SELECT FROM pg_stat_wal_receiver)").await;
}

fn key(text: &str) -> Request {
    Request::text(text).wait(Wait::Never)
}

async fn grant(conn: &mut AsyncPgConnection, text: &str) -> Lease {
    Table::new().acquire(conn, key(text)).await.unwrap()
}

/// A grant that is released at once.
pub(crate) async fn token(conn: &mut AsyncPgConnection, text: &str) -> i64 {
    let lease = grant(conn, text).await;
    assert!(Table::new().release(conn, &lease).await.unwrap());
    lease.token().get()
}

/// Keys with a row and without one, twice.
#[tokio::test]
async fn tokens_grow_across_failovers_that_lose_grants() {
    let Some(primary) = primary().await else {
        return;
    };
    let second = primary.follow().await;
    let mut old = connect(&primary).await;
    let first = token(&mut old, "k").await;
    assert_eq!(timeline_of(first), 1);
    cut_off(&primary, &second).await;
    let mut largest = first;
    // A sequence is logged 32 numbers ahead.
    for number in 0..100 {
        let lost = token(&mut old, if number % 2 == 0 { "k" } else { "new" }).await;
        assert!(lost > largest);
        largest = lost;
    }
    // It goes on by itself, as a primary that is cut off does.
    let isolated = grant(&mut old, "k").await;
    second.promote().await;
    let mut now = connect(&second).await;
    let after = grant(&mut now, "k").await;
    assert_eq!(timeline_of(after.token().get()), 2);
    assert!(after.token() > isolated.token());
    assert!(token(&mut now, "new").await > largest);
    // Storage that compares tokens refuses the isolated holder's, whenever they were granted.
    for _ in 0..3 {
        let late = token(&mut old, "new").await;
        assert!(late < after.token().get() && timeline_of(late) == 1);
    }
    // And once more.
    let fourth = second.follow().await;
    let mut now = connect(&second).await;
    cut_off(&second, &fourth).await;
    let lost = token(&mut now, "new").await;
    fourth.promote().await;
    let mut newest = connect(&fourth).await;
    let after = token(&mut newest, "new").await;
    assert!(after > lost && timeline_of(after) == 3);
    assert_eq!(token(&mut newest, "new").await, after + 1);
}

/// Connects to whichever server is the primary, as soon as there is one.
pub(crate) async fn reconnect(url: &str) -> AsyncPgConnection {
    let since = Instant::now();
    loop {
        if let Ok(conn) = AsyncPgConnection::establish(url).await {
            return conn;
        }
        assert!(since.elapsed() < GENEROUS, "no primary");
        tokio::task::yield_now().await;
    }
}

/// Both servers in the URL, and only the one that writes is wanted.
pub(crate) fn either(first: &OwnServer, second: &OwnServer) -> String {
    let folder = |server: &OwnServer| {
        let folder = server.file("");
        folder.to_string_lossy().trim_end_matches('/').to_owned()
    };
    format!(
        "host={},{} user=postgres dbname=postgres target_session_attrs=read-write",
        folder(first),
        folder(second)
    )
}

async fn follow_synchronously(primary: &OwnServer) -> OwnServer {
    let standby = primary.follow().await;
    let mut conn = connect(primary).await;
    conn.batch_execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        .await
        .unwrap();
    conn.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    until(
        &mut conn,
        "EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')",
    )
    .await;
    standby
}

pub(crate) const BOOKING: &str = "CREATE TABLE booking (room int8 NOT NULL, guest text NOT NULL)";

/// Clients book rooms, each of them twice, and reconnect after an error. `fail` ends the primary meanwhile. What was booked is there once,
/// and what more is there is not more than the commits of which it is unknown.
pub(crate) async fn book_across(url: &str, rooms: i64, fail: impl Future<Output = ()>) {
    let (next, booked) = (
        Arc::new(AtomicI64::new(0)),
        Arc::new(Mutex::new(BTreeSet::new())),
    );
    let errors = Arc::new(AtomicI64::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..6 {
        let (url, next, booked) = (url.to_owned(), Arc::clone(&next), Arc::clone(&booked));
        let errors = Arc::clone(&errors);
        tasks.spawn(async move {
            let mut conn = reconnect(&url).await;
            let mut unknown = 0;
            loop {
                let room = next.fetch_add(1, Ordering::Relaxed) / 2;
                if room >= rooms {
                    return unknown;
                }
                match book(&mut conn, room, &format!("guest {task}")).await {
                    Ok(true) => assert!(booked.lock().unwrap().insert(room), "{room} twice"),
                    Ok(false) => {}
                    Err(error) => {
                        errors.fetch_add(1, Ordering::Relaxed);
                        let found = LockError::find(&error);
                        let is_unknown = found.is_some_and(|found| {
                            matches!(&*found, LockError::CommitUnknown { .. })
                        });
                        unknown += i64::from(is_unknown);
                        conn = reconnect(&url).await;
                    }
                }
            }
        });
    }
    while booked.lock().unwrap().len() < 50 {
        tokio::task::yield_now().await;
    }
    fail.await;
    let before = booked.lock().unwrap().len();
    let unknown: i64 = tasks.join_all().await.into_iter().sum();
    let mut conn = reconnect(url).await;
    let twice = "SELECT count(*) FROM (SELECT room FROM booking GROUP BY room HAVING count(*) > 1) AS twice";
    assert_eq!(number(&mut conn, twice).await, 0);
    let there = "SELECT room FROM booking ORDER BY room";
    let there: Vec<i64> = diesel::dsl::sql::<BigInt>(there)
        .load(&mut conn)
        .await
        .unwrap();
    let there: BTreeSet<i64> = there.into_iter().collect();
    let booked = booked.lock().unwrap();
    let lost: Vec<_> = booked.difference(&there).collect();
    assert!(lost.is_empty(), "an `Ok` that was lost: {lost:?}");
    assert!(
        AtomicI64::load(&errors, Ordering::Relaxed) > 0,
        "nobody noticed the failover"
    );
    assert!(booked.len() > before, "nobody booked after the failover");
    let more = there.difference(&booked).count();
    eprintln!(
        "{} booked, {more} more of {unknown} unknown commits",
        booked.len()
    );
    assert!(i64::try_from(more).unwrap() <= unknown, "{more} {unknown}");
}

/// The primary is killed while clients book; they reconnect to the standby, which is promoted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_booking_is_lost_or_made_twice_by_a_synchronous_failover() {
    let Some(primary) = primary().await else {
        return;
    };
    connect(&primary)
        .await
        .batch_execute(BOOKING)
        .await
        .unwrap();
    let standby = follow_synchronously(&primary).await;
    book_across(&either(&primary, &standby), 400, async {
        primary.stop("immediate").await;
        // Its synchrony is the old primary's affair: the promoted one must not wait for another.
        let alone = "ALTER SYSTEM SET synchronous_standby_names = ''";
        connect(&standby).await.batch_execute(alone).await.unwrap();
        standby.promote().await;
    })
    .await;
}

/// What an asynchronous failover loses is lost whole: a commit of two rows has both or none.
#[tokio::test]
async fn an_asynchronous_failover_loses_whole_transactions() {
    let Some(primary) = primary().await else {
        return;
    };
    let standby = primary.follow().await;
    let mut conn = connect(&primary).await;
    conn.batch_execute(BOOKING).await.unwrap();
    conn.batch_execute(
        "CREATE TABLE mirror (room int8 NOT NULL); \
         CREATE RULE mirror AS ON INSERT TO booking DO ALSO INSERT INTO mirror VALUES (NEW.room)",
    )
    .await
    .unwrap();
    for room in 0..20 {
        assert!(book(&mut conn, room, "before").await.unwrap());
    }
    cut_off(&primary, &standby).await;
    for room in 20..40 {
        assert!(book(&mut conn, room, "lost").await.unwrap());
    }
    primary.stop("immediate").await;
    standby.promote().await;
    let mut conn = connect(&standby).await;
    assert_eq!(number(&mut conn, "SELECT count(*) FROM booking").await, 20);
    let halves = "SELECT count(*) FROM booking FULL JOIN mirror USING (room) WHERE guest IS NULL OR mirror.room IS NULL";
    assert_eq!(number(&mut conn, halves).await, 0);
    assert!(book(&mut conn, 20, "after").await.unwrap());
    assert!(!book(&mut conn, 19, "after").await.unwrap());
}
