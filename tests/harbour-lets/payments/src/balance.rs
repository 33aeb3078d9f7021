//! Keys that the booking service in the other language computes too: their texts and numbers must not change.

use advisory_runtime::{Connection, advisory_lock};
use diesel_async::AsyncPgConnection;
use lets_domain::{BookingId, TenantId};
use lets_store::{Error, Pool, Result};

/// A payment as the provider's page sends it.
#[derive(Clone, Debug)]
pub struct BalancePayment {
    pub tenant_id: TenantId,
    pub booking_id: BookingId,
}

/// Balance payment coordination
#[advisory_lock(
    key = "<payment.tenant_id: uuid>:balance:<payment.booking_id: uuid>",
    name = "balance",
    derivation = "fnv1a32",
    component = "BookingRepository",
    wait = "5s"
)]
pub async fn pay<C: Connection>(conn: &mut C, payment: &BalancePayment) -> Result<i64> {
    Err(Error::Refused)
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
pub async fn refund(pool: &Pool, tenant: TenantId, booking: BookingId) -> Result<i64> {
    Err(Error::Refused)
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
    Err(Error::Refused)
}
