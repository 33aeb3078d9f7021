//! `max_hold` of a client that was stopped, or whose packets are dropped: the server ends its
//! session, and so releases the lock.
//!
//! The client is this program, started again with a variable that selects its role.

use crate::calls::book;
use advisory_runtime::{Error, Isolation, Request, advisory_lock, session, xact};
use advisory_tests::bookings::{database, execute, key_of, run};
use advisory_tests::player::{Player, ROLE, URL, say_held};
use advisory_tests::{Database, Proxy, assert_error};
use diesel::QueryResult;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::env;
use std::future::pending;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const MAX_HOLD: Duration = Duration::from_secs(1);

/// Does nothing unless another test starts it.
#[tokio::test]
async fn the_process_that_is_stopped() {
    let (Ok(role), Ok(url)) = (env::var(ROLE), env::var(URL)) else {
        return;
    };
    let mut conn = AsyncPgConnection::establish(&url).await.unwrap();
    stop_in(&role, &mut conn).await;
}

#[advisory_lock(key = "room:<room>", name = "room", max_hold = MAX_HOLD)]
async fn attributed(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<()> {
    _ = conn;
    say_held();
    pending().await
}

async fn stop_in(role: &str, conn: &mut AsyncPgConnection) {
    let request = Request::new(key_of(7)).max_hold(MAX_HOLD);
    if role == "longer timeouts" {
        let longer = "SELECT set_config(name, '1h', false) FROM pg_settings WHERE name IN \
             ('idle_in_transaction_session_timeout', 'transaction_timeout')";
        run(conn, longer).await;
    }
    let mut outer;
    let held = match role {
        "attribute" => return attributed(conn, 7).await.unwrap(),
        "session" | "session in a transaction" | "session in a statement" => {
            session::acquire(conn, request).await
        }
        "strict" | "strict in a statement" => {
            xact::begin(conn, request.isolation(Isolation::Serializable)).await
        }
        "nested" => {
            outer = xact::begin(conn, 99).await.unwrap();
            xact::begin(outer.conn(), request).await
        }
        _ => xact::begin(conn, request).await,
    };
    let mut held = held.unwrap();
    if role == "session in a transaction" {
        run(held.conn(), "BEGIN").await;
    }
    say_held();
    match role {
        "short statement" => run(held.conn(), SHORT).await,
        "statement" | "strict in a statement" | "session in a statement" => {
            run(held.conn(), LONG).await;
        }
        _ => {}
    }
    pending::<()>().await;
}

const LONG: &str = "SELECT pg_sleep(600)";
const SHORT: &str = "SELECT pg_sleep(3)";

fn player(db: &Database, role: &str) -> Player {
    Player::start("stopped::the_process_that_is_stopped", db, role)
}

/// Advisory locks of the database, held or waited for.
const LOCKS: &str = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' \
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// Waits until the holder runs this statement, or the server has ended its session.
async fn until_runs(db: &Database, player: &mut Player, statement: &str) {
    player.until_held().await;
    let not_yet = format!(
        "{LOCKS} AND NOT EXISTS (SELECT FROM pg_stat_activity \
         WHERE datname = current_database() AND state = 'active' AND query = '{statement}')"
    );
    db.until_none(statement, &not_yet).await;
}

/// Waits until the database has no lock and no waiter, and returns how long that took.
async fn until_freed(db: &Database, what: &str, since: Instant) -> Duration {
    db.until_none("a lock that the server has freed", LOCKS)
        .await;
    let after = since.elapsed();
    eprintln!("{what}: freed after {after:.1?}");
    after
}

async fn major(db: &Database) -> i64 {
    db.count("SELECT current_setting('server_version_num')::int / 10000")
        .await
}

/// An idle process in this role is stopped, and another one gets the lock.
async fn is_freed_when_stopped(role: &'static str) {
    let db = database().await;
    let mut player = player(&db, role);
    player.until_held().await;
    player.stop();
    until_freed(&db, role, Instant::now()).await;
    assert!(book(&mut db.connect().await, 7, "Grace").await.unwrap());
}

#[tokio::test]
async fn a_stopped_process_loses_its_lock() {
    let mut roles = JoinSet::new();
    for role in [
        "xact",
        "attribute",
        "strict",
        "nested",
        "session",
        "session in a transaction",
        // Setting a `transaction_timeout` does not shorten one that is running.
        "longer timeouts",
    ] {
        roles.spawn(is_freed_when_stopped(role));
    }
    roles.join_all().await;
}

/// Only `transaction_timeout` ends a running statement; before PostgreSQL 17 the server waits for
/// it.
#[tokio::test]
async fn a_stopped_process_loses_its_lock_during_or_after_a_statement() {
    let db = database().await;
    if major(&db).await >= 17 {
        for role in ["statement", "session in a statement"] {
            let mut player = player(&db, role);
            until_runs(&db, &mut player, LONG).await;
            player.stop();
            until_freed(&db, role, Instant::now()).await;
        }
    }
    let started = Instant::now();
    let mut player = player(&db, "short statement");
    until_runs(&db, &mut player, SHORT).await;
    player.stop();
    let after = until_freed(&db, "a statement of 3 seconds", started).await;
    if major(&db).await < 17 {
        assert!(after > Duration::from_secs(3), "{after:?}");
    }
}

#[tokio::test]
async fn a_stopped_waiter_gets_its_turn_and_loses_it() {
    let db = database().await;
    let mut holder = db.connect().await;
    for role in ["xact", "strict", "session"] {
        let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
        let player = player(&db, role);
        db.until_waiting(key_of(7)).await;
        player.stop();
        let granted = Instant::now();
        held.finish(Ok::<_, Error>(())).await.unwrap();
        let after = until_freed(&db, &format!("waiter, {role}"), granted).await;
        assert!(after > MAX_HOLD, "it was granted: {after:?}");
    }
}

/// The server checks its client while the lock is held.
#[tokio::test]
async fn a_holder_killed_in_a_statement_of_its_body_loses_its_lock() {
    let db = database().await;
    for role in [
        "statement",
        "strict in a statement",
        "session in a statement",
    ] {
        let mut player = player(&db, role);
        until_runs(&db, &mut player, LONG).await;
        let since = Instant::now();
        drop(player);
        until_freed(&db, &format!("killed holder, {role}"), since).await;
    }
}

#[tokio::test]
async fn a_killed_waiter_leaves_the_queue() {
    let db = database().await;
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    for role in ["xact", "strict", "session"] {
        let player = player(&db, role);
        db.until_waiting(key_of(7)).await;
        let since = Instant::now();
        drop(player);
        let left = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
                    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        db.until_none("no waiter", left).await;
        eprintln!("killed waiter, {role}: left after {:.1?}", since.elapsed());
    }
    held.finish(Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
}

#[tokio::test]
async fn a_client_whose_packets_are_dropped_loses_its_lock() {
    let db = database().await;
    for is_session in [false, true] {
        let proxy = Proxy::start(&db).await;
        let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
        let request = Request::new(key_of(7)).max_hold(MAX_HOLD);
        let held = if is_session {
            session::acquire(&mut conn, request).await.unwrap()
        } else {
            xact::begin(&mut conn, request).await.unwrap()
        };
        proxy.stop_forwarding();
        until_freed(&db, "dropped packets", Instant::now()).await;
        assert!(book(&mut db.connect().await, 7, "Grace").await.is_ok());
        proxy.resume_forwarding();
        let end = held.finish(Ok::<_, Error>(())).await;
        assert_error!(end, HoldExceeded);
        let next = execute(&mut conn, "SELECT 1").await;
        assert!(next.is_err(), "the session is over");
    }
}
