//! Codes that pay once, however they are typed.

use advisory_runtime::{Connection, advisory_lock};
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use lets_domain::locks::VoucherLock;
use lets_domain::{Cents, GuestId};
use lets_store::schema::vouchers;
use lets_store::{Refusal, Result};

/// Pays with a code: what it is worth.
#[advisory_lock(key = VoucherLock { code: code.to_owned() }, wait = "5s")]
pub async fn redeem<C: Connection>(conn: &mut C, code: &str, guest: GuestId) -> Result<Cents> {
    let typed = code.trim().to_ascii_lowercase();
    let found = vouchers::table
        .find(&typed)
        .select((vouchers::amount, vouchers::redeemed_by));
    let (amount, redeemed_by) = found.first::<(i64, Option<uuid::Uuid>)>(conn).await?;
    if redeemed_by.is_some() {
        return Err(Refusal::AlreadyDone.into());
    }
    diesel::update(vouchers::table.find(&typed))
        .set(vouchers::redeemed_by.eq(guest.0))
        .execute(conn)
        .await?;
    Ok(Cents(amount))
}

/// Sells a code, unless it is sold already.
#[advisory_lock(key = VoucherLock { code: code.to_owned() }, wait = "5s")]
pub async fn sell<C: Connection>(conn: &mut C, code: &str, amount: Cents) -> Result<bool> {
    let sold = diesel::insert_into(vouchers::table)
        .values((
            vouchers::code.eq(code.trim().to_ascii_lowercase()),
            vouchers::amount.eq(amount.0),
        ))
        .on_conflict_do_nothing()
        .execute(conn)
        .await?;
    Ok(sold > 0)
}
