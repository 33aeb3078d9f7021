//! The statements of `graphile_worker` 0.17 and 0.18 (<https://github.com/graphile/worker>, MIT, ©
//! 2019 Benjie Gillam), which gets a job with one and deletes it with another one; prepared, on
//! tokio-postgres. Its table of jobs has the columns and indexes that they use.

use crate::rivals::SMALL;
use crate::rivals::tokio_postgres::client;
use crate::side::{Open, Operation};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Statement};

/// The schema, with `pending` jobs of one task; each is in one of 100 queues, or in none.
pub(crate) fn up(pending: u32, has_queues: bool) -> String {
    let queue = if has_queues { "i % 100 + 1" } else { "NULL" };
    let queues = if has_queues { 100 } else { 0 };
    format!(
        "DROP SCHEMA IF EXISTS graphile_worker CASCADE; CREATE SCHEMA graphile_worker; \
         CREATE TABLE graphile_worker._private_job_queues (id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY, \
         queue_name text NOT NULL UNIQUE, locked_at timestamptz, locked_by text, \
         is_available boolean NOT NULL GENERATED ALWAYS AS (locked_at IS NULL) STORED); \
         CREATE TABLE graphile_worker._private_jobs (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, job_queue_id int, \
         task_id int NOT NULL, payload json NOT NULL DEFAULT '{{}}', priority smallint NOT NULL DEFAULT 0, \
         run_at timestamptz NOT NULL DEFAULT now(), attempts smallint NOT NULL DEFAULT 0, max_attempts smallint NOT NULL DEFAULT 25, \
         last_error text, created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now(), \
         key text UNIQUE, locked_at timestamptz, locked_by text, revision integer NOT NULL DEFAULT 0, flags jsonb, \
         is_available boolean NOT NULL GENERATED ALWAYS AS (locked_at IS NULL AND attempts < max_attempts) STORED); \
         CREATE INDEX jobs_main_index ON graphile_worker._private_jobs (priority, run_at) \
         INCLUDE (id, task_id, job_queue_id) WHERE is_available = true; \
         CREATE INDEX jobs_no_queue_index ON graphile_worker._private_jobs (priority, run_at) \
         INCLUDE (id, task_id) WHERE is_available = true AND job_queue_id IS NULL; \
         INSERT INTO graphile_worker._private_job_queues (queue_name) SELECT i FROM generate_series(1, {queues}) AS i; \
         INSERT INTO graphile_worker._private_jobs (job_queue_id, task_id, run_at) \
         SELECT {queue}, 1, now() - interval '1 day' + i * interval '1 ms' FROM generate_series(1, {pending}) AS i"
    )
}

/// After [`up`], outside of a transaction.
pub(crate) const VACUUM: &str =
    "VACUUM ANALYZE graphile_worker._private_jobs, graphile_worker._private_job_queues";

/// A job without a queue, or one of a queue that has no running job.
pub(crate) struct GraphileWorker<const PER: bool> {
    client: Client,
    get: Statement,
    complete: Statement,
}

const GET: &str = "with j as (
  select jobs.job_queue_id, jobs.priority, jobs.run_at, jobs.id
    from graphile_worker._private_jobs as jobs
    where jobs.is_available = true
    and run_at <= now()
    and task_id = any($2::int[])
    and (
      jobs.job_queue_id is null
      or
      jobs.job_queue_id in (
        select id
        from graphile_worker._private_job_queues as job_queues
        where job_queues.is_available = true
        for update
        skip locked
      )
    )
    order by priority asc, run_at asc
    limit 1
    for update
    skip locked
),
q as (
  update graphile_worker._private_job_queues as job_queues
    set
      locked_by = $1::text,
      locked_at = now()
    from j
    where job_queues.id = j.job_queue_id
)
  update graphile_worker._private_jobs as jobs
    set
      attempts = jobs.attempts + 1,
      locked_by = $1::text,
      locked_at = now()
    from j
    where jobs.id = j.id
    returning *";
const COMPLETE: &str = "delete from graphile_worker._private_jobs as jobs
where id = $1::bigint";
const COMPLETE_QUEUED: &str = "with j as (
delete from graphile_worker._private_jobs as jobs
using unnest($1::bigint[]) n(n)
where id = n
returning *
)
update graphile_worker._private_job_queues as job_queues
set locked_by = null, locked_at = null
from j
where job_queues.id = j.job_queue_id and job_queues.locked_by = $2::text";

impl<const PER: bool> GraphileWorker<PER> {
    pub(crate) async fn new(client: Client) -> Result<Self, Error> {
        let complete = if PER { COMPLETE_QUEUED } else { COMPLETE };
        let get = client.prepare(GET).await?;
        let complete = client.prepare(complete).await?;
        Ok(Self {
            client,
            get,
            complete,
        })
    }

    async fn once(&self) -> Result<u64, Error> {
        let job = loop {
            // None while another worker has locked the queues.
            let values: [&(dyn ToSql + Sync); 2] = [&"bench", &vec![1]];
            if let Some(job) = self.client.query_opt(&self.get, &values).await? {
                break job;
            }
        };
        let id: i64 = job.get("id");
        if PER {
            let values: [&(dyn ToSql + Sync); 2] = [&vec![id], &"bench"];
            self.client.execute(&self.complete, &values).await
        } else {
            self.client.execute(&self.complete, &[&id]).await
        }
    }
}

impl<const PER: bool> Operation for GraphileWorker<PER> {
    async fn operate(&mut self) {
        assert_eq!(self.once().await.expect("a job"), 1, "it is there");
    }
}

impl<const PER: bool> Open for GraphileWorker<PER> {
    async fn open(url: &str, _: i64) -> Self {
        let client = client(url).await.expect("a connection");
        let up = up(SMALL, PER);
        client.batch_execute(&up).await.expect("the tables");
        client.batch_execute(VACUUM).await.expect("the tables");
        Self::new(client).await.expect("the tables")
    }
}
