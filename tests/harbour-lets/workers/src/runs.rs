//! A row for each run of a job.

use advisory_runtime::Connection;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use lets_store::Result;
use lets_store::schema::runs;

pub async fn record<C: Connection>(conn: &mut C, job: &str) -> Result<()> {
    diesel::insert_into(runs::table)
        .values(runs::job.eq(job))
        .execute(conn)
        .await?;
    Ok(())
}
