//! The engine of rows that expire: leases and claims.
//!
//! The only state of a held row is in [`hold`].
//!
//! The [`keeper`] renews all rows of the process on a thread of its own, and ends those whose
//! holder is gone; [`reach`] finds a connection for each of its statements. [`watch`] runs a body
//! and drops it before others can take the row.

mod answer;
mod backoff;
mod end;
mod event;
mod hold;
mod keeper;
mod moment;
#[cfg(feature = "diesel-async")]
mod pooled;
mod reach;
mod watch;

pub(crate) use answer::{Failure, Renewed, RowError, Settled, failure_of};
pub(crate) use backoff::Backoff;
pub use end::End;
pub(crate) use end::{Change, Ended};
pub use event::BodyOutcome;
pub(crate) use event::{Event, Observer, RowEvent, tell};
#[cfg(feature = "diesel-async")]
pub(crate) use hold::Phase;
pub(crate) use hold::{Hold, Inside};
#[cfg(feature = "diesel-async")]
pub(crate) use keeper::Task;
pub(crate) use keeper::{HeldRow, Keeper, Name, Renewal, Rows, number_of_pool};
pub(crate) use moment::Moment;
#[cfg(feature = "diesel-async")]
pub(crate) use pooled::{Borrowed, Pooled};
pub(crate) use reach::{
    Answering, AnyStep, Reach, Step, Times, connection_lost, may_stick, no_connection,
};
#[cfg(feature = "postgres")]
pub(crate) use reach::{first_answer, unanswered};
pub(crate) use watch::{unless, watch};

use crate::driver::{Driver, depth};
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

/// How long work may go on after the statement that ended the row's hold in a transaction.
pub(crate) fn grace(ttl: Duration) -> Duration {
    ttl.max(UNANSWERED)
}

/// Why work was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The row was lost, or is about to expire.
    Lost,
    /// The statement that ends the hold, or the transaction that it is in, was not answered in
    /// time.
    Unanswered,
    /// The work reached its limit.
    Exceeded,
}

impl Inside {
    /// The open transaction, of this number.
    pub(crate) fn of<D: Driver>(conn: &mut D, transaction: i64) -> Self {
        Self {
            transaction,
            is_nested: !matches!(depth(conn), Ok(Some(NonZeroU32::MIN))),
        }
    }
}

/// Refuses a transaction, which could undo a step, unless it is a test's; and a closed connection.
pub(crate) fn require_no_transaction<D: Driver, E>(
    conn: &mut D,
    in_transaction: impl FnOnce() -> E,
    is_closed: impl FnOnce() -> E,
) -> Result<(), E> {
    match depth(conn) {
        Ok(None | Some(NonZeroU32::MIN)) if !conn.is_broken() => Ok(()),
        Ok(Some(_)) => Err(in_transaction()),
        _ => Err(is_closed()),
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
