//! `log --follow` reports what happens as a log grows.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use advisory_tests::{left_out, owns_server, pid_of};
use serde_json::Value;

use crate::live_view::does;
use crate::logging_server::{Logging, STILL_WAITING, spawn};
use crate::programs::assert_has;

/// While the log grows, after its file was truncated or renamed, and until Ctrl-C.
#[tokio::test(flavor = "multi_thread")]
async fn a_followed_log_is_reported_as_it_grows() {
    if !owns_server() {
        return left_out("a server's log", "the server is somebody's own");
    }
    let logs = Logging::start().await;
    let path = logs.stderr();
    let mut following = spawn(&["log", "--follow", path.to_str().unwrap()], Stdio::null());
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut holder = logs.connect("job").await;
    does(&mut holder, "SELECT pg_advisory_lock(42)").await;
    let call = "/*advisory:booking:<id>*/;SELECT pg_catalog.pg_advisory_lock(42)";
    let (pid, waiting) = logs.wait("web", "", call, STILL_WAITING).await;
    let mut next = || lines.next().unwrap().unwrap();
    let line = next();
    let holder_pid = pid_of(&mut holder).await;
    let text = format!(" for booking:<id> (42), held by {holder_pid}");
    assert!(
        line.contains(&format!("{pid} has waited ")) && line.ends_with(&text),
        "{line}"
    );
    drop(holder);
    drop(waiting.await.unwrap());
    let line = next();
    assert_has(&line, &format!("{pid} acquired booking:<id> (42) after "));
    let given_up = |pid: u32| {
        format!(
            "2026-11-22 07:06:19.026 UTC [{pid}] ERROR:  canceling statement due to lock timeout\n\
             2026-11-22 07:06:19.026 UTC [{pid}] STATEMENT:  SELECT pg_advisory_lock(9)\n"
        )
    };
    let append = |path: &Path, text: &str| {
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    let mut until_told = |pid: u32| {
        let line = next();
        let end = format!(" {pid} gave up waiting for 9: canceling statement due to lock timeout");
        assert!(line.ends_with(&end), "{line}");
    };
    // The file is truncated.
    std::fs::write(&path, "").unwrap();
    append(&path, &given_up(3));
    until_told(3);
    // The file is renamed, gets another line, and is replaced by a longer one.
    let (old, new) = (path.with_extension("old"), path.with_extension("new"));
    let filler = "2026-11-22 07:06:19.026 UTC [6] LOG:  checkpoint starting: time\n".repeat(100);
    std::fs::write(&new, filler + &given_up(5)).unwrap();
    std::fs::rename(&path, &old).unwrap();
    append(&old, &given_up(4));
    std::fs::rename(&new, &path).unwrap();
    until_told(4);
    until_told(5);
    let pid = following.id().to_string();
    Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert_eq!(following.wait().unwrap().code(), Some(0));
}

/// A pipe that stays open is reported before it ends, one object per line.
#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_is_followed_until_it_ends() {
    let mut following = spawn(&["log", "-f", "--format", "json"], Stdio::piped());
    let mut pipe = following.stdin.take().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let said = "2026-11-22 07:06:19.026 UTC [3] LOG:  process 3 acquired ExclusiveLock on advisory lock [5,0,42,1] after 1689.402 ms\n";
    for _ in 0..2 {
        pipe.write_all(said.as_bytes()).unwrap();
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(line["event"], "acquired");
        assert_eq!(line["locks"][0]["number"], 42);
        assert_eq!(line["waited_ms"], 1689);
    }
    drop(pipe);
    assert_eq!(following.wait().unwrap().code(), Some(0));
    assert!(lines.next().is_none());
}
