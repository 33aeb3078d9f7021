//! Migrations that every process runs as soon as it finds them pending.

use crate::clock::pass;
use crate::critical_section::connection;
use crate::migration::{name, sql};
use advisory_runtime::Error;
use diesel::QueryResult;
use diesel::sql_types::BigInt;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::time::{Duration, Instant};

const TABLES: &str = "CREATE TABLE IF NOT EXISTS applied (version text PRIMARY KEY); \
     CREATE TABLE IF NOT EXISTS pending (version text)";
/// How long a process that has found a pending migration waits until another one has found it too.
const PATIENCE: Duration = Duration::from_secs(1);

pub(crate) async fn migrate(
    pool: &Pool<AsyncPgConnection>,
    op: i64,
    versions: &[i64],
) -> Result<(), Error> {
    let mut conn = connection(pool).await?;
    // If two create it at once, one of them fails.
    drop(conn.batch_execute(TABLES).await);
    for version in versions {
        let name = name(*version);
        if count(&mut conn, "applied", &name).await? == 0 {
            meet(&mut conn, &name).await?;
            conn.batch_execute(&sql(*version, op)).await?;
            let insert = format!("INSERT INTO applied VALUES ('{name}')");
            conn.batch_execute(&insert).await?;
        }
    }
    Ok(())
}

/// Both have found it pending at the end, or only one.
async fn meet(conn: &mut AsyncPgConnection, version: &str) -> QueryResult<()> {
    let insert = format!("INSERT INTO pending VALUES ('{version}')");
    conn.batch_execute(&insert).await?;
    let since = Instant::now();
    while count(conn, "pending", version).await? < 2 && since.elapsed() < PATIENCE {
        pass(Duration::from_millis(2)).await;
    }
    Ok(())
}

async fn count(conn: &mut AsyncPgConnection, table: &str, version: &str) -> QueryResult<i64> {
    let rows = format!("SELECT count(*) FROM {table} WHERE version = '{version}'");
    diesel::dsl::sql::<BigInt>(&rows).get_result(conn).await
}
