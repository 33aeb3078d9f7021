//! A report that is written under a lease: a process that has lost the lease cannot write it.

use advisory_runtime::lease::{Error, Lease};
use advisory_runtime::{Pool as _, advisory_lease};
use diesel::prelude::*;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use tokio::sync::mpsc::UnboundedSender;

diesel::table! {
    sales (id) {
        id -> BigInt,
        month -> Text,
        amount -> BigInt,
    }
}

diesel::table! {
    reports (month) {
        month -> Text,
        total -> BigInt,
        author -> Text,
        token -> BigInt,
    }
}

/// Writes each month's report, in one process at a time.
#[derive(Clone)]
pub(crate) struct Reports {
    pub(crate) pool: Pool<AsyncPgConnection>,
    pub(crate) author: &'static str,
    /// Where the result of a write is sent, because its caller may have been dropped.
    pub(crate) log: UnboundedSender<String>,
}

impl Reports {
    /// Writes a report under the lease's fencing token: if another process was granted the lease
    /// since, nothing is written.
    #[advisory_lease(
        key = "report:<month>",
        name = "report",
        pool = self.pool,
        ttl = "5s",
        wait = "30s",
        handle = lease
    )]
    pub(crate) async fn publish(&self, month: &str) -> anyhow::Result<()> {
        self.written(lease, month, true).await
    }

    /// Writes a report without a check of the lease.
    #[advisory_lease(
        key = "report:<month>",
        name = "report",
        pool = self.pool,
        ttl = "5s",
        wait = "30s",
        handle = lease
    )]
    pub(crate) async fn publish_without_fence(&self, month: &str) -> anyhow::Result<()> {
        self.written(lease, month, false).await
    }

    /// Runs on its own task, as in many programs: it continues when its caller is dropped, as a
    /// body is that has lost its lease.
    async fn written(&self, lease: Lease, month: &str, is_fenced: bool) -> anyhow::Result<()> {
        let (reports, month) = (self.clone(), month.to_owned());
        let writing = tokio::spawn(async move {
            let written = reports.write(&lease, &month, is_fenced).await;
            let outcome = match &written {
                Ok(()) => "written".to_owned(),
                Err(error) => format!("refused: {error}"),
            };
            drop(reports.log.send(format!("{month} {outcome}")));
            written
        });
        Ok(writing.await??)
    }

    async fn write(&self, lease: &Lease, month: &str, is_fenced: bool) -> Result<(), Error> {
        let mut conn = self.pool.connection().await?;
        let total = total(&mut conn, month).await?;
        conn.transaction(async |conn| {
            if is_fenced {
                lease.fence(conn).await?;
            }
            let report = (
                reports::total.eq(total),
                reports::author.eq(self.author),
                reports::token.eq(lease.token().get()),
            );
            diesel::insert_into(reports::table)
                .values((reports::month.eq(month), report))
                .on_conflict(reports::month)
                .do_update()
                .set(report)
                .execute(conn)
                .await?;
            Ok(())
        })
        .await
    }
}

/// Reads all sales of the month, which can take long.
async fn total(conn: &mut AsyncPgConnection, month: &str) -> QueryResult<i64> {
    let amounts: Vec<i64> = sales::table
        .filter(sales::month.eq(month))
        .select(sales::amount)
        .load(conn)
        .await?;
    Ok(amounts.iter().sum())
}
