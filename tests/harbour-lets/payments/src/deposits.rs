//! Deposits: taken at the booking, given back or kept at the end.

use advisory_runtime::{Connection, advisory_lock};
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use lets_domain::{BookingId, Cents};
use lets_store::schema::deposits;
use lets_store::{Refusal, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    GivenBack,
    Kept,
}

impl Settlement {
    const fn as_str(self) -> &'static str {
        match self {
            Self::GivenBack => "given back",
            Self::Kept => "kept",
        }
    }
}

/// Takes a deposit, once a stay.
#[advisory_lock(
    key = "deposit:<booking: uuid>",
    name = "deposit",
    component = "deposits"
)]
pub async fn take<C: Connection>(conn: &mut C, booking: BookingId, amount: Cents) -> Result<bool> {
    let taken = diesel::insert_into(deposits::table)
        .values((
            deposits::booking_id.eq(booking.0),
            deposits::amount.eq(amount.0),
            deposits::state.eq("taken"),
        ))
        .on_conflict_do_nothing()
        .execute(conn)
        .await?;
    Ok(taken > 0)
}

/// Ends a deposit one way or the other, never both.
#[advisory_lock(
    key = "deposit:<booking: uuid>",
    name = "deposit",
    component = "deposits",
    wait = "5s"
)]
pub async fn settle(
    conn: &mut impl Connection,
    booking: BookingId,
    settlement: Settlement,
) -> Result<Cents> {
    let open = deposits::table
        .find(booking.0)
        .filter(deposits::state.eq("taken"));
    let amount = diesel::update(open)
        .set(deposits::state.eq(settlement.as_str()))
        .returning(deposits::amount)
        .get_result::<i64>(conn)
        .await
        .optional()?;
    Ok(Cents(amount.ok_or(Refusal::AlreadyDone)?))
}
