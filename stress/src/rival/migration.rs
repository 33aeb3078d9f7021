//! Migrations that every process runs as soon as it finds them pending.

use crate::migration::{name, sql};
use crate::visit::lent;
use advisory_runtime::Error;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

const TABLE: &str = "CREATE TABLE IF NOT EXISTS applied (version text PRIMARY KEY)";

pub(crate) async fn migrate(
    pool: &Pool<AsyncPgConnection>,
    op: i64,
    versions: &[i64],
) -> Result<(), Error> {
    let mut conn = lent(pool).await?;
    // Where two create it at once, one of them fails.
    drop(conn.batch_execute(TABLE).await);
    for version in versions {
        let name = name(*version);
        let applied = format!("SELECT count(*) AS count FROM applied WHERE version = '{name}'");
        let applied: Count = diesel::sql_query(applied).get_result(&mut conn).await?;
        if applied.count == 0 {
            conn.batch_execute(&sql(*version, op)).await?;
            let insert = format!("INSERT INTO applied VALUES ('{name}')");
            conn.batch_execute(&insert).await?;
        }
    }
    Ok(())
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}
