//! The state of a row, and the count of rows in each state.

use super::fragments::Fragments;
use super::row_type::RowType;

/// Returns the query that counts the rows of the table in each state.
pub(in crate::claim) fn counts(row: &RowType) -> String {
    let mut fragments = Fragments::of(row);
    fragments.add("state", state(row));
    fragments.fill(
        "SELECT state, count(*) FROM (SELECT {state} AS state FROM {table}) AS advisory_claim GROUP BY state",
    )
}

/// Returns the SQL for the name of a row's state.
pub(in crate::claim) fn state(row: &RowType) -> String {
    const IS_LATER: &str = "{run_at} > {run_at_open}clock_timestamp(){run_at_close}";
    let has_run_at = row.run_at.is_some();
    let mut cases = Vec::new();
    let mut case = |is_wanted: bool, condition: &str, state: &str| {
        if is_wanted {
            cases.push(format!("WHEN {condition} THEN '{state}'"));
        }
    };
    case(
        row.completed.is_some(),
        "{completed} IS NOT NULL",
        "completed",
    );
    case(row.failed.is_some(), "{failed} IS NOT NULL", "failed");
    case(true, "{until} > {clock}", "running");
    case(true, "{until} IS NOT NULL", "expired");
    let is_retried = format!("{IS_LATER} AND {{counted}} > 0");
    case(
        has_run_at && row.attempts.is_some(),
        &is_retried,
        "retrying",
    );
    case(has_run_at, IS_LATER, "scheduled");
    Fragments::of(row).fill(&format!("CASE {} ELSE 'available' END", cases.join(" ")))
}
