//! `max_hold` of a client that was stopped, or whose packets are dropped: the server ends its session, and so releases the
//! lock.
//!
//! The client is this program, started again with a variable that selects its role.

use crate::bookings::{book, database, execute, key_of};
use advisory_runtime::{Error, Isolation, Request, advisory_lock, session, xact};
use advisory_tests::{Database, Guardian, Proxy};
use diesel::QueryResult;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::env;
use std::future::pending;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const ROLE: &str = "ADVISORY_TEST_STOPPED_ROLE";
pub(crate) const URL: &str = "ADVISORY_TEST_STOPPED_URL";

const MAX_HOLD: Duration = Duration::from_secs(1);
/// The server's bound is 2 seconds; the rest is for a busy machine.
const GENEROUS: Duration = Duration::from_secs(30);

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
    match role {
        "attribute" => attributed(conn, 7).await.unwrap(),
        "session" => {
            let _held = session::acquire(conn, request).await.unwrap();
            say_held();
            pending::<()>().await;
        }
        "session in a transaction" => {
            let mut held = session::acquire(conn, request).await.unwrap();
            execute(held.conn(), "BEGIN").await.unwrap();
            say_held();
            pending::<()>().await;
        }
        "strict in a statement" => {
            let request = request.isolation(Isolation::Serializable);
            let mut held = xact::begin(conn, request).await.unwrap();
            say_held();
            execute(held.conn(), LONG).await.unwrap();
        }
        "session in a statement" => {
            let mut held = session::acquire(conn, request).await.unwrap();
            say_held();
            execute(held.conn(), LONG).await.unwrap();
        }
        "nested" => {
            let mut outer = xact::begin(conn, 99).await.unwrap();
            let _inner = xact::begin(outer.conn(), request).await.unwrap();
            say_held();
            pending::<()>().await;
        }
        "strict" => {
            let _held = xact::begin(conn, request.isolation(Isolation::Serializable))
                .await
                .unwrap();
            say_held();
            pending::<()>().await;
        }
        "longer timeouts" => {
            let longer = "SELECT set_config(name, '1h', false) FROM pg_settings WHERE name IN \
                          ('idle_in_transaction_session_timeout', 'transaction_timeout')";
            execute(conn, longer).await.unwrap();
            let _held = xact::begin(conn, request).await.unwrap();
            say_held();
            pending::<()>().await;
        }
        "statement" => {
            let mut held = xact::begin(conn, request).await.unwrap();
            say_held();
            execute(held.conn(), LONG).await.unwrap();
        }
        "short statement" => {
            let mut held = xact::begin(conn, request).await.unwrap();
            say_held();
            execute(held.conn(), SHORT).await.unwrap();
            pending::<()>().await;
        }
        _ => {
            let _held = xact::begin(conn, request).await.unwrap();
            say_held();
            pending::<()>().await;
        }
    }
}

const LONG: &str = "SELECT pg_sleep(600)";
const SHORT: &str = "SELECT pg_sleep(3)";

const HELD: &str = "held";

/// Tells the other process, on a separate line between those of the test harness.
fn say_held() {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{HELD}")
        .and_then(|()| out.flush())
        .unwrap();
}

/// A process with a role; killed when dropped or when this process ends, even if it is stopped.
pub(crate) struct Player {
    child: Child,
    /// `None` while it is dropped.
    guardian: Option<Guardian>,
}

impl Player {
    fn start(db: &Database, role: &str) -> Self {
        Self::start_in("stopped::the_process_that_is_stopped", db, role)
    }

    /// In a process that runs only this test.
    pub(crate) fn start_in(test: &str, db: &Database, role: &str) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", test])
            .env(ROLE, role)
            .env(URL, db.url())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let child = command.spawn().unwrap();
        let guardian = Some(Guardian::of(&child).unwrap());
        Self { child, guardian }
    }

    /// Waits until it has reported that it holds the lock. The lock itself may be missed: it is released soon, and this process can
    /// be suspended meanwhile.
    async fn until_held(&mut self) {
        let said = BufReader::new(self.child.stdout.take().unwrap());
        let mut lines = said.lines().map_while(Result::ok);
        let has_said = tokio::task::spawn_blocking(move || lines.any(|line| line == HELD));
        assert!(has_said.await.unwrap(), "it has ended without the lock");
    }

    pub(crate) fn stop(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        drop(self.guardian.take());
        drop(self.child.kill());
        drop(self.child.wait());
    }
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
    db.until_empty(GENEROUS, statement, &not_yet).await;
}

/// Waits until the database has no lock and no waiter, and returns how long that took.
async fn until_freed(db: &Database, what: &str, since: Instant) -> Duration {
    db.until_empty(GENEROUS, "a lock that the server has freed", LOCKS)
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
async fn is_freed_when_stopped(role: &str) {
    let db = database().await;
    let mut player = Player::start(&db, role);
    player.until_held().await;
    player.stop();
    until_freed(&db, role, Instant::now()).await;
    assert!(book(&mut db.connect().await, 7, "Grace").await.unwrap());
}

#[tokio::test]
async fn a_stopped_process_loses_its_transaction_level_lock() {
    is_freed_when_stopped("xact").await;
}

#[tokio::test]
async fn a_stopped_process_loses_the_lock_of_its_locked_function() {
    is_freed_when_stopped("attribute").await;
}

#[tokio::test]
async fn a_stopped_process_loses_a_lock_at_a_stricter_level() {
    is_freed_when_stopped("strict").await;
}

#[tokio::test]
async fn a_stopped_process_loses_the_outer_transaction_of_max_hold() {
    is_freed_when_stopped("nested").await;
}

#[tokio::test]
async fn a_stopped_process_loses_its_session_level_lock() {
    is_freed_when_stopped("session").await;
}

#[tokio::test]
async fn a_stopped_process_loses_its_session_lock_in_a_transaction() {
    is_freed_when_stopped("session in a transaction").await;
}

/// Setting a `transaction_timeout` does not shorten one that is running.
#[tokio::test]
async fn a_stopped_process_loses_its_lock_despite_longer_timeouts() {
    is_freed_when_stopped("longer timeouts").await;
}

/// Only `transaction_timeout` ends a running statement; before PostgreSQL 17 the server waits for it.
#[tokio::test]
async fn a_stopped_process_loses_its_lock_during_or_after_a_statement() {
    let db = database().await;
    if major(&db).await >= 17 {
        for role in ["statement", "session in a statement"] {
            let mut player = Player::start(&db, role);
            until_runs(&db, &mut player, LONG).await;
            player.stop();
            until_freed(&db, role, Instant::now()).await;
        }
    }
    let started = Instant::now();
    let mut player = Player::start(&db, "short statement");
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
        let player = Player::start(&db, role);
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
        let mut player = Player::start(&db, role);
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
        let player = Player::start(&db, role);
        db.until_waiting(key_of(7)).await;
        let since = Instant::now();
        drop(player);
        let left = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
                    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        db.until_empty(GENEROUS, "no waiter", left).await;
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
        assert!(matches!(end, Err(Error::HoldExceeded { .. })), "{end:?}");
        let next = execute(&mut conn, "SELECT 1").await;
        assert!(next.is_err(), "the session is over");
    }
}
