//! Renews claims, and looks up the outcome of transactions that have ended claims.

use super::Error;
use super::claimed::{Claimed, Lasts, RenewedRow, SettledRow};
use super::conflicts::load;
use super::key::KeyValue;
use super::sql::{ManyKeys, Statement};
use super::table::Claim;
use crate::driver::Queries;
use crate::rows::{Renewed, Sent, Settled, require_no_transaction};

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
pub async fn renew<T, C>(conn: &mut C, job: &Claimed<T>) -> Result<(), Error>
where
    T: Claim,
    C: crate::Connection,
{
    renew_or_lose(conn.pg(), job).await
}

pub(crate) async fn renew_or_lose<T: Claim, D: Queries>(
    conn: &mut D,
    job: &Claimed<T>,
) -> Result<(), Error> {
    let sent = Sent::now();
    match renew_on(conn, job).await? {
        Renewed::For(lasts) => job.hold().renewed(sent, lasts),
        Renewed::Busy => {}
        Renewed::Gone => return Err(job.lost()),
    }
    Ok(())
}

/// Renews the claim if it is held. Returns the time that it lasts.
pub(crate) async fn renew_on<T: Claim, D: Queries>(
    conn: &mut D,
    job: &Claimed<T>,
) -> Result<Renewed, Error> {
    require_renewable(conn, job)?;
    let statement = Statement::<T, _>::renew(job.locked_by(), (**job).key().bound());
    let renewed: Vec<Lasts> = load(conn, &statement).await?;
    let lasts = renewed.first();
    Ok(lasts.map_or(Renewed::Gone, |Lasts(lasts)| Renewed::For(*lasts)))
}

fn require_renewable<T: Claim, D: Queries>(conn: &mut D, job: &Claimed<T>) -> Result<(), Error> {
    let in_transaction = |claim| Error::InTransaction { claim };
    let broken = |claim| Error::BrokenConnection { claim };
    require_no_transaction(conn, || job.name(), in_transaction, broken)
}

/// Renews claims by one statement, without waiting for a locked row. Returns one answer for each,
/// in their order.
pub(crate) async fn renew_all<T: Claim, D: Queries>(
    conn: &mut D,
    jobs: &[&Claimed<T>],
) -> Result<Vec<Renewed>, Error> {
    let Some(first) = jobs.first() else {
        return Ok(Vec::new());
    };
    require_renewable(conn, first)?;
    let rows: Vec<RenewedRow> = load(conn, &ManyKeys::renew(jobs)).await?;
    let mut renewed = vec![Renewed::Gone; jobs.len()];
    for row in rows {
        if let Some(renewed) = renewed.get_mut(row.nth) {
            *renewed = match row.lasts {
                Some(lasts) => Renewed::For(lasts),
                None if row.is_held => Renewed::Busy,
                None => Renewed::Gone,
            };
        }
    }
    Ok(renewed)
}

/// Looks up the outcome of the transactions in which these claims were ended, without waiting for
/// them. Returns one answer for each, in their order.
pub(crate) async fn settled<T: Claim, D: Queries>(
    conn: &mut D,
    jobs: &[&Claimed<T>],
) -> Result<Vec<Settled>, Error> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<SettledRow> = load(conn, &ManyKeys::settled(jobs)).await?;
    let mut settled = vec![Settled::Open; jobs.len()];
    for row in rows {
        if let Some((settled, job)) = settled.get_mut(row.nth).zip(jobs.get(row.nth)) {
            *settled = row.settled(job);
        }
    }
    Ok(settled)
}

impl SettledRow {
    fn settled<T: Claim>(&self, job: &Claimed<T>) -> Settled {
        let is_ours = self.holder.as_deref() == Some(job.locked_by());
        let is_nested = job.hold().inside().is_nested;
        let is_taken_since = is_nested && self.holder.is_some() && job.hold().is_expired();
        match self.transaction.as_deref() {
            Some("in progress") => Settled::Open,
            Some("own") if !is_ours => Settled::Committed,
            // A rollback to a savepoint may have undone the end, and another worker may have
            // claimed the row since.
            Some("committed") if !is_ours && !is_taken_since => Settled::Committed,
            // The transaction was rolled back, as a whole or to a savepoint. If the server does not
            // know it, the row decides.
            _ => Settled::RolledBack,
        }
    }
}
