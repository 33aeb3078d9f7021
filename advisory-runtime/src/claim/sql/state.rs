//! The state of a row.

use super::fragments::Fragments;
use crate::claim::optional_column::{MaybeCount, MaybeRunAt, MaybeTime};
use crate::claim::table::Claim;

const IS_LATER: &str = "{run_at} > {run_at_open}clock_timestamp(){run_at_close}";

/// Returns the SQL for the name of a row's state.
pub(in crate::claim) fn state<T: Claim>() -> String {
    let has_run_at = T::RunAt::COLUMN.is_some();
    let is_counted = has_run_at && T::Attempts::COLUMN.is_some();
    let (completes, fails) = (
        T::CompletedAt::COLUMN.is_some(),
        T::FailedAt::COLUMN.is_some(),
    );
    let cases = [
        (completes, "{completed} IS NOT NULL", "completed"),
        (fails, "{failed} IS NOT NULL", "failed"),
        (true, "{until} > {clock}", "running"),
        (true, "{until} IS NOT NULL", "expired"),
        (is_counted, "{is_later} AND {counted} > 0", "retrying"),
        (has_run_at, "{is_later}", "scheduled"),
    ];
    let cases = cases.into_iter().filter(|(is_possible, ..)| *is_possible);
    let cases = cases.map(|(_, condition, state)| format!("WHEN {condition} THEN '{state}'"));
    let cases = cases.collect::<Vec<_>>().join(" ");
    let mut fragments = Fragments::of::<T>();
    fragments.add("is_later", IS_LATER);
    fragments.fill(&format!("CASE {cases} ELSE 'available' END"))
}
