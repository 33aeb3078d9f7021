//! `graphile_worker` as fast as its documentation makes it: a local queue of 3,000 jobs, and
//! completions in batches of a millisecond.

use crate::{Bodies, Outcome, Queue};
use graphile_worker::{
    IntoTaskHandlerResult, LocalQueueConfig, TaskHandler, WorkerContext, WorkerOptions,
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use std::time::Duration;

pub(crate) struct Graphile;

const AHEAD: usize = 3_000;

#[derive(Deserialize, Serialize)]
struct Nothing {}

impl TaskHandler for Nothing {
    const IDENTIFIER: &'static str = "nothing";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        if let Some(bodies) = context.get_ext::<Bodies>() {
            bodies.begin();
        }
        Ok::<(), String>(())
    }
}

fn options(pool: PgPool, concurrency: usize) -> WorkerOptions {
    WorkerOptions::default()
        .pg_pool(pool)
        .concurrency(concurrency)
        .listen_os_shutdown_signals(false)
        .complete_job_batch_delay(Duration::from_millis(1))
        .local_queue(LocalQueueConfig::default().with_size(AHEAD))
        .define_job::<Nothing>()
}

impl Queue for Graphile {
    async fn set_up(pool: &PgPool) -> Outcome<()> {
        // Which makes the tables.
        options(pool.clone(), 1).init().await?;
        let empty = "TRUNCATE graphile_worker._private_jobs, graphile_worker._private_job_queues CASCADE";
        sqlx::query(empty).execute(pool).await?;
        Ok(())
    }

    async fn fill(pool: &PgPool, jobs: i32) -> Outcome<()> {
        if jobs == 1 {
            let add = "SELECT graphile_worker.add_job('nothing', '{}'::json)";
            sqlx::query(add).execute(pool).await?;
            return Ok(());
        }
        let fill = "INSERT INTO graphile_worker._private_jobs (task_id, payload) SELECT tasks.id, '{}' \
             FROM graphile_worker._private_tasks AS tasks, generate_series(1, $1) WHERE identifier = 'nothing'";
        sqlx::query(fill).bind(jobs).execute(pool).await?;
        Ok(())
    }

    async fn start(pool: PgPool, concurrency: usize, bodies: Bodies) -> Outcome<()> {
        let worker = options(pool, concurrency)
            .add_extension(bodies)
            .init()
            .await?;
        drop(tokio::spawn(async move { worker.run().await }));
        Ok(())
    }

    const IS_LEFT: &'static str = "SELECT EXISTS (SELECT FROM graphile_worker._private_jobs)";
}
