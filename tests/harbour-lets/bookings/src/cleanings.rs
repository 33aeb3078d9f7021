//! Who cleans which room on which day.

use advisory_runtime::advisory_lock;
use chrono::{Datelike, NaiveDate};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use lets_domain::locks::Rota;
use lets_domain::{CleanerId, RoomId};
use lets_store::schema::cleanings;
use lets_store::{Refusal, Result};

/// More rooms than this in a week are too many for anybody.
const ROOMS_A_WEEK: i64 = 20;

/// Assigns a room, unless the cleaner's week is full.
#[advisory_lock(key = Rota { cleaner, week: day.iso_week().week() }, wait = "5s")]
pub async fn assign(
    conn: &mut AsyncPgConnection,
    cleaner: CleanerId,
    room: RoomId,
    day: NaiveDate,
) -> Result<()> {
    let week = day.week(chrono::Weekday::Mon);
    let assigned: i64 = cleanings::table
        .filter(cleanings::cleaner_id.eq(cleaner.0))
        .filter(cleanings::day.between(week.first_day(), week.last_day()))
        .count()
        .get_result(conn)
        .await?;
    if assigned >= ROOMS_A_WEEK {
        return Err(Refusal::TooLittle.into());
    }
    diesel::insert_into(cleanings::table)
        .values((
            cleanings::room_id.eq(room.0),
            cleanings::day.eq(day),
            cleanings::cleaner_id.eq(cleaner.0),
        ))
        .execute(conn)
        .await?;
    Ok(())
}

/// Two cleaners swap a week.
#[advisory_lock(keys = [Rota { cleaner: one, week }, Rota { cleaner: other, week }], wait = "5s")]
pub async fn swap(
    conn: &mut AsyncPgConnection,
    one: CleanerId,
    other: CleanerId,
    week: u32,
    monday: NaiveDate,
) -> Result<usize> {
    if monday.iso_week().week() != week {
        return Err(Refusal::Invalid.into());
    }
    let days = monday.week(chrono::Weekday::Mon);
    let of_both = cleanings::table
        .filter(cleanings::day.between(days.first_day(), days.last_day()))
        .filter(cleanings::cleaner_id.eq_any([one.0, other.0]));
    let swapped = diesel::update(of_both)
        .set(cleanings::cleaner_id.eq(cleanings::cleaner_id * -1 + (one.0 + other.0)))
        .execute(conn)
        .await?;
    Ok(swapped)
}

/// Done is done once; a room is handed on only when it is.
#[advisory_lock(
    key = "cleaning:<room: int>:<iso>",
    with(iso = day.format("%G-%V-%u").to_string()),
    component = "housekeeping"
)]
pub async fn done(conn: &mut AsyncPgConnection, room: RoomId, day: NaiveDate) -> Result<bool> {
    let open = cleanings::table
        .find((room.0, day))
        .filter(cleanings::done.eq(false));
    let changed = diesel::update(open)
        .set(cleanings::done.eq(true))
        .execute(conn)
        .await?;
    Ok(changed > 0)
}
