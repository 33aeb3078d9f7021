//! Runs another Rust queue, for the benchmark of the queue:
//! `cargo run --release -p advisory-benches -- --only queue` starts this program, which is a
//! package of its own because nothing else should compile the rivals.
//!
//! `QUEUE fill URL JOBS` puts jobs into an empty queue, `QUEUE work URL CONCURRENCY JOBS` works
//! them off, and `QUEUE wait URL CONCURRENCY JOBS` inserts one at a time while the queue is idle.
#![allow(clippy::print_stdout, reason = "the other program reads it")]

mod apalis_storage;
mod graphile;
mod measured;

use measured::{Latencies, Work};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// How often the table is looked at after the last body has returned.
const LOOK: Duration = Duration::from_millis(1);

/// What the bodies of jobs tell the measurement.
#[derive(Clone, Debug, Default)]
struct Bodies {
    begun: Arc<AtomicU32>,
    has_begun: Arc<Notify>,
    latencies: Latencies,
}

impl Bodies {
    /// A body begins.
    fn begin(&self) {
        self.latencies.begin();
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.has_begun.notify_one();
    }

    async fn until(&self, jobs: u32) {
        while self.begun.load(Ordering::Relaxed) < jobs {
            self.has_begun.notified().await;
        }
    }
}

/// A queue: its statements, and its worker, which runs until this process ends.
trait Queue {
    /// Makes the tables, without rows.
    async fn set_up(pool: &PgPool) -> Outcome<()>;
    /// Puts jobs in.
    async fn fill(pool: &PgPool, jobs: i32) -> Outcome<()>;
    /// Starts the worker in tasks of its own.
    async fn start(pool: PgPool, concurrency: usize, bodies: Bodies) -> Outcome<()>;
    /// Asks whether a job is left.
    const IS_LEFT: &'static str;
}

async fn run<Q: Queue>(words: &[String]) -> Outcome<()> {
    let [what, url, numbers @ ..] = words else {
        return Err("QUEUE fill|work|wait URL …".into());
    };
    let pool = PgPoolOptions::new();
    // Opened before the time begins, and more than any of them uses at once.
    let pool = pool
        .min_connections(6)
        .max_connections(20)
        .test_before_acquire(false)
        .connect(url)
        .await?;
    let number = |nth: usize| numbers.get(nth).ok_or("a number is missing");
    match what.as_str() {
        "fill" => {
            Q::set_up(&pool).await?;
            Q::fill(&pool, number(0)?.parse()?).await
        }
        "work" => {
            let (concurrency, jobs) = (number(0)?.parse()?, number(1)?.parse()?);
            let bodies = Bodies::default();
            let work = Work::begin();
            Q::start(pool.clone(), concurrency, bodies.clone()).await?;
            bodies.until(jobs).await;
            while sqlx::query_scalar::<_, bool>(Q::IS_LEFT)
                .fetch_one(&pool)
                .await?
            {
                tokio::time::sleep(LOOK).await;
            }
            work.end();
            Ok(())
        }
        "wait" => {
            let (concurrency, jobs) = (number(0)?.parse()?, number(1)?.parse()?);
            Q::set_up(&pool).await?;
            let bodies = Bodies::default();
            Q::start(pool.clone(), concurrency, bodies.clone()).await?;
            for job in 0..jobs {
                tokio::time::sleep(measured::pause(job)).await;
                Q::fill(&pool, 1).await?;
                bodies.latencies.inserted(Instant::now());
                bodies.until(job + 1).await;
            }
            bodies.latencies.end();
            Ok(())
        }
        other => Err(format!("no `{other}`").into()),
    }
}

fn main() -> Outcome<()> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let ran = runtime.block_on(async {
        match words.split_first() {
            Some((queue, words)) if queue == "graphile_worker" => {
                run::<graphile::Graphile>(words).await
            }
            Some((queue, words)) if queue == "apalis" => run::<apalis_storage::Apalis>(words).await,
            _ => Err("QUEUE is graphile_worker or apalis".into()),
        }
    });
    ran?;
    // A worker that still runs must not be waited for.
    std::process::exit(0);
}
