//! A house's calendar as the other firms read it.

use advisory_runtime::{Connection, advisory_lock};
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use lets_domain::locks::FeedLock;
use lets_domain::{Channel, PropertyId};
use lets_store::Result;
use lets_store::schema::feeds;

/// A feed has one version at a time, and each is one more than the last.
#[advisory_lock(key = FeedLock { channel, property }, wait = "10s")]
pub async fn publish<C: Connection>(
    conn: &mut C,
    channel: Channel,
    property: PropertyId,
) -> Result<i32> {
    let version = diesel::insert_into(feeds::table)
        .values((
            feeds::channel.eq(channel.as_str()),
            feeds::property_id.eq(property.0),
            feeds::version.eq(1),
        ))
        .on_conflict((feeds::channel, feeds::property_id))
        .do_update()
        .set(feeds::version.eq(feeds::version + 1))
        .returning(feeds::version)
        .get_result(conn)
        .await?;
    Ok(version)
}

/// Readers of a feed do not wait for each other, but for a version that is being published.
#[advisory_lock(key = FeedLock { channel, property }, mode = "shared", wait = "1s")]
pub async fn version<C: Connection>(
    conn: &mut C,
    channel: Channel,
    property: PropertyId,
) -> Result<Option<i32>> {
    let found = feeds::table
        .find((channel.as_str(), property.0))
        .select(feeds::version);
    Ok(found.first(conn).await.optional()?)
}
