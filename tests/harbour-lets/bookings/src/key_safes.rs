//! Keys in safes: each slot has one code, and one stay.

use advisory_runtime::{Connection, advisory_lock};
use diesel_async::AsyncPgConnection;
use lets_domain::PropertyId;
use lets_domain::locks::KeySafe;
use lets_store::{Error, Result};

/// Gives a slot to a stay.
#[advisory_lock(key = KeySafe { property, slot }, wait = "5s")]
pub async fn give<C: Connection>(conn: &mut C, property: PropertyId, slot: i32) -> Result<String> {
    Err(Error::Refused)
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
) -> Result<usize> {
    Err(Error::Refused)
}
