//! The screen in the hall, which shows today's arrivals, on a connection of its own.

use advisory_runtime::advisory_lock;
use diesel_async::AsyncPgConnection;
use lets_store::{Error, Result};

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
    pub async fn draw(&mut self, floor: &str) -> Result<Vec<String>> {
        Err(Error::Refused)
    }
}
