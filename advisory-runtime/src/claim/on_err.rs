//! How often a claim is renewed.

use super::table::{Claim, ttl};
use std::time::Duration;

/// The shortest time between two renewals: without a pause they would keep a connection busy.
const SHORTEST: Duration = Duration::from_millis(10);

/// The time between two renewals.
pub(crate) fn every<T: Claim>() -> Duration {
    T::RENEW.min(ttl::<T>() / 2).max(SHORTEST)
}
