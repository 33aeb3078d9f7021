//! Our own worker, and the queue by hand, in this process, which another one of this program has
//! started.

use super::measured::{Latencies, Work, pause};
use super::{QUEUES, Queue, by_hand};
use crate::pooled::Pool;
use advisory_runtime::claim::{self, Claim, Claimed, Schema, Worker};
use diesel::{Queryable, Selectable};
use diesel_async::pooled_connection::deadpool::BuildError;
use diesel_async::pooled_connection::{
    AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod,
};
use std::error::Error;
use std::future::pending;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Notify;
use tokio_postgres::Client;

/// The columns that a queue has, as the migration adds them, on a table with a column of its own.
macro_rules! queue {
    ($module:ident, $table:ident, $row:ident, $($completed:tt)*) => {
        mod $module {
            diesel::table! {
                $table (id) {
                    id -> BigInt,
                    payload -> Nullable<Jsonb>,
                    run_at -> Timestamptz,
                    attempts -> Integer,
                    locked_until -> Nullable<Timestamptz>,
                    locked_by -> Nullable<Text>,
                    completed_at -> Nullable<Timestamptz>,
                    failed_at -> Nullable<Timestamptz>,
                    error_message -> Nullable<Text>,
                }
            }
        }
        use $module::$table;

        #[derive(Queryable, Selectable, Claim)]
        #[diesel(table_name = $table)]
        #[claim(ttl = "5m", run_at, attempts, max_attempts = 25 $($completed)*)]
        struct $row {
            #[allow(dead_code, reason = "the key, which the derive reads")]
            id: i64,
        }
    };
}

queue!(kept, queue_jobs, Kept,);
queue!(deleted, queue_deleted, Deleted, , completed_at = "delete");

type Outcome = Result<(), Box<dyn Error>>;

/// Does what the first word says with the queue of this name.
pub(crate) async fn run_here(name: &str, words: &[String]) -> Outcome {
    let queue = QUEUES.into_iter().find(|queue| queue.to_string() == name);
    let queue = queue.ok_or_else(|| format!("there is no queue `{name}`"))?;
    match queue {
        Queue::Deleting(_) => of_table::<Deleted>(queue, "queue_deleted", words).await,
        _ => of_table::<Kept>(queue, "queue_jobs", words).await,
    }
}

async fn of_table<T: Claim>(queue: Queue, table: &str, words: &[String]) -> Outcome {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["fill", url, jobs] => {
            let client = connect(url).await?;
            set_up::<T>(&client, table).await?;
            fill(&client, table, jobs.parse()?).await
        }
        ["work", url, concurrency, _] => match queue {
            Queue::ByHand => by_hand::work(url, concurrency.parse()?).await,
            _ => work::<T>(url, queue, concurrency.parse()?).await,
        },
        ["wait", url, concurrency, jobs] => {
            let client = connect(url).await?;
            set_up::<T>(&client, table).await?;
            let (concurrency, jobs) = (concurrency.parse()?, jobs.parse()?);
            wait::<T>(url, queue, concurrency, jobs, async || {
                fill(&client, table, 1).await
            })
            .await
        }
        _ => Err("QUEUE fill|work|wait URL …".into()),
    }
}

async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    drop(tokio::spawn(connection));
    Ok(client)
}

async fn set_up<T: Claim>(client: &Client, table: &str) -> Outcome {
    let create = format!(
        "SET client_min_messages = warning; \
         CREATE TABLE IF NOT EXISTS {table} (id bigserial PRIMARY KEY, payload jsonb); TRUNCATE {table}"
    );
    client.batch_execute(&create).await?;
    let exists = format!(
        "SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attname = 'run_at')"
    );
    if !client.query_one(&exists, &[]).await?.get::<_, bool>(0) {
        let up = Schema::of(table).up();
        client.batch_execute(&up).await?;
        if table == "queue_deleted" {
            // Its rows have no `completed_at` that is set.
            let drop = "DO $$ BEGIN EXECUTE (SELECT string_agg(format('DROP INDEX %s', indexrelid::regclass), '; ') \
                 FROM pg_index WHERE indrelid = 'queue_deleted'::regclass AND NOT indisprimary); END $$";
            client.batch_execute(drop).await?;
            client
                .batch_execute(&claim::indexes::<T>().concat())
                .await?;
        }
    }
    Ok(())
}

async fn fill(client: &Client, table: &str, jobs: i32) -> Outcome {
    if jobs == 1 {
        let insert = format!("INSERT INTO {table} (payload) VALUES ('{{}}')");
        client.batch_execute(&insert).await?;
    } else {
        let insert =
            format!("INSERT INTO {table} (payload) SELECT '{{}}' FROM generate_series(1, $1::int)");
        client.execute(&insert, &[&jobs]).await?;
    }
    Ok(())
}

/// No pool of this benchmark sends a query to check a connection: each of these workers finds a
/// lost one by itself.
fn pool(url: &str) -> Result<Pool, BuildError> {
    let mut config = ManagerConfig::default();
    config.recycling_method = RecyclingMethod::Fast;
    let manager = AsyncDieselConnectionManager::new_with_config(url, config);
    Pool::builder(manager).max_size(4).build()
}

fn worker<T: Claim>(pool: &Pool, queue: Queue, concurrency: usize) -> Worker<'_, T, Pool> {
    let worker = Worker::new(pool, "bench").concurrency(concurrency);
    match queue {
        Queue::Prefetch(rows) | Queue::Deleting(rows) => worker.prefetch(rows),
        _ => worker,
    }
}

async fn work<T: Claim>(url: &str, queue: Queue, concurrency: usize) -> Outcome {
    let pool = pool(url)?;
    // Both sides have open connections as they begin.
    let opened = [pool.get().await?, pool.get().await?, pool.get().await?];
    drop(opened);
    let work = Work::begin();
    let worked = tokio::spawn(async move {
        let worker = worker::<T>(&pool, queue, concurrency).until_empty();
        let running = worker.run(async |_: Claimed<T>| Ok::<_, claim::Error>(()));
        running.await
    });
    worked.await??;
    work.end();
    Ok(())
}

async fn wait<T: Claim>(
    url: &str,
    queue: Queue,
    concurrency: usize,
    jobs: u32,
    insert: impl AsyncFn() -> Outcome,
) -> Outcome {
    let pool = pool(url)?;
    let (latencies, has_begun) = (Latencies::default(), Arc::new(Notify::new()));
    let worked = tokio::spawn({
        let (latencies, has_begun) = (latencies.clone(), Arc::clone(&has_begun));
        async move {
            let body = async |_: Claimed<T>| {
                latencies.begin();
                has_begun.notify_one();
                Ok::<_, claim::Error>(())
            };
            let worker = worker::<T>(&pool, queue, concurrency).until(pending());
            worker.run(body).await
        }
    });
    for job in 0..jobs {
        #[expect(clippy::disallowed_methods, reason = "the worker is idle")]
        tokio::time::sleep(pause(job)).await;
        insert().await?;
        latencies.inserted(Instant::now());
        has_begun.notified().await;
    }
    worked.abort();
    latencies.end();
    Ok(())
}
