//! Arrivals and departures.

use advisory_runtime::advisory_lock;
use chrono::NaiveDate;
use lets_bookings::{bookings, cleanings, key_safes, settings};
use lets_domain::locks::StayLock;
use lets_domain::{AccountId, BookingId, BookingState, CleanerId, OwnerId, PropertyId, TenantId};
use lets_payments::{accounts, deposits, loyalty, statements};
use lets_store::{Pool, Result};

pub struct FrontDesk {
    pub pool: Pool,
    pub tenant: TenantId,
    pub property: PropertyId,
    pub owner: OwnerId,
    pub till: AccountId,
}

/// How a stay ends.
#[derive(Clone, Copy, Debug)]
pub struct Departure {
    pub booking: BookingId,
    pub payer: AccountId,
    pub slot: i32,
    pub cleaner: CleanerId,
    pub day: NaiveDate,
}

impl FrontDesk {
    /// The guest arrives: the code of the safe where the key is.
    #[advisory_lock(
        key = StayLock { booking },
        conn = self.pool.get().await?,
        wait = "5s",
        component = "desk"
    )]
    pub async fn check_in(&self, booking: BookingId, slot: i32) -> Result<String> {
        bookings::pass(conn, booking, BookingState::CheckedIn).await?;
        key_safes::give(conn, self.property, slot, booking).await
    }

    /// The guest leaves: the rest is paid, the points are earned, the owner gets a share, the room is cleaned.
    #[advisory_lock(
        key = StayLock { booking: leaving.booking },
        conn = self.pool.get().await?,
        wait = "5s",
        max_hold = "30s",
        component = "desk"
    )]
    pub async fn check_out(&self, leaving: Departure) -> Result<i64> {
        let Departure {
            booking,
            payer,
            slot,
            cleaner,
            day,
        } = leaving;
        let stay = bookings::pass(conn, booking, BookingState::CheckedOut).await?;
        key_safes::take_back(conn, self.property, slot, "0000").await?;
        cleanings::assign(conn, cleaner, stay.room(), day).await?;
        deposits::settle(conn, booking, deposits::Settlement::GivenBack).await?;
        let due = stay.due();
        if due.is_positive() {
            accounts::transfer(conn, payer, self.till, due, "balance").await?;
        }
        let rate = settings::loyalty_rate::get(conn, self.tenant).await?;
        let points = loyalty::earn(conn, stay.guest(), rate * stay.nights().count()).await?;
        let month = day.format("%Y-%m").to_string();
        statements::add(conn, self.owner, &month, due.percent(80)).await?;
        Ok(points)
    }
}
