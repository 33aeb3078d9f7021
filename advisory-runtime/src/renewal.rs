//! How does a row with an expiry stay held while work goes on under it?
//!
//! One engine for leases and claims: [`hold`] knows until when, [`task`] renews, [`watch`] stops the work before the expiry, and
//! [`round_trip`] finds a connection for each statement.

mod expiry;
mod hold;
mod round_trip;
mod task;
mod watch;

pub(crate) use hold::{End, Hold};
pub(crate) use round_trip::{Borrowed, Dedicated, Step, UNANSWERED, round_trip};
pub(crate) use task::{Renew, renew_until_lost};
pub(crate) use watch::{Stop, watch};

use diesel::result::{DatabaseErrorKind, Error as DieselError};
use std::time::Duration;

/// How long a grant lasts unless the program says otherwise.
pub(crate) const DEFAULT_TTL: Duration = Duration::from_secs(60);
/// The shortest ttl that can be renewed in time on a machine that is busy.
pub(crate) const SHORTEST_TTL: Duration = Duration::from_millis(100);

/// A column that makes the commit wait for the disk whatever the session's setting is.
pub(crate) const DURABLE: &str = "CASE WHEN pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) \
     ANY (CAST('{off,local,remote_write}' AS pg_catalog.text[])) \
     THEN pg_catalog.set_config('synchronous_commit','on',true) END";

/// How long before the expiry work is stopped: it needs time to end what it has begun.
pub(crate) fn margin(ttl: Duration) -> Duration {
    (ttl / 10).min(Duration::from_secs(1))
}

/// Whether somebody else wrote the row at the same moment, which only stricter levels than READ COMMITTED say.
pub(crate) const fn is_conflict(error: &DieselError) -> bool {
    matches!(
        error,
        DieselError::DatabaseError(DatabaseErrorKind::SerializationFailure, _)
    )
}
