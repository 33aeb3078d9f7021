//! Keys that the booking service in the other language computes too: their texts and numbers must not change.

use advisory_runtime::{Connection, advisory_lock};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use lets_domain::{BookingId, Cents, TenantId};
use lets_store::schema::bookings;
use lets_store::{Pool, Refusal, Result};

/// A payment as the provider's page sends it.
#[derive(Clone, Debug)]
pub struct BalancePayment {
    pub tenant_id: TenantId,
    pub booking_id: BookingId,
    pub amount: Cents,
}

/// Balance payment coordination
#[advisory_lock(
    key = "<payment.tenant_id: uuid>:balance:<payment.booking_id: uuid>",
    name = "balance",
    derivation = "fnv1a32",
    component = "BookingRepository",
    wait = "5s"
)]
pub async fn pay<C: Connection>(conn: &mut C, payment: &BalancePayment) -> Result<Cents> {
    let found = bookings::table
        .find(payment.booking_id.0)
        .filter(bookings::tenant_id.eq(payment.tenant_id.0))
        .select((bookings::price, bookings::paid));
    let (price, paid) = found.first::<(i64, i64)>(conn).await?;
    let due = Cents(price - paid);
    if payment.amount > due {
        return Err(Refusal::AlreadyDone.into());
    }
    diesel::update(bookings::table.find(payment.booking_id.0))
        .set(bookings::paid.eq(paid + payment.amount.0))
        .execute(conn)
        .await?;
    Ok(due - payment.amount)
}

/// Gives back what was paid too much.
#[advisory_lock(
    key = "<tenant: uuid>:balance:<booking: uuid>",
    name = "balance",
    derivation = "fnv1a32",
    component = "BookingRepository",
    conn = pool.get().await?,
    queue = 16,
    wait = "10s"
)]
pub async fn refund(
    pool: &Pool,
    tenant: TenantId,
    booking: BookingId,
    amount: Cents,
) -> Result<Cents> {
    let found = bookings::table
        .find(booking.0)
        .filter(bookings::tenant_id.eq(tenant.0))
        .select(bookings::paid);
    let paid = found.first::<i64>(conn).await?;
    let left = Cents(paid) - amount;
    if left < Cents::ZERO {
        return Err(Refusal::TooLittle.into());
    }
    diesel::update(bookings::table.find(booking.0))
        .set(bookings::paid.eq(left.0))
        .execute(conn)
        .await?;
    Ok(left)
}

/// Booking creation race prevention
///
/// Day guests of the tenant, whom the other service books as well: as many as there are places.
#[advisory_lock(
    key = "<tenant_id: uuid>:<date>",
    name = "tenant-day",
    derivation = "fnv1a32",
    component = "BookingRepository",
    wait = "5s"
)]
pub async fn day_guests(
    conn: &mut AsyncPgConnection,
    tenant_id: TenantId,
    date: chrono::NaiveDate,
) -> Result<i64> {
    let of_day = bookings::table
        .filter(bookings::tenant_id.eq(tenant_id.0))
        .filter(bookings::arrives.eq(date));
    Ok(of_day.count().get_result(conn).await?)
}
