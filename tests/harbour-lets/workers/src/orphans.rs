//! Registrations that were never confirmed. Functions in the database do the same for the sign-up page, with the same
//! numbers: `acquire_cleanup_lock` and `generate_lock_id`.

use advisory_runtime::advisory_lock;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use lets_store::schema::verification_codes;
use lets_store::{Pool, Refusal, Result};
use std::time::Duration;

/// ORPHAN_CLEANUP_009: one cleanup of an address at a time, here or in the database's own functions.
#[advisory_lock(
    key = "<email|trim|lower|raw>",
    scope = "session",
    wait = "never",
    on_held = Err(Refusal::Busy.into()),
    max_hold = "30s",
    component = "sign-up",
    allow_overlap("*", "the number of an address alone, which functions in the database compute too"),
    conn = pool.get().await?
)]
pub async fn clean_up(pool: &Pool, email: &str, code: &str) -> Result<usize> {
    let address = email.trim().to_ascii_lowercase();
    let old = verification_codes::table.filter(verification_codes::email.eq(&address));
    let gone = diesel::delete(old).execute(conn).await?;
    diesel::insert_into(verification_codes::table)
        .values((
            verification_codes::email.eq(&address),
            verification_codes::code.eq(code),
        ))
        .execute(conn)
        .await?;
    Ok(gone)
}

/// Registrations of one address, one after the other; `generate_lock_id('registration', address)` is its number.
#[advisory_lock(
    key = "registration:<email|trim|lower|raw>",
    scope = "session",
    wait = patience,
    component = "sign-up",
    conn = pool.get().await?
)]
pub async fn confirm(pool: &Pool, email: &str, code: &str, patience: Duration) -> Result<bool> {
    let sent = verification_codes::table
        .filter(verification_codes::email.eq(email.trim().to_ascii_lowercase()))
        .filter(verification_codes::code.eq(code));
    Ok(diesel::delete(sent).execute(conn).await? > 0)
}
