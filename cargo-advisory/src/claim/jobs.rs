//! Reads job tables without changing them or waiting long, and writes to them in short
//! transactions.
//!
//! No statement is prepared under a name, so this works through every pooler.

use std::time::Duration;

use advisory_runtime::__private::qualify;
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row};

use crate::database::{BEGIN_READING, with_timeout};
use crate::failure::{Failure, Result, bail};

/// The time limit of a statement that changes rows, with its waits for locks.
const LONGEST_WRITE: Duration = Duration::from_secs(60);

/// Wakes up idle workers, by the channel on which they listen. The triggers of the migration do not notify of the change of a failed
/// row.
const NOTIFY: &str = "SELECT pg_notify('advisory_claim', COALESCE(pg_partition_root(r.oid)::oid, r.oid)::text) \
     FROM (SELECT $1::regclass::oid AS oid) AS r";

/// The rows of a query in plain SQL, or why the server did not answer it: for example, the table is
/// too large to count.
pub(super) async fn read<R>(
    client: &Client,
    query: &str,
    binds: &[String],
    of: impl FnMut(&Row) -> Result<R, Error>,
) -> Result<Result<Vec<R>>> {
    with_timeout(async {
        client.batch_execute(BEGIN_READING).await?;
        let rows = client.query_typed(&qualify(query), &typed(binds)).await;
        let rows = rows.and_then(|rows| rows.iter().map(of).collect());
        // A connection that is lost has been reported by the query.
        drop(client.batch_execute("ROLLBACK").await);
        Ok(rows.map_err(Failure::from))
    })
    .await?
}

/// Runs one statement in plain SQL on a table, in a transaction of its own, and wakes up the idle
/// workers of the table. Returns the number of rows.
pub(super) async fn write(
    client: &Client,
    table: &str,
    statement: &str,
    binds: &[String],
) -> Result<usize> {
    const BEGIN: &str = "BEGIN; SET LOCAL lock_timeout = '5s'; SET LOCAL statement_timeout = '50s'";
    let written = async {
        client.batch_execute(BEGIN).await?;
        let (statement, notify) = (qualify(statement), qualify(NOTIFY));
        let rows = client.execute_typed(&statement, &typed(binds)).await?;
        let table = [table.to_owned()];
        client.execute_typed(&notify, &typed(&table)).await?;
        client.batch_execute("COMMIT").await?;
        Ok::<_, Error>(rows)
    };
    match timeout(LONGEST_WRITE, written).await {
        Ok(Ok(rows)) => Ok(usize::try_from(rows).unwrap_or(usize::MAX)),
        Ok(Err(error)) => {
            // A connection that is lost has rolled back.
            drop(with_timeout(client.batch_execute("ROLLBACK")).await);
            bail!("nothing was changed: {}", Failure::from(error))
        }
        Err(_) => bail!(
            "the server did not answer within a minute, and may still change the rows: look again, with `claim list`"
        ),
    }
}

fn typed(binds: &[String]) -> Vec<(&(dyn ToSql + Sync), Type)> {
    binds.iter().map(|bind| (bind as _, Type::TEXT)).collect()
}
