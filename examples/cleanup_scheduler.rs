//! Ten instances of a service have the same timer; one of them cleans up at each tick, also when
//! one is late.
//!
//! `cargo run --example cleanup_scheduler` starts a PostgreSQL of its own, or uses
//! `ADVISORY_TEST_DATABASE_URL`. Look at `clean_up`: one instance runs it, and for the others it
//! returns `None`.

#![allow(clippy::print_stdout, reason = "the ticks are run to be read")]
#![allow(missing_docs, reason = "nothing in a program is public")]

use std::error::Error;
use std::time::Duration;

use advisory_runtime::advisory_lease;
use advisory_runtime::lease::Table;
use advisory_tests::Database;
use diesel::dsl::now;
use diesel::prelude::*;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use tokio::task::JoinSet;
use tokio::time::timeout;

diesel::table! {
    idempotency_keys (id) {
        id -> BigInt,
        expires_at -> Timestamptz,
    }
}

const SCHEMA: &str =
    "CREATE TABLE idempotency_keys (id bigint PRIMARY KEY, expires_at timestamptz NOT NULL)";

/// How many keys one statement deletes. It is small, so that requests that use the table do not
/// wait long.
const BATCH: i64 = 100;

/// An instance of the service, and its pool.
#[derive(Clone)]
struct Instance {
    pool: Pool<AsyncPgConnection>,
}

impl Instance {
    /// Deletes the expired idempotency keys. Returns how many, or `None` if another instance does
    /// it or has done it.
    ///
    /// A session-level lock would be free again as soon as this returns, and an instance whose
    /// timer is late would clean up once more. The lease has the tick in its key, and keeps the key
    /// when the work is done. If the instance dies, the next tick cleans up, so `on_held` may
    /// return the same as `on_done`.
    #[advisory_lease(
        key = "idempotency-cleanup:<tick>",
        pool = self.pool,
        keep = "1h",
        wait = "never",
        on_held = Ok(None),
        on_done = Ok(None)
    )]
    async fn clean_up(&self, tick: u32) -> anyhow::Result<Option<usize>> {
        let conn = &mut self.pool.get().await?;
        let mut deleted = 0;
        loop {
            let expired: Vec<i64> = idempotency_keys::table
                .filter(idempotency_keys::expires_at.lt(now))
                .select(idempotency_keys::id)
                .limit(BATCH)
                .load(conn)
                .await?;
            if expired.is_empty() {
                return Ok(Some(deleted));
            }
            let batch = idempotency_keys::table.filter(idempotency_keys::id.eq_any(&expired));
            deleted += diesel::delete(batch).execute(conn).await?;
        }
    }
}

const INSTANCES: usize = 10;

const EXPIRE: &str = "INSERT INTO idempotency_keys SELECT key, now() - interval '1 day' FROM generate_series(1, 250) AS key";

/// A request locks one of the keys, so that the clean-up waits for it while the other instances
/// ask.
const REQUEST: &str = "BEGIN; SELECT FROM idempotency_keys WHERE id = 1 FOR UPDATE";

/// All timers fire, and that of the first instance once more. Returns what `clean_up` returned to
/// each call.
async fn fire(db: &Database, instances: &[Instance], tick: u32) -> Outcome<Vec<Option<usize>>> {
    db.run(EXPIRE).await;
    db.run(REQUEST).await;
    let mut calls = JoinSet::new();
    for instance in instances {
        let instance = instance.clone();
        calls.spawn(async move { instance.clean_up(tick).await });
    }
    let mut done = Vec::new();
    while done.len() + 1 < INSTANCES {
        // Without the lock they would all wait for the request.
        let Ok(Some(call)) = timeout(Duration::from_secs(30), calls.join_next()).await else {
            break;
        };
        done.push(call??);
    }
    db.run("COMMIT").await;
    while let Some(call) = calls.join_next().await {
        done.push(call??);
    }
    done.push(instances[0].clean_up(tick).await?);
    Ok(done)
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let db = Database::try_create().await?;
    db.run(SCHEMA).await;
    Table::new().set_up(&mut db.connect().await).await?;
    let instances: Vec<Instance> = (0..INSTANCES)
        .map(|_| Instance {
            pool: db.deadpool(1),
        })
        .collect();
    for tick in 1..=3 {
        let done = fire(&db, &instances, tick).await?;
        let ran: Vec<usize> = done.iter().copied().flatten().collect();
        let (skipped, deleted) = (done.len() - ran.len(), ran.iter().sum::<usize>());
        println!(
            "tick {tick}: {} cleaned up and deleted {deleted} keys, {skipped} skipped it",
            ran.len()
        );
    }
    Ok(())
}

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;
