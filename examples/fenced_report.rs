//! A stopped process loses its lease without noticing, wakes up, and writes. The fence refuses the
//! write.
//!
//! `cargo run --example fenced_report` starts a PostgreSQL of its own, or uses
//! `ADVISORY_TEST_DATABASE_URL`; the stopped process is this program too. Look at `publish` and
//! `write` in `reports`; this file stops and resumes the process.

#![allow(clippy::print_stdout, reason = "the outcome is run to be read")]
#![allow(missing_docs, reason = "nothing in a program is public")]

use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use advisory_runtime::Pool as _;
use advisory_runtime::lease::{Error, Table};
use advisory_tests::Database;
use diesel::prelude::*;
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use tokio::sync::mpsc::unbounded_channel;

#[path = "process.rs"]
mod process;
#[path = "fenced_report/reports.rs"]
mod reports;

use process::Process;
use reports::Reports;

/// The variable that tells a process that it is the first one, and the address of the database.
const URL: &str = "REPORT_DATABASE_URL";

const SCHEMA: &str = "
    CREATE TABLE sales (id bigserial PRIMARY KEY, month text NOT NULL, amount bigint NOT NULL);
    CREATE TABLE reports (month text PRIMARY KEY, total bigint NOT NULL, author text NOT NULL, token bigint NOT NULL);
    INSERT INTO sales (month, amount) VALUES ('2026-10', 1000), ('2026-11', 2000)";

/// Without a fence, and with one.
const MONTHS: [&str; 2] = ["2026-10", "2026-11"];

/// Whether fewer than two statements wait for the sales: before that, the process may not hold both
/// leases.
const NOT_READING: &str = "SELECT 'not yet' FROM pg_locks
    WHERE relation = 'sales'::regclass AND NOT granted HAVING count(*) < 2";

#[tokio::main]
async fn main() -> Outcome<()> {
    if let Ok(url) = env::var(URL) {
        let pool = Pool::builder(AsyncDieselConnectionManager::new(url)).build()?;
        return publish(pool, "first").await;
    }
    let db = Database::try_create().await?;
    db.run(SCHEMA).await;
    let pool = db.deadpool(4);
    Table::new().set_up(&mut pool.connection().await?).await?;

    // The sales do not answer yet, so that the first process is reading them when it is stopped.
    let mut sales = db.connect().await;
    sales.batch_execute("BEGIN; LOCK TABLE sales").await?;
    let mut command = Command::new(env::current_exe()?);
    let mut first = Process(command.env(URL, db.url()).spawn()?);
    db.until_empty(Duration::from_secs(30), "both reads", NOT_READING)
        .await;
    stop(&first)?;
    println!("first   holds both leases, and is stopped");
    sales.batch_execute("COMMIT").await?;

    publish(pool.clone(), "second").await?;
    println!("first   wakes up");
    first.signal("-CONT")?;
    if !first.0.wait()?.success() {
        return Err("the first process has failed".into());
    }

    println!("\nmonth    fence  author  token");
    let written = reports::reports::table.order(reports::reports::month);
    let written: Vec<(String, i64, String, i64)> = written.load(&mut pool.get().await?).await?;
    for ((month, _, author, token), fence) in written.into_iter().zip(["no", "yes"]) {
        println!("{month}  {fence:<5}  {author:<6}  {token}");
    }
    Ok(())
}

/// Publishes both reports, and waits for all writes.
async fn publish(pool: Pool<AsyncPgConnection>, author: &'static str) -> Outcome<()> {
    let (log, mut written) = unbounded_channel();
    let reports = Reports { pool, author, log };
    let [october, november] = MONTHS;
    let (without_fence, fenced) = tokio::join!(
        reports.publish_without_fence(october),
        reports.publish(november)
    );
    drop(reports);
    let mut lines = Vec::new();
    while let Some(line) = written.recv().await {
        lines.push(line);
    }
    lines.sort_unstable();
    for line in lines {
        println!("{author:<8}{line}");
    }
    let mut lost = 0;
    for call in [without_fence, fenced] {
        match call {
            Ok(()) => {}
            Err(error) if is_lost(&error) => lost += 1,
            Err(error) => return Err(error.into()),
        }
    }
    println!("{author:<8}was told that {lost} of its leases were lost");
    Ok(())
}

fn is_lost(error: &anyhow::Error) -> bool {
    matches!(Error::find(&**error).as_deref(), Some(Error::Lost { .. }))
}

/// Returns when it has stopped: on a busy machine one of its threads goes on for a moment.
fn stop(process: &Process) -> Outcome<()> {
    process.signal("-STOP")?;
    loop {
        match state_of(process.0.id())? {
            Some('T') => return Ok(()),
            None | Some('Z') => return Err("the first process has ended".into()),
            Some(_) => std::thread::yield_now(),
        }
    }
}

/// The state of a process, as `ps` shows it: a small system may have no `ps`, and another than
/// Linux has no `/proc`.
fn state_of(process: u32) -> Outcome<Option<char>> {
    if let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) {
        let (_, state) = stat.rsplit_once(") ").unwrap_or_default();
        return Ok(state.chars().next());
    }
    let mut ps = Command::new("ps");
    let said = ps
        .args(["-o", "stat=", "-p", &process.to_string()])
        .output()?;
    Ok(String::from_utf8_lossy(&said.stdout).trim().chars().next())
}

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
