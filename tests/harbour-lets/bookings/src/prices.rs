//! What a night costs: read for every quote, written twice a year.

use advisory_runtime::{Connection, advisory_lock};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use lets_domain::locks::PriceList;
use lets_domain::{Cents, Nights, PropertyId, Season};
use lets_store::schema::prices;
use lets_store::{Refusal, Result};

/// Quotes run at the same time; none sees half of a new price list.
#[advisory_lock(key = PriceList { property, season }, mode = "shared", wait = "2s")]
pub async fn night<C: Connection>(
    conn: &mut C,
    property: PropertyId,
    season: Season,
) -> Result<(Cents, i32)> {
    let found = prices::table
        .find((property.0, season.as_str()))
        .select((prices::night, prices::version));
    let (night, version) = found.first::<(i64, i32)>(conn).await?;
    Ok((Cents(night), version))
}

/// A new price list; quotes that are being made are waited for.
#[advisory_lock(key = PriceList { property, season }, mode = "exclusive", wait = "30s")]
pub async fn set(
    conn: &mut AsyncPgConnection,
    property: PropertyId,
    season: Season,
    night: Cents,
) -> Result<i32> {
    if !night.is_positive() {
        return Err(Refusal::Invalid.into());
    }
    let version = diesel::insert_into(prices::table)
        .values((
            prices::property_id.eq(property.0),
            prices::season.eq(season.as_str()),
            prices::night.eq(night.0),
            prices::version.eq(1),
        ))
        .on_conflict((prices::property_id, prices::season))
        .do_update()
        .set((
            prices::night.eq(night.0),
            prices::version.eq(prices::version + 1),
        ))
        .returning(prices::version)
        .get_result(conn)
        .await?;
    Ok(version)
}

/// The price of a stay, night by night, since one can lie in two seasons.
pub async fn of_stay<C: Connection>(
    conn: &mut C,
    property: PropertyId,
    nights: Nights,
) -> Result<Cents> {
    let mut sum = Cents::ZERO;
    for day in nights.each() {
        sum = sum + night(conn, property, Season::of(day)).await?.0;
    }
    Ok(sum)
}
