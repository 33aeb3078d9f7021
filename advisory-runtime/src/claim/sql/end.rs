//! How a claim ends: completed, failed, to be tried again, released, or deleted with its row.

use super::{Changes, Form, NOW, Names, Statement, around, cached, is_last, quoted, set_until};
use crate::claim::table::{
    Claim, KeyColumns, MaybeColumn, MaybeCount, MaybeRunAt, MaybeTime, TimeColumn, ttl,
};
use crate::renewal::grace;
use crate::sql::{IDLE_IN_TRANSACTION, at_most};
use diesel::Column;
use std::time::Duration;

/// The longest pause before another attempt.
const LONGEST_PAUSE: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// How a claim ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How<'a> {
    Complete,
    Fail(&'a str),
    /// After this pause, or after the one that follows from the attempts.
    Retry(&'a str, Option<Duration>),
    Release,
    Delete,
}

/// What the text of a statement that ends a claim depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum EndForm {
    Complete,
    Fail,
    Retry,
    /// With a pause of the caller's.
    RetryAfter,
    Release,
    Delete,
}

impl<'a, T: Claim, K> Statement<'a, T, K> {
    /// Ends a claim. Inside an open transaction it returns the transaction's id, if the claim was held, and bounds its idle time.
    pub(in crate::claim) fn finish(
        locked_by: &'a str,
        key: K,
        how: How<'a>,
        changes: Option<Changes<'a>>,
        is_inside: bool,
    ) -> Self {
        let (by, message, pause) = match how {
            How::Complete if T::CompletedAt::DELETES => (EndForm::Delete, "", None),
            How::Complete => (EndForm::Complete, "", None),
            How::Fail(why) => (EndForm::Fail, why, None),
            How::Retry(why, Some(pause)) => (EndForm::RetryAfter, why, Some(pause)),
            How::Retry(why, None) => (EndForm::Retry, why, None),
            How::Release => (EndForm::Release, "", None),
            How::Delete => (EndForm::Delete, "", None),
        };
        let text = cached::<T>(Form::Ended { by, is_inside }, || {
            let ended = Names::of::<T>().ended::<T>(by);
            if is_inside {
                return ended + &returning_transaction::<T>();
            }
            ended
        });
        let pause = pause.unwrap_or_default().min(LONGEST_PAUSE).as_millis();
        Self {
            message,
            pause: i64::try_from(pause).unwrap_or(i64::MAX),
            changes,
            ..Self::new(text, key, locked_by.into())
        }
    }
}

impl Names {
    /// What a failed attempt sets: the time of the next one, or the time of the failure if there is none.
    fn later<T: Claim>(&self, is_given: bool) -> String {
        let is_last = is_last::<T>();
        let at_last = T::FailedAt::COLUMN.zip(is_last.as_ref());
        let failed = at_last.map(|(column, is_last)| {
            let now = around(column.around, NOW);
            format!(
                ", {} = CASE WHEN {is_last} THEN {now} END",
                quoted(column.name)
            )
        });
        let pause = if is_given {
            "CAST(\0p AS pg_catalog.float8)".to_owned()
        } else {
            backoff::<T>()
        };
        let run = T::RunAt::COLUMN.map(|column| {
            let time = format!(
                "{NOW} OPERATOR(pg_catalog.+) ({pause} OPERATOR(pg_catalog.*) CAST('1 ms' AS pg_catalog.interval))"
            );
            let (time, name) = (around(column.around, &time), quoted(column.name));
            match &is_last {
                Some(is_last) => {
                    let unchanged = self.column(column.name);
                    format!(", {name} = CASE WHEN {is_last} THEN {unchanged} ELSE {time} END")
                }
                None => format!(", {name} = {time}"),
            }
        });
        failed.unwrap_or_default() + &run.unwrap_or_default()
    }

    /// Ends a held claim.
    fn ended<T: Claim>(&self, by: EndForm) -> String {
        let to_now = |column: Option<TimeColumn>| column.map(TimeColumn::set_to_now);
        let ending = match by {
            EndForm::Delete => return self.delete::<T>(),
            EndForm::Complete => to_now(T::CompletedAt::COLUMN),
            EndForm::Fail => to_now(T::FailedAt::COLUMN),
            EndForm::Retry => Some(self.later::<T>(false)),
            EndForm::RetryAfter => Some(self.later::<T>(true)),
            EndForm::Release => Some(uncounted::<T>()),
        };
        let why = match (by, T::ErrorMessage::COLUMN) {
            (EndForm::Fail | EndForm::Retry | EndForm::RetryAfter, Some(column)) => {
                format!(", {} = \0m", quoted(column))
            }
            _ => String::new(),
        };
        let (by, ending) = (quoted(T::LockedBy::NAME), ending.unwrap_or_default());
        let set = set_until::<T>("NULL");
        self.change::<T>(&format!("{set}, {by} = NULL{ending}{why}\0c"))
    }

    /// Deletes the row of a held claim.
    fn delete<T: Claim>(&self) -> String {
        let keys = (0..T::Key::NAMES.len()).map(|nth| format!("advisory_claim.key_{nth}"));
        format!(
            "{}) DELETE FROM {} USING advisory_claim WHERE {}{}",
            self.held::<T>("UPDATE"),
            self.table,
            self.is_key::<T>(&keys.collect::<Vec<_>>().join(",")),
            Self::still_held::<T>()
        )
    }
}

/// The open transaction, and a bound for its idle time: a worker that has stopped in it would keep the row from the others.
fn returning_transaction<T: Claim>() -> String {
    let millis = grace(ttl::<T>()).as_millis();
    let bound = at_most(
        IDLE_IN_TRANSACTION,
        &format!("CAST('{millis} ms' AS pg_catalog.interval)"),
        &format!("CAST({millis} AS pg_catalog.int8)"),
    );
    format!(
        " RETURNING CAST(CAST(pg_catalog.pg_current_xact_id() AS pg_catalog.text) AS pg_catalog.int8), {bound}"
    )
}

/// Takes back the attempt that the claim has counted.
fn uncounted<T: Claim>() -> String {
    let counted = T::Attempts::COLUMN.map(|(column, _)| {
        format!(
            ", {} = GREATEST(advisory_claim.attempts OPERATOR(pg_catalog.-) 1,0)",
            quoted(column)
        )
    });
    counted.unwrap_or_default()
}

/// The pause after a failed attempt in milliseconds: it doubles, and then a random half of it is taken off, so that jobs which failed
/// together do not return together. All operators that are written `OPERATOR(…)` have one precedence.
fn backoff<T: Claim>() -> String {
    let [first, longest] = T::BACKOFF.map(|pause| pause.min(LONGEST_PAUSE).as_millis());
    let doubled = if T::Attempts::COLUMN.is_some() {
        "pg_catalog.power(2,LEAST(GREATEST(advisory_claim.attempts OPERATOR(pg_catalog.-) 1,0),40))"
    } else {
        "1"
    };
    format!(
        "LEAST(CAST({first} AS pg_catalog.float8) OPERATOR(pg_catalog.*) {doubled},CAST({longest} AS pg_catalog.float8)) \
         OPERATOR(pg_catalog.*) (CAST(1 AS pg_catalog.float8) OPERATOR(pg_catalog.-) \
         (pg_catalog.random() OPERATOR(pg_catalog./) CAST(2 AS pg_catalog.float8)))"
    )
}
