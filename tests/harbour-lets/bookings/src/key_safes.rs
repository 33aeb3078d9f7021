//! Keys in safes: each slot has one code, and one stay.

use advisory_runtime::{Connection, advisory_lock};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use lets_domain::locks::KeySafe;
use lets_domain::{BookingId, PropertyId};
use lets_store::schema::key_safes;
use lets_store::{Refusal, Result};

/// Gives a slot to a stay.
#[advisory_lock(key = KeySafe { property, slot }, wait = "5s")]
pub async fn give<C: Connection>(
    conn: &mut C,
    property: PropertyId,
    slot: i32,
    booking: BookingId,
) -> Result<String> {
    let free = key_safes::table
        .find((property.0, slot))
        .filter(key_safes::booking_id.is_null());
    let code = diesel::update(free)
        .set(key_safes::booking_id.eq(booking.0))
        .returning(key_safes::code)
        .get_result::<String>(conn)
        .await
        .optional()?;
    Ok(code.ok_or(Refusal::Taken)?)
}

/// A slot that a stay has left gets another code.
#[advisory_lock(key = KeySafe { property, slot }, wait = "5s")]
pub async fn take_back(
    conn: &mut AsyncPgConnection,
    property: PropertyId,
    slot: i32,
    new_code: &str,
) -> Result<()> {
    diesel::update(key_safes::table.find((property.0, slot)))
        .set((
            key_safes::booking_id.eq(None::<uuid::Uuid>),
            key_safes::code.eq(new_code),
        ))
        .execute(conn)
        .await?;
    Ok(())
}

/// Every slot of a house at once gets another code, as after a burglary.
#[advisory_lock(
    key = "key-safe:<property: uuid>:<slots*: int>",
    name = "key-safe",
    max_keys = 200,
    wait = "30s",
    component = "housekeeping"
)]
pub async fn change_all(
    conn: &mut AsyncPgConnection,
    property: PropertyId,
    slots: &[i32],
    mut code: impl FnMut(i32) -> String,
) -> Result<usize> {
    let mut changed = 0;
    for slot in slots {
        changed += diesel::update(key_safes::table.find((property.0, *slot)))
            .set(key_safes::code.eq(code(*slot)))
            .execute(conn)
            .await?;
    }
    Ok(changed)
}
