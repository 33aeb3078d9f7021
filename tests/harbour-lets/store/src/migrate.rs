//! The migrations of the schema, run by the instance that starts first.

use crate::{Pool, Result};
use advisory_runtime::lease::Table;
use advisory_runtime::{advisory_lock, sql_functions};
use diesel::sql_types::Bool;
use diesel_async::{AsyncConnection, RunQueryDsl, SimpleAsyncConnection};

const LETS: &str = include_str!("../migrations/0001_lets.sql");
/// `cargo advisory migration require` has written it.
const GUARDED_BLOCKS: &str = include_str!("../migrations/0002_guarded_blocks.sql");

/// Instances that start together migrate one after the other; the later ones find nothing to do.
///
/// Session-level, since each migration is a transaction of its own.
#[advisory_lock(
    key = "schema-migration",
    scope = "session",
    wait = "2m",
    component = "store",
    conn = pool.get().await?
)]
pub async fn migrate(pool: &Pool) -> Result<bool> {
    let is_there = diesel::select(diesel::dsl::sql::<Bool>(
        "to_regclass('public.bookings') IS NOT NULL",
    ))
    .get_result::<bool>(conn)
    .await?;
    if is_there {
        return Ok(false);
    }
    conn.transaction(async |conn| {
        conn.batch_execute(LETS).await?;
        conn.batch_execute(GUARDED_BLOCKS).await?;
        conn.batch_execute(sql_functions::ADVISORY_KEYS_UP).await
    })
    .await?;
    Table::new().set_up(&mut pool.get().await?).await?;
    Ok(true)
}
