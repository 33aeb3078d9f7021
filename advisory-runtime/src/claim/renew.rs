//! Renews one claim.

use super::Error;
use super::claimed::{Claimed, duration};
use super::conflicts::load;
use super::sql::{Form, Statement};
use super::table::Claim;
use crate::driver::Queries;
use crate::rows::{Moment, require_no_transaction};
use diesel::data_types::PgInterval;
use diesel::sql_types::{Interval, Nullable};
use std::time::Duration;

/// Renews the claim: it lasts for its whole ttl from now, or for less if a trigger or the column's
/// precision shortens it.
///
/// [`renew_while`](super::renew_while) and [`run`](super::run) renew it in the background.
///
/// # Locking
///
/// `UPDATE … SET locked_until = clock_timestamp() + ttl`, if the claim is held and has not expired.
/// It waits for a row that an open transaction has locked, and the claim can expire during the
/// wait: keep transactions that change jobs shorter than the ttl.
///
/// # Errors
///
/// [`Error::InTransaction`] inside one of Diesel's transactions, because a rollback would undo the
/// renewal, and [`Error::BrokenConnection`]: nothing was sent. [`Error::Lost`] if the claim has
/// expired or was finished. After [`Error::Database`], the claim may have been renewed.
///
/// # Cancel safety
///
/// Cancel safe: the claim may be renewed, and [`Claimed::deadline`] stays as it was. The claim then
/// expires later, unless a trigger has shortened it.
///
/// # Examples
///
/// ```no_run
#[doc = example_of_claims!()]
/// for part in 0..10 {
///     println!("job {}: part {part}", job.id);
///     claim::renew(conn, job).await?; // an error if another worker has the row by now
/// }
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "diesel-async")]
pub async fn renew<T: Claim, C: crate::Connection>(
    conn: &mut C,
    job: &Claimed<T>,
) -> Result<(), Error> {
    renew_or_lose(conn.pg(), job).await
}

pub(crate) async fn renew_or_lose<T: Claim, D: Queries>(
    conn: &mut D,
    job: &Claimed<T>,
) -> Result<(), Error> {
    let sent = Moment::now();
    require_renewable(conn, job)?;
    let statement = Statement::<Nullable<Interval>>::of::<T>(Form::Renew);
    let renewed = load(conn, &statement.about(job)).await;
    let renewed: Vec<Option<PgInterval>> = renewed?;
    let lasts = renewed.first().ok_or_else(|| job.lost())?;
    // A trigger may have set `locked_until` to NULL.
    let lasts = lasts.map_or(Duration::ZERO, duration);
    job.hold().renewed(sent, lasts);
    Ok(())
}

pub(super) fn require_renewable<T: Claim, D: Queries>(
    conn: &mut D,
    job: &Claimed<T>,
) -> Result<(), Error> {
    let in_transaction = || Error::InTransaction { claim: job.name() };
    let is_closed = || Error::BrokenConnection { claim: job.name() };
    require_no_transaction(conn, in_transaction, is_closed)
}
