//! `locks --watch` shows changes, and ends when its output is closed.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use advisory_tests::{Database, OwnServer, left_out, owns_server};
use serde_json::Value;
use tokio::time::{interval, timeout};

use crate::live_view::holder;
use crate::programs::{assert_has, assert_starts};

#[tokio::test(flavor = "multi_thread")]
async fn watching_shows_what_changes_and_ends_with_ctrl_c() {
    let db = Database::create().await;
    let mut watching = watch(db.url(), &["--format=json", "--interval", "20ms"]);
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

fn watch(url: &str, words: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_cargo-advisory"))
        .args(["locks", "--watch"])
        .args(words)
        .env("DATABASE_URL", url)
        .env_remove("CARGO_TERM_COLOR")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn watching_ends_between_refreshes_with_its_reader() {
    let db = Database::create().await;
    let mut watching = watch(db.url(), &["--interval", "1h"]);
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    drop(lines);
    assert_eq!(watching.wait().unwrap().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn watching_a_stopped_server_ends_with_its_reader() {
    if !owns_server() {
        return left_out("a server that stops", "the server is somebody's own");
    }
    let server = OwnServer::start().await;
    let mut watching = watch(server.url(), &["--interval", "20ms"]);
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    server.stop("immediate").await;
    let mut errors = BufReader::new(watching.stderr.take().unwrap()).lines();
    let first = errors.next().unwrap().unwrap();
    assert_has(&first, "error");
    // It must notice even if the pipe is full.
    let errors = std::thread::spawn(move || errors.count());
    drop(lines);
    assert_eq!(watching.wait().unwrap().code(), Some(0));
    errors.join().unwrap();
}

/// As after `nohup`, which ignores the signal of a closed terminal.
#[tokio::test(flavor = "multi_thread")]
async fn watching_ends_with_its_terminal() {
    if Command::new("script").arg("--version").output().is_err() {
        return left_out("a terminal", "`script` is not installed");
    }
    let db = Database::create().await;
    let command = env!("CARGO_BIN_EXE_cargo-advisory");
    let line = format!(
        "trap '' HUP; exec script -qec \"echo \\$\\$; exec '{command}' locks --watch --interval 1h\" /dev/null"
    );
    let mut terminal = Command::new("sh")
        .args(["-c", &line])
        .env("DATABASE_URL", db.url())
        .env_remove("CARGO_TERM_COLOR")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(terminal.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    let pid = next().trim().to_owned();
    while !next().contains("no advisory locks") {}
    let is_there = || {
        let shown = Command::new("ps")
            .args(["-o", "args=", "-p", &pid])
            .output()
            .unwrap();
        String::from_utf8_lossy(&shown.stdout).contains("locks --watch")
    };
    assert!(is_there());
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    let has_ended = until(|| !is_there()).await;
    if !has_ended {
        Command::new("kill").arg(&pid).status().unwrap();
    }
    assert!(has_ended);
}

/// Polls until true; `false` if it never is.
async fn until(is_so: impl Fn() -> bool) -> bool {
    let mut ticks = interval(Duration::from_millis(20));
    let polling = async {
        while !is_so() {
            ticks.tick().await;
        }
    };
    timeout(Duration::from_secs(30), polling).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn watching_ends_with_its_reader() {
    let db = Database::create().await;
    let mut watching = watch(db.url(), &["--interval", "20ms"]);
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert_starts(&first, "no advisory locks in database `");
    drop(lines);
    assert_eq!(watching.wait().unwrap().code(), Some(0));
}
