//! Invoices, numbered without a gap, as the tax office wants them.

use advisory_runtime::{Connection, advisory_lock};
use diesel_async::AsyncPgConnection;
use lets_domain::TenantId;
use lets_store::{Error, Result};

/// Writes the year's next invoice.
///
/// A sequence would leave a gap wherever a transaction is rolled back.
#[advisory_lock(
    key = "invoices:<tenant: uuid>:<year>",
    name = "invoice-series",
    component = "invoices"
)]
pub async fn write<C: Connection>(conn: &mut C, tenant: TenantId, year: i32) -> Result<i32> {
    Err(Error::Refused)
}

/// The year's sum while no invoice is being written; several may ask at a time.
#[advisory_lock(
    key = "invoices:<tenant: uuid>:<year>",
    name = "invoice-series",
    component = "invoices",
    mode = "shared",
    isolation = "repeatable read"
)]
pub async fn total(
    conn: &mut AsyncPgConnection,
    tenant: TenantId,
    year: i32,
) -> Result<(i64, i64)> {
    Err(Error::Refused)
}
