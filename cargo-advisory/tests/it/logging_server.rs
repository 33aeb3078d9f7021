//! A server that logs waits, and `cargo advisory log`.

use crate::live_view::does;
use crate::programs::{Said, advisory, file, run_at};
use advisory_tests::{OwnServer, pid_of};
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// A server that logs in every format that it supports.
pub(crate) struct Logging {
    pub(crate) server: OwnServer,
}

impl Logging {
    pub(crate) async fn start() -> Self {
        let server = OwnServer::start().await;
        let mut admin = AsyncPgConnection::establish(server.url()).await.unwrap();
        for setting in [
            "logging_collector = on",
            "log_filename = 'server.log'",
            "log_destination = 'stderr,csvlog'",
            "log_lock_waits = on",
            "deadlock_timeout = '50ms'",
        ] {
            does(&mut admin, &format!("ALTER SYSTEM SET {setting}")).await;
        }
        // PostgreSQL 14 has no such format.
        drop(
            admin
                .batch_execute("ALTER SYSTEM SET log_destination = 'stderr,csvlog,jsonlog'")
                .await,
        );
        drop(admin);
        server.stop("fast").await;
        server.start_again().await;
        Self { server }
    }

    /// The logs of this server, with the names of their formats.
    pub(crate) fn files(&self) -> Vec<(&'static str, PathBuf)> {
        let names = [("stderr", "log"), ("csvlog", "csv"), ("jsonlog", "json")];
        let path = |end: &str| self.server.file(&format!("data/log/server.{end}"));
        let files = names.map(|(format, end)| (format, path(end)));
        files
            .into_iter()
            .filter(|(_, path)| path.exists())
            .collect()
    }

    pub(crate) fn stderr(&self) -> PathBuf {
        self.server.file("data/log/server.log")
    }

    pub(crate) async fn connect(&self, application: &str) -> AsyncPgConnection {
        let mut conn = AsyncPgConnection::establish(self.server.url())
            .await
            .unwrap();
        does(
            &mut conn,
            &format!("SET application_name = '{application}'"),
        )
        .await;
        conn
    }

    /// Waits until each log contains a text this many times.
    pub(crate) async fn until_logged(&self, text: &str, count: usize) {
        let end = Instant::now() + Duration::from_secs(30);
        let mut poll = interval(Duration::from_millis(10));
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for (_, path) in self.files() {
            loop {
                let log = std::fs::read(&path).unwrap();
                let found = String::from_utf8_lossy(&log).matches(text).count();
                if found >= count {
                    break;
                }
                assert!(
                    Instant::now() < end,
                    "{text} {found} times: {}",
                    path.display()
                );
                poll.tick().await;
            }
        }
    }

    /// Begins a wait, and returns when the log contains it.
    pub(crate) async fn wait(
        &self,
        application: &str,
        settings: &str,
        sql: &str,
        logged: &str,
    ) -> (i32, JoinHandle<AsyncPgConnection>) {
        let mut conn = self.connect(application).await;
        does(&mut conn, settings).await;
        let pid = pid_of(&mut conn).await;
        let sql = sql.to_owned();
        let waiting = tokio::spawn(async move {
            drop(conn.batch_execute(&sql).await);
            conn
        });
        self.until_logged(&logged.replace("{pid}", &pid.to_string()), 1)
            .await;
        (pid, waiting)
    }
}

pub(crate) const STILL_WAITING: &str = "process {pid} still waiting for";

pub(crate) fn spawn(words: &[&str], stdin: Stdio) -> Child {
    Command::new(env!("CARGO_BIN_EXE_cargo-advisory"))
        .args(words)
        .env_remove("CARGO_TERM_COLOR")
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

pub(crate) async fn log(words: &[&str]) -> Said {
    run_at("", &[&["log"], words].concat()).await
}

/// The report on a log as JSON. The name is that of its file.
pub(crate) fn log_json(name: &str, text: &str) -> Value {
    let said = advisory(&["log", &file(name, text), "--format", "json"]).exits(0);
    serde_json::from_str(&said.out).unwrap()
}
