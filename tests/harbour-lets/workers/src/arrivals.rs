//! The screen in the hall, which shows today's arrivals, on a connection of its own.

use advisory_runtime::advisory_lock;
use chrono::NaiveDate;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use lets_store::Result;
use lets_store::schema::{bookings, guests};

pub struct Screen {
    pub conn: AsyncPgConnection,
    pub house: String,
}

impl Screen {
    /// The day's names, by room. Screens of one house draw one after the other.
    ///
    /// The key is the one of the screens before these, which did not escape the house's name.
    #[advisory_lock(
        key = "screen:<self.house>-<floor>",
        allow_ambiguous = "the old screens' key; two houses that share one wait for a drawing, no more",
        component = "screens",
        conn = self.conn,
        wait = "3s"
    )]
    pub async fn draw(
        &mut self,
        floor: &str,
        day: NaiveDate,
    ) -> Result<impl Iterator<Item = String> + use<>> {
        let mut names: Vec<(i64, String)> = bookings::table
            .inner_join(guests::table)
            .filter(bookings::arrives.eq(day))
            .filter(bookings::state.eq("booked"))
            .select((bookings::room_id, guests::name))
            .load(&mut self.conn)
            .await?;
        names.sort();
        let floor = floor.to_owned();
        Ok(names
            .into_iter()
            .map(move |(room, name)| format!("{floor}/{room}: {name}")))
    }
}
