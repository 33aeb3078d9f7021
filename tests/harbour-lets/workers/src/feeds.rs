//! A house's calendar as the other firms read it.

use advisory_runtime::{Connection, advisory_lock};
use lets_domain::locks::FeedLock;
use lets_domain::{Channel, PropertyId};
use lets_store::{Error, Result};

/// A feed has one version at a time, and each is one more than the last.
#[advisory_lock(key = FeedLock { channel, property }, wait = "10s")]
pub async fn publish<C: Connection>(
    conn: &mut C,
    channel: Channel,
    property: PropertyId,
) -> Result<i32> {
    Err(Error::Refused)
}

/// Readers of a feed do not wait for each other, but for a version that is being published.
#[advisory_lock(key = FeedLock { channel, property }, mode = "shared", wait = "1s")]
pub async fn version<C: Connection>(
    conn: &mut C,
    channel: Channel,
    property: PropertyId,
) -> Result<Option<i32>> {
    Err(Error::Refused)
}
