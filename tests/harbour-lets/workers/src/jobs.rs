//! Calendars are synchronized by workers that claim a job at a time.

use advisory_runtime::claim::{self, Claim, Claimed, OnErr};
use async_trait::async_trait;
use diesel::prelude::*;
use diesel_async::AsyncPgConnection;
use lets_domain::{Channel, PropertyId};
use lets_store::schema::sync_jobs;
use lets_store::{Pool, Result};
use uuid::Uuid;

#[derive(Debug, Queryable, Selectable, Claim)]
#[diesel(table_name = sync_jobs)]
#[claim(order = "priority desc, created_at", ttl = "5m", renew = "1m")]
pub struct SyncJob {
    pub id: i64,
    pub channel: String,
    pub property_id: Uuid,
    pub priority: i32,
}

pub async fn enqueue(
    conn: &mut AsyncPgConnection,
    channel: Channel,
    property: PropertyId,
    priority: i32,
) -> Result<i64> {
    let id = diesel_async::RunQueryDsl::get_result(
        diesel::insert_into(sync_jobs::table)
            .values((
                sync_jobs::channel.eq(channel.as_str()),
                sync_jobs::property_id.eq(property.0),
                sync_jobs::priority.eq(priority),
            ))
            .returning(sync_jobs::id),
        conn,
    )
    .await?;
    Ok(id)
}

/// Another firm's side of a calendar.
#[async_trait]
pub trait Calendar: Send + Sync {
    async fn sync(&self, job: &SyncJob) -> Result<()>;
}

/// Works until there is no job; how many there were. A job that fails says why in its row, and the worker goes on.
pub async fn work(pool: &Pool, worker: &str, calendar: &dyn Calendar) -> Result<(usize, usize)> {
    let (mut done, mut failed) = (0, 0);
    loop {
        let mut conn = pool.get().await?;
        let job: Option<Claimed<SyncJob>> = claim::next(&mut conn, worker).await?;
        // Work takes minutes: no connection is kept for it.
        drop(conn);
        let Some(job) = job else {
            return Ok((done, failed));
        };
        match claim::run(pool, &job, OnErr::Fail, calendar.sync(&job)).await {
            Ok(()) => done += 1,
            Err(_) => failed += 1,
        }
    }
}

/// How many jobs are in which state, for the dashboard.
pub async fn counts(conn: &mut AsyncPgConnection) -> Result<claim::Counts> {
    Ok(claim::counts::<SyncJob, _>(conn).await?)
}
