//! A queue by hand that leaves out what a queue needs besides: renewals, retries, a limit of what
//! it has claimed, and a graceful stop.

use super::measured::Work;
use crate::rivals::tokio_postgres::client;
use std::error::Error;
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc};

type Job = (i64, String);

const AHEAD: usize = 1_000;
const CLAIM: &str = "WITH next AS MATERIALIZED (SELECT id FROM queue_jobs WHERE completed_at IS NULL AND failed_at IS NULL \
     AND (locked_until IS NULL OR locked_until <= now()) AND run_at <= now() ORDER BY run_at, id LIMIT 1000 FOR NO KEY UPDATE SKIP LOCKED) \
     UPDATE queue_jobs SET locked_until = now() + interval '5 min', locked_by = 'hand#' || gen_random_uuid(), attempts = attempts + 1 \
     FROM next WHERE queue_jobs.id = next.id RETURNING queue_jobs.id, locked_by";
const END: &str = "UPDATE queue_jobs SET locked_until = NULL, locked_by = NULL, completed_at = now() \
     FROM unnest($1::bigint[], $2::text[]) AS done (id, holder) WHERE queue_jobs.id = done.id AND locked_by = done.holder";
/// The plan for an array of a thousand costs more than the statement.
const GENERIC: &str = "SET plan_cache_mode = force_generic_plan";

pub(crate) async fn work(url: &str, concurrency: usize) -> Result<(), Box<dyn Error>> {
    let (claims, ends) = (client(url).await?, client(url).await?);
    ends.batch_execute(GENERIC).await?;
    let work = Work::begin();
    let (claimed, jobs) = mpsc::channel::<Job>(AHEAD);
    let jobs = Arc::new(Mutex::new(jobs));
    let (done, mut ended) = mpsc::unbounded_channel::<Job>();
    let slots: Vec<_> = (0..concurrency)
        .map(|_| {
            let (jobs, done) = (Arc::clone(&jobs), done.clone());
            tokio::spawn(async move {
                loop {
                    let job = jobs.lock().await.recv().await;
                    let Some(job) = job else { return };
                    if done.send(job).is_err() {
                        return;
                    }
                }
            })
        })
        .collect();
    drop(done);
    let fetch = async {
        let statement = claims.prepare(CLAIM).await?;
        loop {
            let rows = claims.query(&statement, &[]).await?;
            if rows.is_empty() {
                drop(claimed);
                return Ok::<_, tokio_postgres::Error>(());
            }
            for row in rows {
                if claimed.send((row.get(0), row.get(1))).await.is_err() {
                    return Ok(());
                }
            }
        }
    };
    let end = async {
        let statement = ends.prepare(END).await?;
        let mut batch = Vec::new();
        while ended.recv_many(&mut batch, AHEAD).await > 0 {
            let (ids, holders): (Vec<_>, Vec<_>) = batch.drain(..).unzip();
            ends.execute(&statement, &[&ids, &holders]).await?;
        }
        Ok::<_, tokio_postgres::Error>(())
    };
    let (fetched, ended) = tokio::join!(fetch, end);
    fetched?;
    ended?;
    for slot in slots {
        slot.await?;
    }
    work.end();
    Ok(())
}
