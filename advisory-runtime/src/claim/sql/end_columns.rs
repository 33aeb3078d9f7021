//! The columns that an end sets.

use super::fragments::{COMPLETED_NOW, FAILED_NOW, Fragments, has_last_attempt};
use crate::claim::optional_column::{MaybeColumn, MaybeCount, MaybeRunAt, MaybeTime};
use crate::claim::table::{Claim, ttl};
use crate::rows::{End, grace};
use crate::sql::{IDLE_IN_TRANSACTION, at_most};
use diesel::pg::Pg;
use diesel::query_builder::QueryFragment as _;
use std::time::Duration;

/// Replaces an end for which the table has no column.
pub(in crate::claim) fn end_of<T: Claim>(end: End) -> End {
    match end {
        End::Complete if T::CompletedAt::DELETES => End::Delete,
        End::Fail if T::FailedAt::COLUMN.is_none() => End::Release,
        end => end,
    }
}

/// The columns of `#[claim(completed = …, failed = …)]` that an end sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::claim) enum TypeSets {
    Completed,
    Failed,
    /// The columns of `failed`, at the last attempt.
    FailedAtLast,
    Nothing,
}

impl TypeSets {
    pub(in crate::claim) const fn at(end: End) -> Self {
        match end {
            End::Complete => Self::Completed,
            End::Fail => Self::Failed,
            End::Retry { .. } => Self::FailedAtLast,
            End::Release | End::Delete => Self::Nothing,
        }
    }

    /// Returns `true` if the row's type sets no columns at this end.
    pub(in crate::claim) fn is_empty<T: Claim>(self) -> bool {
        let is_noop = match self {
            Self::Completed => T::completed().is_noop(&Pg),
            Self::Failed | Self::FailedAtLast => T::failed().is_noop(&Pg),
            Self::Nothing => Ok(true),
        };
        is_noop.unwrap_or(true)
    }
}

/// The way in which an end waits for its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::claim) enum How {
    /// It fails if it had to wait, or if the claim is about to expire.
    AtOnce,
    Waiting,
    /// It waits, in a transaction of the caller.
    Inside,
}

/// The way in which a statement that ends claims treats locked rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::claim) enum Locked {
    Wait,
    Skip,
    /// The statement fails after a short wait, and changes nothing.
    Fail,
}

/// The pause before another attempt, without its value, which is not part of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::claim) enum Pause {
    Backoff,
    Bound,
}

/// The SQL for the values of an end: one bound value, or a column with one for each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source {
    message: &'static str,
    /// In milliseconds.
    pause: &'static str,
}

pub(super) const ONE: Source = Source {
    message: ":message",
    pause: "CAST(:pause AS float8)",
};
/// The columns of `advisory_claim` in the file.
pub(super) const MANY: Source = Source {
    message: "advisory_claim.message",
    pause: "COALESCE(CAST(advisory_claim.pause AS float8), {backoff})",
};

impl Fragments {
    /// Returns the assignments of an end. A retry of the last attempt fails the row instead.
    pub(super) fn ended<T: Claim>(end: End, pause: Pause, source: Source) -> String {
        let mut set = vec![
            "{until_column} = NULL".to_owned(),
            "{by_column} = NULL".to_owned(),
        ];
        let message = T::ErrorMessage::COLUMN.map(|_| {
            let message = source.message;
            format!("{{error_column}} = COALESCE({message}, {{error}})")
        });
        match end {
            End::Delete => {}
            End::Complete if T::CompletedAt::COLUMN.is_some() => set.push(COMPLETED_NOW.to_owned()),
            // The row can be claimed again, and its next attempt is the first.
            End::Complete => {
                set.extend(T::Attempts::COLUMN.map(|_| "{counted_column} = 0".to_owned()));
            }
            End::Fail => {
                set.push(FAILED_NOW.to_owned());
                set.extend(message);
            }
            End::Retry { .. } => {
                let pause = match pause {
                    Pause::Backoff => "{backoff}",
                    Pause::Bound => source.pause,
                };
                let later = format!(
                    "{{run_at_open}}clock_timestamp() + ({pause} * CAST('1 ms' AS interval)){{run_at_close}}"
                );
                let has_last = has_last_attempt::<T>();
                set.extend(has_last.then(|| {
                    let (column, now) = FAILED_NOW.split_once(" = ").unwrap_or_default();
                    format!("{column} = CASE WHEN {{is_spent}} THEN {now} END")
                }));
                set.extend(T::RunAt::COLUMN.map(|_| {
                    if has_last {
                        format!("{{run_at_column}} = CASE WHEN {{is_spent}} THEN {{run_at}} ELSE {later} END")
                    } else {
                        format!("{{run_at_column}} = {later}")
                    }
                }));
                set.extend(message);
            }
            End::Release => set.extend(
                T::Attempts::COLUMN
                    .map(|_| "{counted_column} = GREATEST({attempts} - 1, 0)".to_owned()),
            ),
        }
        set.join(", ")
    }
}

/// Returns the columns that read the id of the open transaction and limit its idle time. Otherwise
/// a worker that stops in it would keep the row locked.
pub(super) fn transaction<T: Claim>() -> String {
    let millis = grace(ttl::<T>()).as_millis();
    let bound = at_most(
        IDLE_IN_TRANSACTION,
        &format!("CAST('{millis} ms' AS pg_catalog.interval)"),
        &format!("CAST({millis} AS pg_catalog.int8)"),
    );
    format!(
        "CAST(CAST(pg_catalog.pg_current_xact_id() AS pg_catalog.text) AS pg_catalog.int8), {bound}"
    )
}

/// Converts a pause to milliseconds, for a bound value.
pub(super) fn millis(pause: Duration) -> i64 {
    let pause = pause.min(super::fragments::LONGEST_PAUSE).as_millis();
    i64::try_from(pause).unwrap_or(i64::MAX)
}
