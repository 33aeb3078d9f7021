//! Keeps a row with an expiry held while work runs under it, for leases and claims.
//!
//! [`tenure`] knows how long the row is held, [`task`] renews it, [`watch`] stops the work before the expiry, and [`round_trip`] finds
//! a connection for each statement.

mod boot_clock;
mod expiry;
#[cfg(feature = "diesel-async")]
mod round_trip;
#[cfg(feature = "diesel-async")]
mod task;
mod tenure;
#[cfg(feature = "diesel-async")]
mod watch;

pub(crate) use expiry::{Expiry, Sent};
pub(crate) use tenure::{End, Tenure};
#[cfg(feature = "diesel-async")]
pub(crate) use {
    round_trip::{Borrowed, DedicatedAnswer, RenewalStep, round_trip},
    task::{Renew, renew_until_lost},
    watch::watch,
};

use crate::driver::{Driver, depth};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use std::num::NonZeroU32;
use std::time::Duration;

/// How long a grant lasts by default.
pub(crate) const DEFAULT_TTL: Duration = Duration::from_secs(60);
/// The shortest ttl that a busy machine can renew in time.
pub(crate) const SHORTEST_TTL: Duration = Duration::from_millis(100);

/// Without an answer after this time, the server counts as unreachable.
pub(crate) const UNANSWERED: Duration = Duration::from_secs(10);

/// How long before the expiry work is stopped.
pub(crate) fn margin(ttl: Duration) -> Duration {
    (ttl / 10).min(Duration::from_secs(1))
}

/// The pause after a failed renewal, which allows several tries before the expiry.
pub(crate) fn pause(every: Duration) -> Duration {
    (every / 4).clamp(Duration::from_millis(5), Duration::from_secs(1))
}

/// How long work may go on after the statement that ended the row's tenure in a transaction.
pub(crate) fn grace(ttl: Duration) -> Duration {
    ttl.max(UNANSWERED)
}

/// Whether another session wrote the row at the same moment, which is an error at levels stricter than READ COMMITTED.
pub(crate) const fn is_conflict(error: &DieselError) -> bool {
    matches!(
        error,
        DieselError::DatabaseError(DatabaseErrorKind::SerializationFailure, _)
    )
}

/// Why work was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The row was lost, or is about to expire.
    Lost,
    /// The statement that ends the tenure, or the transaction that it is in, was not answered in time.
    Unanswered,
    /// The work reached its limit.
    Exceeded,
}

/// Why a step is not sent on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// A transaction is open, which could undo the step.
    InTransaction,
    /// The connection is closed.
    Broken,
}

/// Refuses a transaction, which could undo the step, unless it is a test's.
pub(crate) fn require_no_transaction<D: Driver>(conn: &mut D) -> Result<(), Unusable> {
    match depth(conn) {
        Ok(None | Some(NonZeroU32::MIN)) if !conn.is_broken() => Ok(()),
        Ok(Some(_)) => Err(Unusable::InTransaction),
        _ => Err(Unusable::Broken),
    }
}

#[cfg(test)]
mod tests {
    use super::margin;
    use std::time::Duration;

    #[test]
    fn the_margin_is_a_tenth_of_the_ttl_and_at_most_a_second() {
        let millis = Duration::from_millis;
        let margins = [100, 2_000, 60_000].map(|ttl| margin(millis(ttl)));
        assert_eq!(margins, [millis(10), millis(200), millis(1_000)]);
    }
}
