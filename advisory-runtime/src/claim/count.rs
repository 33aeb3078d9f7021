//! Counts the rows of a table by their state.

use super::Error;
use super::sql::{Form, Statement};
use super::state::State;
use super::table::Claim;
use crate::driver::Queries;
use diesel::sql_types::{BigInt, Text};

/// The number of rows of a table in each state, by the server's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Rows that can be claimed now.
    pub available: u64,
    /// Rows that were never claimed, with a `run_at` in the future.
    pub scheduled: u64,
    /// Rows with a failed attempt and a `run_at` in the future.
    pub retrying: u64,
    /// Rows with a claim that has not expired.
    pub running: u64,
    /// Rows with a claim that has expired.
    pub expired: u64,
    /// Rows that were completed for good.
    pub completed: u64,
    /// Rows that failed for good.
    pub failed: u64,
}

/// Counts the rows of a table by their state.
///
/// It reads the whole table, so call it for a dashboard, not for each claim.
///
/// # Errors
///
/// [`Error::Database`].
///
/// # Cancel safety
///
/// Cancel safe: it only reads.
///
/// # Examples
///
/// ```no_run
#[doc = example_of_claims!()]
/// let Counts { available, failed, .. } = claim::counts::<Job, _>(conn).await?;
/// println!("{available} wait, {failed} have failed");
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "diesel-async")]
pub async fn counts<T: Claim, C: crate::Connection>(conn: &mut C) -> Result<Counts, Error> {
    counts_on::<T, _>(conn.pg()).await
}

pub(crate) async fn counts_on<T: Claim, D: Queries>(conn: &mut D) -> Result<Counts, Error> {
    let statement = Statement::<(Text, BigInt)>::of::<T>(Form::Counts);
    let groups = conn.load(&statement).await;
    let groups: Vec<(State, i64)> = groups.map_err(Error::Database)?;
    let mut counts = Counts::default();
    for (state, count) in groups {
        *match state {
            State::Available => &mut counts.available,
            State::Scheduled => &mut counts.scheduled,
            State::Retrying => &mut counts.retrying,
            State::Running => &mut counts.running,
            State::Expired => &mut counts.expired,
            State::Completed => &mut counts.completed,
            State::Failed => &mut counts.failed,
        } = count.unsigned_abs();
    }
    Ok(counts)
}
