//! `cargo advisory locks` on a database, sessions for it to show, and the screens of the pages.

use crate::programs::{Said, assert_has, run_at};
use advisory_tests::futures::{spawn, spawn_blocking};
use advisory_tests::{Database, pid_of};
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use serde_json::Value;
use std::time::Duration;
use tokio::task::JoinHandle;

/// The number of the fixture's fixed lock.
pub(crate) const CLEANUP: i64 = 42_424_242;

/// Runs `cargo advisory locks` on the database.
pub(crate) async fn locks(db: &Database, words: &[&str]) -> Said {
    locks_at(db.url(), words).await
}

pub(crate) async fn locks_at(url: &str, words: &[&str]) -> Said {
    run_at(url, &[&["locks"], words].concat()).await
}

/// Runs it on a terminal with this number of columns, which `script` provides; `None` without
/// `script`.
pub(crate) async fn locks_on_terminal(db: &Database, columns: u32, words: &str) -> Option<String> {
    let command = env!("CARGO_BIN_EXE_cargo-advisory");
    let line = format!("stty cols {columns} rows 200; {command} locks {words}");
    let url = db.url().to_owned();
    let running = move || {
        let mut script = std::process::Command::new("script");
        script
            .args(["-qec", &line, "/dev/null"])
            .stdin(std::process::Stdio::null());
        script
            .env("DATABASE_URL", url)
            .env("NO_COLOR", "1")
            .env_remove("CARGO_TERM_COLOR")
            .output()
    };
    let output = spawn_blocking(running).await.unwrap().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).replace('\r', ""))
}

pub(crate) async fn json(db: &Database, words: &[&str]) -> Value {
    let said = locks(db, &[&["--format", "json"], words].concat()).await;
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

pub(crate) async fn does(conn: &mut AsyncPgConnection, sql: &str) {
    conn.batch_execute(sql).await.unwrap();
}

/// A connection that holds the statement's locks.
pub(crate) async fn holder(db: &Database, application: &str, sql: &str) -> AsyncPgConnection {
    let mut conn = db.connect().await;
    does(
        &mut conn,
        &format!("SET application_name = '{application}'"),
    )
    .await;
    does(&mut conn, sql).await;
    conn
}

/// A connection that waits for one of them.
pub(crate) async fn waiter(
    db: &Database,
    application: &str,
    sql: &'static str,
) -> (i32, JoinHandle<AsyncPgConnection>) {
    let mut conn = holder(db, application, "").await;
    let pid = pid_of(&mut conn).await;
    let waiting = spawn(async move {
        drop(conn.batch_execute(sql).await);
        conn
    });
    // The server records the start of a wait a moment later.
    let short = format!(
        "SELECT 'none' WHERE NOT EXISTS (SELECT FROM pg_locks WHERE pid = {pid} AND waitstart IS NOT NULL)"
    );
    db.until_empty(Duration::from_secs(30), "a waiter", &short)
        .await;
    (pid, waiting)
}

/// The text without numbers, times and runs of spaces, which differ.
pub(crate) fn shape(text: &str) -> String {
    let mut shape = String::new();
    for word in text.split([' ', '\n']).filter(|word| !word.is_empty()) {
        let is_number = word.starts_with(|c: char| c.is_ascii_digit());
        let is_key = word.starts_with('(') && word[1..].starts_with(|c: char| c.is_ascii_digit());
        let word = match word {
            _ if is_number => "0",
            _ if is_key => "(0)",
            "(postgres)" | "(app)" => "(user)",
            word => word,
        };
        shape.push_str(word);
        shape.push(' ');
    }
    shape
}

pub(crate) const PAGE: &str = include_str!("../../../docs/stuck-locks.md");

/// The parts of the screen that the page shows for a situation, by the number in its heading.
pub(crate) fn screens(number: usize) -> Vec<&'static str> {
    let heading = format!("\n### {number}. ");
    let (_, rest) = PAGE
        .split_once(&heading)
        .unwrap_or_else(|| panic!("no situation {number}"));
    let rest = rest.split("\n##").next().unwrap();
    let parts = rest.split("```text\n").skip(1);
    let parts: Vec<&str> = parts
        .map(|part| part.split_once("\n```").unwrap().0)
        .collect();
    assert!(!parts.is_empty(), "{number}");
    parts
}

/// Checks that the output has the screen, apart from numbers, times and names of users.
#[track_caller]
pub(crate) fn shows(number: usize, out: &str) {
    for part in screens(number) {
        let (wanted, printed) = (shape(part), shape(out));
        assert_has(&printed, &wanted);
    }
}
