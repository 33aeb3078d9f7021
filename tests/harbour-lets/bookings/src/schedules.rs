//! Events of schedules, which are generated when somebody first looks that far ahead.

use advisory_runtime::advisory_lock;
use diesel_async::AsyncPgConnection;
use lets_domain::ScheduleId;
use lets_store::{Error, Result};

/// Makes a schedule's events up to a day. A call that comes while this runs gets an error, and its client tries again by itself.
///
/// The number is what the service before us computes: the first half of the id's MD5.
#[advisory_lock(
    key = "<schedule: uuid>",
    derivation = "md5",
    wait = "never",
    on_held = Err(Error::Refused),
    component = "schedules"
)]
pub async fn generate(conn: &mut AsyncPgConnection, schedule: ScheduleId) -> Result<usize> {
    Err(Error::Refused)
}
