//! The scheduler of each instance; at each tick one of them works.

use crate::runs;
use advisory_runtime::advisory_lock;
use chrono::NaiveDate;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use lets_store::schema::{quotes, runs as table};
use lets_store::{Pool, Result};
use std::future::Future;

/// One tick. An instance that comes while it runs has nothing to do.
#[advisory_lock(
    key = "scheduler",
    scope = "session",
    wait = "never",
    on_held = Ok(false),
    max_hold = "10m",
    component = "scheduler",
    conn = pool.get().await?
)]
pub async fn tick<F>(pool: &Pool, work: F) -> Result<bool>
where
    F: Future<Output = ()>,
{
    work.await;
    runs::record(&mut *conn, "tick").await?;
    Ok(true)
}

/// The night's work is done once a night, by whichever instance is first; the others find its row.
#[advisory_lock(
    key = "nightly:<night>",
    component = "scheduler",
    conn = pool.get().await?,
    queue = 4,
    wait = "1m"
)]
pub async fn nightly(pool: &Pool, night: NaiveDate) -> Result<bool> {
    let job = format!("nightly {night}");
    let done = table::table.filter(table::job.eq(&job)).count();
    if done.get_result::<i64>(conn).await? > 0 {
        return Ok(false);
    }
    let stale = quotes::table
        .filter(quotes::taken_by.is_null())
        .filter(quotes::arrives.lt(night));
    diesel::delete(stale).execute(conn).await?;
    runs::record(conn, &job).await?;
    Ok(true)
}
