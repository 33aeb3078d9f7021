//! Renews a claim, and ends it: completed, failed or released.

use super::Error;
use super::claimed::{Claimed, Holder};
use super::retry::{change, load};
use super::sql::{Changes, How, Statement};
use super::table::{Claim, KeyValue};
use crate::driver::{Queries, depth};
use crate::error::is_connection_lost;
use crate::renewal::{Sent, Unusable, require_no_transaction};

pub(crate) async fn renew_or_lose<T: Claim, D: Queries>(
    conn: &mut D,
    job: &Claimed<T>,
) -> Result<(), Error> {
    if renew_on(conn, job).await? {
        return Ok(());
    }
    Err(job.lost())
}

/// Whether the claim is still held.
pub(crate) async fn renew_on<T: Claim, D: Queries>(
    conn: &mut D,
    job: &Claimed<T>,
) -> Result<bool, Error> {
    require_no_transaction(conn).map_err(|unusable| {
        let claim = job.name();
        match unusable {
            Unusable::InTransaction => Error::InTransaction { claim },
            Unusable::Broken => Error::BrokenConnection { claim },
        }
    })?;
    let statement = Statement::<T, _>::renew(job.locked_by(), (**job).key().bound());
    let sent = Sent::now();
    let is_held = change(conn, &statement).await?;
    if is_held {
        job.tenure().renewed(sent, job.ttl());
    }
    Ok(is_held)
}

/// Whether the claim is open after the end of a transaction that ended it: that transaction was rolled back.
pub(crate) async fn is_open_on<T: Claim, D: Queries>(
    conn: &mut D,
    job: &Claimed<T>,
) -> Result<bool, Error> {
    let statement = Statement::<T, _>::holder((**job).key().bound());
    let holder: Vec<Holder> = load(conn, &statement).await?;
    Ok(holder.iter().any(|Holder(by)| {
        // Before the expiry another worker could claim the row only after a commit.
        by == job.locked_by() || job.tenure().is_expired()
    }))
}

pub(crate) async fn finish<T: Claim, D: Queries>(
    conn: &mut D,
    job: &Claimed<T>,
    how: How<'_>,
    changes: Option<Changes<'_>>,
) -> Result<(), Error> {
    let key = (**job).key().bound();
    let statement = Statement::<T, _>::finish(job.locked_by(), key, how, changes);
    let is_inside = !matches!(depth(conn), Ok(None));
    let ending = job.tenure().ending();
    let answer = job.answer();
    let outcome = change(conn, &statement).await;
    if !matches!(&outcome, Err(Error::Database(error)) if is_connection_lost(error)) {
        answer.arrived();
    }
    if !outcome? {
        return Err(job.lost());
    }
    ending.done(is_inside);
    Ok(())
}
