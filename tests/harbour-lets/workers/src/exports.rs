//! Exports, which take an hour; an old run must not write the last step.

use advisory_runtime::advisory_lease;
use diesel::prelude::*;
use diesel_async::{AsyncConnection, RunQueryDsl};
use lets_store::schema::{bookings, exports};
use lets_store::{Error, Pool, Result};

/// Counts the stays into an export, under a token: a run that was stopped and wakes up writes nothing.
#[advisory_lease(
    key = "export:<name>",
    name = "export",
    pool = pool,
    ttl = "30s",
    renew = "10s",
    wait = "2s",
    handle = lease,
    component = "exports"
)]
pub async fn run(pool: &Pool, name: &str) -> Result<i64> {
    let mut conn = pool.get().await?;
    let rows: i64 = bookings::table.count().get_result(&mut conn).await?;
    conn.transaction(async |conn| {
        lease.fence(conn).await?;
        let token = lease.token().get();
        diesel::insert_into(exports::table)
            .values((
                exports::name.eq(name),
                exports::rows.eq(rows),
                exports::token.eq(token),
            ))
            .on_conflict(exports::name)
            .do_update()
            .set((exports::rows.eq(rows), exports::token.eq(token)))
            .execute(conn)
            .await?;
        Ok::<_, Error>(())
    })
    .await?;
    Ok(rows)
}

/// Throws an export away while nobody writes it.
#[advisory_lease(
    key = "export:<name>",
    name = "export",
    pool = pool,
    wait = "never",
    on_held = Ok(false),
    handle = lease,
    component = "exports"
)]
pub async fn discard(pool: &Pool, name: &str) -> Result<bool> {
    let mut conn = pool.get().await?;
    let gone = exports::table
        .filter(exports::name.eq(name))
        .filter(lease.is_current());
    Ok(diesel::delete(gone).execute(&mut conn).await? > 0)
}
