//! `apalis` with its PostgreSQL storage: a thousand jobs a fetch, woken up by notifications, no
//! statement that locks each, and a task for each body.

use crate::{Bodies, Outcome, Queue};
use apalis::prelude::*;
use apalis_postgres::{Config, PgPool, PostgresStorage};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

pub(crate) struct Apalis;

const QUEUE: &str = "nothing";
const AHEAD: usize = 1_000;

async fn nothing(_: u32, bodies: Data<Bodies>) -> Result<(), BoxDynError> {
    bodies.begin();
    Ok(())
}

impl Queue for Apalis {
    async fn set_up(pool: &PgPool) -> Outcome<()> {
        PostgresStorage::setup(pool).await?;
        sqlx::query("TRUNCATE apalis.jobs").execute(pool).await?;
        Ok(())
    }

    async fn fill(pool: &PgPool, jobs: i32) -> Outcome<()> {
        let fill = "INSERT INTO apalis.jobs (id, job_type, job, status, attempts, max_attempts, run_at, priority) \
             SELECT apalis.generate_ulid(), $2, '0'::bytea, 'Pending', 0, 25, now() - interval '1 s', 0 FROM generate_series(1, $1)";
        sqlx::query(fill)
            .bind(jobs)
            .bind(QUEUE)
            .execute(pool)
            .await?;
        Ok(())
    }

    async fn start(pool: PgPool, concurrency: usize, bodies: Bodies) -> Outcome<()> {
        let config = Config::default()
            .queue(QUEUE)
            .batch_size(AHEAD)
            .lock_tasks(false);
        let backend = PostgresStorage::<u32>::new(&pool)
            .with_config(config)
            .with_pubsub()
            .poll_with_interval(Duration::from_millis(100));
        let worker = WorkerBuilder::new("bench")
            .backend(backend)
            .concurrency(concurrency)
            .data(bodies)
            .parallelize(tokio::spawn)
            .build(nothing);
        // The compiler does not see that its future is `Send`.
        let runtime = Handle::current();
        drop(spawn_blocking(move || runtime.block_on(worker.run())));
        Ok(())
    }

    const IS_LEFT: &'static str = "SELECT EXISTS (SELECT FROM apalis.jobs WHERE status <> 'Done')";
}
