//! Dunning letters, level by level.

use advisory_runtime::advisory_lock;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use lets_domain::BookingId;
use lets_store::schema::{bookings, outbox};
use lets_store::{Pool, Result};

/// The levels, by the names of the letters.
const LEVELS: [&str; 3] = ["reminder", "second reminder", "last reminder"];

pub struct Dunning {
    pub pool: Pool,
    /// Keeps the letters of two brands apart that share this database.
    pub brand: String,
}

impl Dunning {
    /// One letter a level and stay, also where two clerks press the button.
    #[advisory_lock(
        key = "dunning:<self.brand>:<booking: uuid>:<level>",
        component = "letters",
        conn = self.pool.get().await?,
        wait = "never",
        on_held = Ok(None)
    )]
    pub async fn write(&self, booking: BookingId, level: u8) -> Result<Option<&'static str>> {
        let Some(subject) = LEVELS.get(usize::from(level)) else {
            return Ok(None);
        };
        let owes = bookings::table
            .find(booking.0)
            .filter(bookings::paid.lt(bookings::price))
            .count();
        if owes.get_result::<i64>(conn).await? == 0 {
            return Ok(None);
        }
        let address = format!("{}/{booking}", self.brand);
        let before = outbox::table
            .filter(outbox::address.eq(&address))
            .filter(outbox::subject.eq(subject))
            .count();
        if before.get_result::<i64>(conn).await? > 0 {
            return Ok(None);
        }
        diesel::insert_into(outbox::table)
            .values((outbox::address.eq(address), outbox::subject.eq(subject)))
            .execute(conn)
            .await?;
        Ok(Some(subject))
    }
}
