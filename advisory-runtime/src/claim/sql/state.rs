//! The state of a row, and how many rows are in each.

use super::{NOW, Names, around, now_of_until, table};
use crate::claim::table::{Claim, MaybeCount, MaybeRunAt, MaybeTime};

/// How many rows of the table are in each state.
pub(in crate::claim) fn counts<T: Claim>() -> String {
    format!(
        "SELECT state, pg_catalog.count(*) FROM (SELECT {} AS state FROM {}) AS advisory_claim GROUP BY state",
        state::<T>(),
        table::<T>()
    )
}

/// The name of a row's state.
pub(in crate::claim) fn state<T: Claim>() -> String {
    let names = Names::of::<T>();
    let terminal = [
        (T::CompletedAt::COLUMN, "completed"),
        (T::FailedAt::COLUMN, "failed"),
    ];
    let terminal = terminal.into_iter().filter_map(|(column, state)| {
        let column = names.column(column?.name);
        Some(format!(" WHEN {column} IS NOT NULL THEN '{state}'"))
    });
    let waiting = T::RunAt::COLUMN.map(|column| {
        let (run_at, now) = (names.column(column.name), around(column.around, NOW));
        let is_later = format!("{run_at} OPERATOR(pg_catalog.>) {now}");
        let is_retried = T::Attempts::COLUMN.map(|(attempts, _)| {
            let attempts = names.column(attempts);
            format!(" WHEN {is_later} AND {attempts} OPERATOR(pg_catalog.>) 0 THEN 'retrying'")
        });
        is_retried.unwrap_or_default() + &format!(" WHEN {is_later} THEN 'scheduled'")
    });
    format!(
        "CASE{} WHEN {until} OPERATOR(pg_catalog.>) {now} THEN 'running' WHEN {until} IS NOT NULL THEN 'expired'{} ELSE 'available' END",
        terminal.collect::<String>(),
        waiting.unwrap_or_default(),
        until = names.until,
        now = now_of_until::<T>()
    )
}
