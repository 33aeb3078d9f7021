//! Events of schedules, which are generated when somebody first looks that far ahead.

use advisory_runtime::advisory_lock;
use chrono::NaiveDate;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use lets_domain::ScheduleId;
use lets_store::schema::{schedule_events, schedules};
use lets_store::{Refusal, Result};

/// Makes a schedule's events up to a day. A call that comes while this runs gets an error, and its client tries again by itself.
///
/// The number is what the service before us computes: the first half of the id's MD5.
#[advisory_lock(
    key = "<schedule: uuid>",
    derivation = "md5",
    wait = "never",
    on_held = Err(Refusal::Busy.into()),
    component = "schedules"
)]
pub async fn generate(
    conn: &mut AsyncPgConnection,
    schedule: ScheduleId,
    up_to: NaiveDate,
) -> Result<usize> {
    let found = schedules::table.find(schedule.0);
    let from: NaiveDate = found.select(schedules::generated_to).first(conn).await?;
    let days: Vec<_> = from
        .iter_days()
        .skip(1)
        .take_while(|day| *day <= up_to)
        .map(|day| {
            (
                schedule_events::schedule_id.eq(schedule.0),
                schedule_events::day.eq(day),
            )
        })
        .collect();
    let made = diesel::insert_into(schedule_events::table)
        .values(&days)
        .execute(conn)
        .await?;
    diesel::update(found)
        .set(schedules::generated_to.eq(from.max(up_to)))
        .execute(conn)
        .await?;
    Ok(made)
}

pub async fn list(
    conn: &mut AsyncPgConnection,
    schedule: ScheduleId,
    up_to: NaiveDate,
) -> Result<Vec<NaiveDate>> {
    let generated: NaiveDate = schedules::table
        .find(schedule.0)
        .select(schedules::generated_to)
        .first(conn)
        .await?;
    if generated < up_to {
        generate(conn, schedule, up_to).await?;
    }
    let days = schedule_events::table
        .filter(schedule_events::schedule_id.eq(schedule.0))
        .filter(schedule_events::day.le(up_to))
        .order(schedule_events::day)
        .select(schedule_events::day);
    Ok(days.load(conn).await?)
}
