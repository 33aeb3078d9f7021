//! Invoices, numbered without a gap, as the tax office wants them.

use advisory_runtime::{Connection, advisory_lock};
use diesel::dsl::max;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use lets_domain::{BookingId, Cents, TenantId};
use lets_store::Result;
use lets_store::schema::invoices;

/// Writes the year's next invoice.
///
/// A sequence would leave a gap wherever a transaction is rolled back.
#[advisory_lock(
    key = "invoices:<tenant: uuid>:<year>",
    name = "invoice-series",
    component = "invoices"
)]
pub async fn write<C: Connection>(
    conn: &mut C,
    tenant: TenantId,
    year: i32,
    booking: BookingId,
    total: Cents,
) -> Result<i32> {
    let series = invoices::table
        .filter(invoices::tenant_id.eq(tenant.0))
        .filter(invoices::year.eq(year));
    let last: Option<i32> = series.select(max(invoices::number)).first(conn).await?;
    let number = last.unwrap_or(0) + 1;
    diesel::insert_into(invoices::table)
        .values((
            invoices::tenant_id.eq(tenant.0),
            invoices::year.eq(year),
            invoices::number.eq(number),
            invoices::booking_id.eq(booking.0),
            invoices::total.eq(total.0),
        ))
        .execute(conn)
        .await?;
    Ok(number)
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
) -> Result<(i64, Cents)> {
    let totals: Vec<i64> = invoices::table
        .filter(invoices::tenant_id.eq(tenant.0))
        .filter(invoices::year.eq(year))
        .select(invoices::total)
        .load(conn)
        .await?;
    let count = i64::try_from(totals.len()).unwrap_or(i64::MAX);
    Ok((count, totals.into_iter().map(Cents).sum()))
}
