//! A connection to the database of the jobs: reads that change nothing and wait for nothing long,
//! and writes in short transactions.
//!
//! A statement is not prepared under a name, so that all this works through every pooler.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row};

use crate::database::{connect, failure, with_timeout};
use crate::failure::Failure;
use crate::migration::claim::CHANNEL;

/// The time limit of a statement that changes rows, with its waits for locks.
const LONGEST_WRITE: Duration = Duration::from_secs(60);

/// The channel on which idle workers listen. The triggers of the migration do not send it for the
/// change of a failed row.
const NOTIFY: &str = "\
SELECT pg_catalog.pg_notify($1, CAST(COALESCE(CAST(pg_catalog.pg_partition_root(r.oid) AS pg_catalog.oid), r.oid) AS pg_catalog.text))
FROM (SELECT CAST(CAST($2 AS pg_catalog.regclass) AS pg_catalog.oid) AS oid) AS r";

/// The connection.
pub(super) struct Jobs {
    client: Client,
    connection: JoinHandle<()>,
}

/// A row of a query.
pub(super) trait FromRow: Sized {
    fn from_row(row: &Row) -> Result<Self, Error>;
}

impl Jobs {
    pub(super) async fn open(address: &str) -> Result<Self, Failure> {
        let (client, connection) = connect(address).await?;
        // An error of the connection reaches the statements too.
        let connection = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { client, connection })
    }

    /// Ends it, after what was sent has been answered.
    pub(super) async fn close(self) {
        drop(self.client);
        drop(with_timeout(self.connection).await);
    }

    /// The rows of a query, or why the server did not answer it, such as for a table that is too
    /// large to count.
    pub(super) async fn read<R: FromRow>(
        &self,
        query: &str,
        binds: &[String],
    ) -> Result<Result<Vec<R>, String>, Failure> {
        const BEGIN: &str = "START TRANSACTION READ ONLY; SET LOCAL lock_timeout = '500ms'; SET LOCAL statement_timeout = '4s'";
        with_timeout(async {
            let begun = self.client.batch_execute(BEGIN).await;
            begun.map_err(|error| failure(&error))?;
            let rows = self.client.query_typed(query, &typed(binds)).await;
            let rows = rows.and_then(|rows| rows.iter().map(R::from_row).collect());
            // A connection that is lost has been reported by the query.
            drop(self.client.batch_execute("ROLLBACK").await);
            Ok(rows.map_err(|error| failure(&error).to_string()))
        })
        .await?
    }

    /// Runs one statement on a table in a transaction of its own, and wakes up its idle workers.
    /// Gives the number of rows.
    pub(super) async fn write(
        &self,
        table: &str,
        statement: &str,
        binds: &[String],
    ) -> Result<usize, Failure> {
        match timeout(LONGEST_WRITE, self.write_in_transaction(table, statement, binds)).await {
            Ok(Ok(rows)) => Ok(usize::try_from(rows).unwrap_or(usize::MAX)),
            Ok(Err(error)) => {
                // A connection that is lost has rolled back.
                drop(with_timeout(self.client.batch_execute("ROLLBACK")).await);
                Err(Failure::Input(format!("nothing was changed: {}", failure(&error))))
            }
            Err(_) => Err(Failure::Input(
                "the server did not answer within a minute, and may still change the rows: look again, with `claim list`".to_owned(),
            )),
        }
    }

    async fn write_in_transaction(
        &self,
        table: &str,
        statement: &str,
        binds: &[String],
    ) -> Result<u64, Error> {
        const BEGIN: &str =
            "BEGIN; SET LOCAL lock_timeout = '5s'; SET LOCAL statement_timeout = '50s'";
        self.client.batch_execute(BEGIN).await?;
        let rows = self.client.execute_typed(statement, &typed(binds)).await?;
        let notify = [CHANNEL.to_owned(), table.to_owned()];
        self.client.execute_typed(NOTIFY, &typed(&notify)).await?;
        self.client.batch_execute("COMMIT").await?;
        Ok(rows)
    }
}

fn typed(binds: &[String]) -> Vec<(&(dyn ToSql + Sync), Type)> {
    let typed = binds
        .iter()
        .map(|bind| (bind as &(dyn ToSql + Sync), Type::TEXT));
    typed.collect()
}
