//! Does `locks --watch` show what changes, until nobody wants to see it?

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use advisory_tests::Database;
use serde_json::Value;

use crate::locks::holder;

#[tokio::test(flavor = "multi_thread")]
async fn watching_shows_what_changes_and_ends_with_ctrl_c() {
    let db = Database::create().await;
    let url = db.url().to_owned();
    let mut watching = Command::new(env!("CARGO_BIN_EXE_cargo-advisory"))
        .args(["locks", "--watch", "--json", "--interval", "20ms"])
        .env("DATABASE_URL", url)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut until = |count: usize| {
        lines.by_ref().any(|line| {
            let look: Value = serde_json::from_str(&line.unwrap()).unwrap();
            look["locks"].as_array().unwrap().len() == count
        })
    };
    assert!(until(0));
    let held = holder(&db, "job", "SELECT pg_advisory_lock(5)").await;
    assert!(until(1));
    drop(held);
    assert!(until(0));
    let pid = watching.id().to_string();
    Command::new("kill").args(["-INT", &pid]).status().unwrap();
    drop(lines);
    assert_eq!(watching.wait().unwrap().code(), Some(0));
    let mut err = String::new();
    watching.stderr.unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(err, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn watching_ends_when_nobody_reads_any_more() {
    let db = Database::create().await;
    let mut watching = Command::new(env!("CARGO_BIN_EXE_cargo-advisory"))
        .args(["locks", "--watch", "--interval", "20ms"])
        .env("DATABASE_URL", db.url())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(
        first.starts_with("no advisory locks in database `"),
        "{first}"
    );
    drop(lines);
    assert_eq!(watching.wait().unwrap().code(), Some(0));
}
