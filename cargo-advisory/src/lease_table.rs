//! Reads the lease table, without waiting long if another session has locked it.

use advisory_runtime::lease::{Error, Table};
use advisory_runtime::monitor::{self, LeaseSummary, Names};
use diesel_async::SimpleAsyncConnection;

use crate::database::{Session, read_bounded, with_timeout};
use crate::failure::Result;
use crate::guard::literal;

/// Reads the table. The outer failure is one of the connection.
pub(crate) async fn read<T>(
    session: &mut Session,
    table: &Table,
    read: impl AsyncFnOnce(&mut Session) -> Result<T, Error>,
) -> Result<Result<T, Error>> {
    let name = literal(&table.name());
    let exists = format!("SELECT CAST({name} AS pg_catalog.regclass)");
    let exists = with_timeout(session.batch_execute(&exists)).await?;
    if exists.is_ok() {
        return read_bounded(session, read).await;
    }
    // A table that does not exist cannot be locked, and `read` can find the cause of its error only
    // outside of a transaction.
    with_timeout(read(session)).await
}

/// Reads at most `most` leases, and counts all.
pub(crate) async fn summary(
    session: &mut Session,
    (table, names): (&Table, &Names),
    filter: Option<&str>,
    most: u32,
) -> Result<Result<LeaseSummary, Error>> {
    read(session, table, async |session: &mut Session| {
        monitor::lease_summary(session, table, names, filter, most).await
    })
    .await
}
