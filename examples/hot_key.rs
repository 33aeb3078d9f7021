//! How a hot key slows down calls on other keys, without a queue in the process and with one.
//!
//! `cargo run --example hot_key` starts a PostgreSQL of its own, or uses
//! `ADVISORY_TEST_DATABASE_URL`. A pool of 8 connections; 64 clients make 1,000 calls on one key,
//! each of which holds it for two milliseconds; meanwhile one client after the other works on its
//! own key. The program prints how long those calls take, the pool included. A number after `--`
//! replaces the 1,000 calls.

#![allow(clippy::print_stdout, reason = "the figures are run to be read")]
#![allow(missing_docs, reason = "nothing in a program is public")]

use std::env;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use advisory_runtime::advisory_lock;
use advisory_tests::Database;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use tokio::task::JoinSet;

const CONNECTIONS: usize = 8;
const CLIENTS: usize = 64;
const CALLS: usize = 1_000;
/// How many calls on other keys are measured without calls on the hot key.
const ALONE: usize = 300;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

struct Accounts(Pool<AsyncPgConnection>);

impl Accounts {
    #[advisory_lock(key = "account:<id>", name = "account", conn = self.0.get().await?)]
    async fn charge(&self, id: i64) -> anyhow::Result<()> {
        conn.batch_execute("SELECT pg_sleep(0.002)").await?;
        Ok(())
    }

    /// The same, and calls of this process wait for the key before they take a connection.
    #[advisory_lock(key = "account:<id>", name = "account", conn = self.0.get().await?, queue = 64)]
    async fn charge_in_line(&self, id: i64) -> anyhow::Result<()> {
        conn.batch_execute("SELECT pg_sleep(0.002)").await?;
        Ok(())
    }
}

/// How long calls on other keys take while `hot` calls are made on one.
async fn others(db: &Database, hot: usize, in_line: bool) -> Outcome<Vec<Duration>> {
    let accounts = Arc::new(Accounts(db.deadpool(CONNECTIONS)));
    let left = Arc::new(AtomicUsize::new(hot));
    let done = Arc::new(AtomicBool::new(hot == 0));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS.min(hot) {
        let (accounts, left) = (Arc::clone(&accounts), Arc::clone(&left));
        clients.spawn(async move {
            let take = |left: usize| left.checked_sub(1);
            while left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                .is_ok()
            {
                if in_line {
                    accounts.charge_in_line(0).await?;
                } else {
                    accounts.charge(0).await?;
                }
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    let finished = Arc::clone(&done);
    let hot_calls = tokio::spawn(async move {
        while let Some(client) = clients.join_next().await {
            client??;
        }
        finished.store(true, Ordering::Relaxed);
        Ok::<_, anyhow::Error>(())
    });
    let mut times = Vec::new();
    while !done.load(Ordering::Relaxed) || (hot == 0 && times.len() < ALONE) {
        let id = i64::try_from(times.len())? + 1;
        let started = Instant::now();
        if in_line {
            accounts.charge_in_line(id).await?;
        } else {
            accounts.charge(id).await?;
        }
        times.push(started.elapsed());
    }
    hot_calls.await??;
    times.sort_unstable();
    Ok(times)
}

fn at(times: &[Duration], part: f64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index below a few thousand"
    )]
    let index = ((times.len() as f64 - 1.0) * part) as usize;
    times
        .get(index)
        .map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let calls = match env::args().nth(1) {
        Some(calls) => calls.parse()?,
        None => CALLS,
    };
    let db = Database::try_create().await?;
    // The pool's connections are opened by the first run, which is not shown.
    others(&db, 0, false).await?;
    println!("{CLIENTS} clients, {calls} calls on one key, {CONNECTIONS} connections");
    println!("milliseconds of a call on another key\n");
    println!("{:<24}{:>8}{:>8}{:>8}", "", "calls", "median", "99 %");
    for (name, hot, in_line) in [
        ("nobody on the hot key", 0, false),
        ("without a queue", calls, false),
        ("queue = 64", calls, true),
    ] {
        let times = others(&db, hot, in_line).await?;
        println!(
            "{name:<24}{:>8}{:>8.1}{:>8.1}",
            times.len(),
            at(&times, 0.5),
            at(&times, 0.99)
        );
    }
    Ok(())
}
