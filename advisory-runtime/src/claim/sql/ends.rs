//! The statements that end claims. Their values are arrays, so the text does not depend on the
//! number of claims, only on the kinds of ends.

use super::Fragment;
use super::form::{Form, Locked};
use super::fragments::{COMPLETED_NOW, FAILED_NOW, Fragments};
use super::statement::{Statement, Value};
use crate::claim::Claimed;
use crate::claim::optional_column::MaybeTime;
use crate::claim::table::{Claim, LONGEST};
use crate::rows::{Change, End};
use crate::sql::put;
use diesel::sql_types::BigInt;

/// Replaces an end for which the table has no column.
pub(in crate::claim) fn end_of<T: Claim>(end: End) -> End {
    match end {
        End::Complete if T::CompletedAt::DELETES => End::Delete,
        End::Fail if T::FailedAt::COLUMN.is_none() => End::Release,
        End::Complete | End::Fail | End::Retry { .. } | End::Release | End::Delete => end,
    }
}

/// A claim to end, and the message of a failure; `None` leaves the row's message as it is.
pub(in crate::claim) type OneEnd<'a, T> = (&'a Claimed<T>, End, Option<&'a str>);

/// Ends claims. Returns the numbers of those that were held, from 1. In a transaction of the caller
/// it returns the transaction's id instead, and limits its idle time.
pub(in crate::claim) fn end<'a, T: Claim>(
    ends: &[OneEnd<'a, T>],
    changes: &'a [Fragment<'a>],
    locked: Locked,
) -> Statement<'a, BigInt> {
    let possible = ends.iter().map(|(_, end, _)| end_of::<T>(*end));
    let bits = possible.clone().map(|end| 1 << kind(end));
    let kinds = bits.fold(0, |kinds, bit| kinds | bit);
    let has_changes = !changes.is_empty();
    let form = Form::End {
        kinds,
        locked,
        has_changes,
    };
    let kinds = possible.clone().map(|end| Some(kind(end).into()));
    let pauses = possible.map(|end| match end.change() {
        Change::SetMessage { pause } => pause.map(|pause| {
            let millis = pause.min(LONGEST).as_millis();
            i64::try_from(millis).unwrap_or(i64::MAX)
        }),
        Change::Set | Change::Delete => None,
    });
    let jobs = || ends.iter().map(|(job, ..)| *job);
    let messages = ends.iter().map(|(.., message)| *message).collect();
    Statement::of::<T>(form)
        .keys(jobs().map(|job| &**job))
        .with("holders", Value::holders(jobs()))
        .with("ends", Value::Numbers(kinds.collect()))
        .with("messages", Value::Texts(messages))
        .with("pauses", Value::Numbers(pauses.collect()))
        .with("completed", Value::Changes(Box::new(T::completed())))
        .with("failed", Value::Changes(Box::new(T::failed())))
        .changes(changes)
}

/// Each kind of end, with the name of its part of the statement.
const ENDS: [(End, &str); 5] = [
    (End::Complete, "completed"),
    (End::Fail, "failed"),
    (End::Retry { after: None }, "retried"),
    (End::Release, "released"),
    (End::Delete, "deleted"),
];

/// Returns the index of an end in `ENDS`.
const fn kind(end: End) -> u8 {
    match end {
        End::Complete => 0,
        End::Fail => 1,
        End::Retry { .. } => 2,
        End::Release => 3,
        End::Delete => 4,
    }
}

fn ends_of(kinds: u8) -> impl Iterator<Item = (End, &'static str)> {
    debug_assert!(
        kinds >> ENDS.len() == 0,
        "each end has a part of the statement"
    );
    let ends = ENDS.into_iter();
    ends.filter(move |(end, _)| kinds & 1 << kind(*end) != 0)
}

/// Returns the arrays that ends of these kinds need, and their columns. Unneeded ones are left out,
/// because each costs the server as much as the keys.
fn values_of(kinds: u8) -> [&'static str; 2] {
    let have_message = ends_of(kinds).any(|(end, _)| end.has_message());
    match (kinds.is_power_of_two(), have_message) {
        (true, false) => ["", ""],
        (true, true) => [", unnest(:messages), unnest(:pauses)", ", message, pause"],
        (false, false) => [", unnest(:ends)", ", kind"],
        (false, true) => [
            ", unnest(:ends), unnest(:messages), unnest(:pauses)",
            ", kind, message, pause",
        ],
    }
}

/// The claim is held, and lasts for longer than the statement may take.
const IS_HELD: &str = " AND {locked_by} = {claim_holder} AND {locked_until} > ({clock} + CAST('{prompt} ms' AS interval)) \
     AND (SELECT {make_durable} AND set_config('lock_timeout', '{lock_timeout}ms', true) IS NOT NULL)";

const LATER: &str = "{run_at_open}clock_timestamp() + (COALESCE(CAST(advisory_claim.pause AS float8), {backoff}) \
     * CAST('1 ms' AS interval)){run_at_close}";
const MESSAGE: &str = "{error_column} = COALESCE(advisory_claim.message, {error})";

impl Fragments<'_> {
    /// Adds a statement for each kind of end, and the answer. The caller's changes replace those of
    /// the row's type, except when a retry fails the row at the last attempt.
    pub(super) fn add_ends(&mut self, kinds: u8, locked: Locked, has_changes: bool) {
        // The stronger lock conflicts with open transactions that refer to a row to delete.
        let deletes = ends_of(kinds).any(|(end, _)| matches!(end.change(), Change::Delete));
        self.add("lock", if deletes { "UPDATE" } else { "NO KEY UPDATE" });
        let [values, columns] = values_of(kinds);
        self.add("values", values);
        self.add("value_columns", columns);
        let skip = match locked {
            Locked::Skip => " SKIP LOCKED",
            _ => "",
        };
        self.add("skip_locked", skip);
        let answer = match locked {
            Locked::WaitInside => "{transaction}",
            _ => "advisory_claim.nth",
        };
        self.add("answer", answer);
        let [is_held, returning] = if locked == Locked::Fail {
            let most = self.row.ttl.as_millis() / 4;
            self.add("prompt", most.to_string());
            self.add("lock_timeout", most.clamp(1, 100).to_string());
            let returning = " RETURNING advisory_claim.nth + {fail_if_waited} AS nth";
            [IS_HELD, returning]
        } else {
            ["", ""]
        };
        let (mut statements, mut answers) = (String::new(), Vec::new());
        let mut statement = |name: &str, change: &str, rows: &str| {
            put!(
                statements,
                ", advisory_{name} AS ({change} advisory_claim \
                 WHERE ({{key}}) = ({{claim_key}}){rows}{is_held}{returning})"
            );
            answers.push(format!("SELECT nth FROM advisory_{name}"));
        };
        let update = |set: &str| format!("UPDATE {{table}} SET {set} FROM");
        for (end, name) in ends_of(kinds) {
            let mut rows = if kinds.is_power_of_two() {
                String::new()
            } else {
                format!(" AND advisory_claim.kind = {}", kind(end))
            };
            let changes = match end {
                End::Delete => {
                    statement(name, "DELETE FROM {table} USING", &rows);
                    continue;
                }
                End::Retry { .. } if self.row.has_last_attempt() && self.row.sets_failed => {
                    let failed = self.ended(End::Fail) + ":failed";
                    let is_last = format!("{rows} AND COALESCE({{is_spent}}, false)");
                    statement("last", &update(&failed), &is_last);
                    rows.push_str(" AND NOT COALESCE({is_spent}, false)");
                    ":changes"
                }
                _ if has_changes => ":changes",
                End::Complete => ":completed",
                End::Fail => ":failed",
                End::Retry { .. } | End::Release => "",
            };
            statement(name, &update(&(self.ended(end) + changes)), &rows);
        }
        self.add("later", LATER);
        self.add("statements", statements);
        self.add("ended", answers.join(" UNION ALL "));
    }

    /// Returns the assignments of an end. A retry of the last attempt fails the row instead.
    pub(super) fn ended(&self, end: End) -> String {
        let row = self.row;
        let mut set = vec!["{until_column} = NULL", "{by_column} = NULL"];
        let counted = row.attempts;
        match end {
            End::Delete => {}
            End::Complete if row.completed.is_some() => set.push(COMPLETED_NOW),
            // The row can be claimed again, and its next attempt is the first.
            End::Complete => set.extend(counted.map(|_| "{counted_column} = 0")),
            End::Fail => set.push(FAILED_NOW),
            End::Retry { .. } if row.has_last_attempt() => {
                set.push(
                    "{failed_column} = CASE WHEN {is_spent} THEN \
                     {failed_open}clock_timestamp(){failed_close} END",
                );
                let later = "{run_at_column} = CASE WHEN {is_spent} THEN {run_at} ELSE {later} END";
                set.extend(row.run_at.map(|_| later));
            }
            End::Retry { .. } => {
                set.extend(row.run_at.map(|_| "{run_at_column} = {later}"));
            }
            End::Release => {
                set.extend(counted.map(|_| "{counted_column} = GREATEST({attempts} - 1, 0)"));
            }
        }
        if end.has_message() {
            set.extend(row.error.map(|_| MESSAGE));
        }
        set.join(", ")
    }
}
