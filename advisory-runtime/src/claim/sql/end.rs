//! How a claim ends: completed, failed, to be tried again, released, or deleted with its row.

use super::{Changes, Form, NOW, Names, Statement, around, cached, is_last, quoted, set_until};
use crate::claim::table::{
    Claim, KeyColumns, MaybeColumn, MaybeCount, MaybeRunAt, MaybeTime, TimeColumn,
};
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

impl<'a, T: Claim, K> Statement<'a, T, K> {
    /// Ends a claim.
    pub(in crate::claim) fn finish(
        locked_by: &'a str,
        key: K,
        how: How<'a>,
        changes: Option<Changes<'a>>,
    ) -> Self {
        let (form, message, pause) = match how {
            How::Complete if T::CompletedAt::DELETES => (Form::Delete, "", None),
            How::Complete => (Form::Complete, "", None),
            How::Fail(why) => (Form::Fail, why, None),
            How::Retry(why, Some(pause)) => (Form::RetryAfter, why, Some(pause)),
            How::Retry(why, None) => (Form::Retry, why, None),
            How::Release => (Form::Release, "", None),
            How::Delete => (Form::Delete, "", None),
        };
        let text = cached::<T>(form, || Names::of::<T>().ended::<T>(form));
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
    fn ended<T: Claim>(&self, form: Form) -> String {
        let to_now = |column: Option<TimeColumn>| column.map(TimeColumn::set_to_now);
        let ending = match form {
            Form::Delete => return self.delete::<T>(),
            Form::Complete => to_now(T::CompletedAt::COLUMN),
            Form::Fail => to_now(T::FailedAt::COLUMN),
            Form::Retry | Form::RetryAfter => Some(self.later::<T>(form == Form::RetryAfter)),
            _ => Some(uncounted::<T>()),
        };
        let why = match (form, T::ErrorMessage::COLUMN) {
            (Form::Fail | Form::Retry | Form::RetryAfter, Some(column)) => {
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
