//! Renews a claim, and ends it: completed, failed or released.

use super::Error;
use super::claimed::{Claimed, Ended, Holder, Lasts, Transaction, still_open};
use super::retry::{change, load};
use super::sql::{Changes, How, Statement};
use super::table::{Claim, KeyValue};
use crate::driver::{Queries, depth};
use crate::error::is_connection_lost;
use crate::renewal::{Sent, Unusable, require_no_transaction};
use std::num::NonZeroU32;

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
    let renewed: Vec<Lasts> = load(conn, &statement).await?;
    let Some(Lasts(lasts)) = renewed.first() else {
        return Ok(false);
    };
    if *lasts < job.ttl() {
        job.tenure().shortened(sent, *lasts);
    } else {
        job.tenure().renewed(sent, job.ttl());
    }
    Ok(true)
}

/// Whether the claim is open after the end of a transaction that ended it: that transaction was rolled back.
pub(crate) async fn is_open_on<T: Claim, D: Queries>(
    conn: &mut D,
    job: &Claimed<T>,
) -> Result<bool, Error> {
    let ended = job.ended();
    let statement = Statement::<T, _>::holder((**job).key().bound(), ended.transaction);
    let holder: Vec<Holder> = load(conn, &statement).await?;
    let Some(Holder { by, transaction }) = holder.first() else {
        return Err(Error::Database(still_open()));
    };
    if by.as_deref() == Some(job.locked_by()) {
        return Ok(true);
    }
    match transaction.as_deref() {
        Some("own") => Ok(false),
        // A savepoint can have been rolled back in it, and then another worker can have claimed the row.
        Some("committed") => Ok(ended.is_nested && by.is_some() && job.tenure().is_expired()),
        // Either a savepoint was rolled back, or this connection does not see the row, for which it would have waited.
        Some("in progress") if by.is_none() => Err(Error::Database(still_open())),
        _ => Ok(true),
    }
}

pub(crate) async fn finish<T: Claim, D: Queries>(
    conn: &mut D,
    job: &Claimed<T>,
    how: How<'_>,
    changes: Option<Changes<'_>>,
) -> Result<(), Error> {
    let key = (**job).key().bound();
    let depth = depth(conn);
    let is_inside = !matches!(depth, Ok(None));
    let statement = Statement::<T, _>::finish(job.locked_by(), key, how, changes, is_inside);
    let ending = job.tenure().ending();
    let answer = job.answer();
    let outcome = if is_inside {
        let ended: Result<Vec<Transaction>, Error> = load(conn, &statement).await;
        ended.map(|ended| {
            let ended = ended.first();
            if let Some(Transaction(transaction)) = ended {
                job.set_ended(Ended {
                    transaction: *transaction,
                    is_nested: !matches!(depth, Ok(Some(NonZeroU32::MIN))),
                });
            }
            ended.is_some()
        })
    } else {
        change(conn, &statement).await
    };
    if !matches!(&outcome, Err(Error::Database(error)) if is_connection_lost(error)) {
        answer.arrived();
    }
    if !outcome? {
        return Err(job.lost());
    }
    ending.done(is_inside);
    Ok(())
}
