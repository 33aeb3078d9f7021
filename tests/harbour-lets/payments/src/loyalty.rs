//! Points: earned by nights, spent on nights.

use advisory_runtime::{Connection, advisory_lock};
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use lets_domain::GuestId;
use lets_domain::locks::LoyaltyLock;
use lets_store::schema::loyalty;
use lets_store::{Refusal, Result};

pub async fn points<C: Connection>(conn: &mut C, guest: GuestId) -> Result<i64> {
    let points = loyalty::table.find(guest.0).select(loyalty::points);
    Ok(points.first(conn).await.optional()?.unwrap_or(0))
}

#[advisory_lock(key = LoyaltyLock { guest }, wait = "5s")]
pub async fn earn<C: Connection>(conn: &mut C, guest: GuestId, earned: i64) -> Result<i64> {
    let before = points(conn, guest).await?;
    set(conn, guest, before + earned).await
}

/// Spends points that are there.
#[advisory_lock(key = LoyaltyLock { guest }, wait = "5s")]
pub async fn spend<C: Connection>(conn: &mut C, guest: GuestId, spent: i64) -> Result<i64> {
    let left = points(conn, guest).await? - spent;
    if left < 0 {
        return Err(Refusal::TooLittle.into());
    }
    set(conn, guest, left).await
}

/// Two guests turned out to be one.
#[advisory_lock(keys = [LoyaltyLock { guest: kept }, LoyaltyLock { guest: gone }], wait = "5s")]
pub async fn merge<C: Connection>(conn: &mut C, kept: GuestId, gone: GuestId) -> Result<i64> {
    let both = points(conn, kept).await? + points(conn, gone).await?;
    set(conn, gone, 0).await?;
    set(conn, kept, both).await
}

async fn set<C: Connection>(conn: &mut C, guest: GuestId, points: i64) -> Result<i64> {
    diesel::insert_into(loyalty::table)
        .values((loyalty::guest_id.eq(guest.0), loyalty::points.eq(points)))
        .on_conflict(loyalty::guest_id)
        .do_update()
        .set(loyalty::points.eq(points))
        .execute(conn)
        .await?;
    Ok(points)
}
