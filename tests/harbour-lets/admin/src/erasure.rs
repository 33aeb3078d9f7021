//! A guest asks to be forgotten.

use advisory_runtime::advisory_lock;
use diesel::prelude::*;
use lets_domain::GuestId;
use lets_domain::locks::{GuestLock, LoyaltyLock};
use lets_store::schema::{bookings, email_changes, guests, loyalty};
use lets_store::{Refusal, Result};

/// Forgets a guest who is not to come any more.
///
/// The guest and the points, as the services take them: in the order of `lets_domain::locks`, here in one step.
#[advisory_lock(
    keys = [GuestLock { guest }, LoyaltyLock { guest }],
    wait = "10s",
    isolation = "repeatable read",
    nested = "refuse"
)]
pub fn erase(conn: &mut PgConnection, guest: GuestId) -> Result<()> {
    let to_come = bookings::table
        .filter(bookings::guest_id.eq(guest.0))
        .filter(bookings::state.eq_any(["booked", "checked-in"]));
    if to_come.count().get_result::<i64>(conn)? > 0 {
        return Err(Refusal::WrongState.into());
    }
    diesel::delete(email_changes::table.filter(email_changes::guest_id.eq(guest.0)))
        .execute(conn)?;
    diesel::delete(loyalty::table.find(guest.0)).execute(conn)?;
    diesel::update(guests::table.find(guest.0))
        .set((
            guests::name.eq("forgotten"),
            guests::email.eq(format!("{guest}@forgotten.invalid")),
        ))
        .execute(conn)?;
    Ok(())
}
