//! Several rooms or a whole house in one step.

use advisory_runtime::advisory_lock;
use chrono::NaiveDate;
use diesel_async::AsyncPgConnection;
use lets_domain::locks::RoomNight;
use lets_domain::{PropertyId, RoomId};
use lets_store::{Error, Pool, Result};

pub struct Desk {
    pub pool: Pool,
}

impl Desk {
    /// Books several rooms for the same nights, all or none: a family's two rooms.
    #[advisory_lock(
        keys = nights_of(stays),
        conn = self.pool.get().await?,
        wait = "10s",
        max_keys = 200,
        component = "desk"
    )]
    pub async fn book_together(&self, stays: &[(RoomId, NaiveDate)]) -> Result<()> {
        Err(Error::Refused)
    }
}

fn nights_of(stays: &[(RoomId, NaiveDate)]) -> impl Iterator<Item = RoomNight> {
    let stays = stays.iter();
    stays.map(|&(room, night)| RoomNight { room, night })
}

/// Opens a season for a house that has rooms.
#[advisory_lock(
    key = "season:<property: uuid>",
    component = "desk",
    isolation = "read committed",
    nested = "refuse",
    wait = "forever"
)]
pub async fn open_season(conn: &mut AsyncPgConnection, property: PropertyId) -> Result<()> {
    Err(Error::Refused)
}
