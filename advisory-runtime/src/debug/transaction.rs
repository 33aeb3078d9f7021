//! A check that the transaction at the end of a call is the one that the call began. A setting of
//! the transaction marks it.

use super::{Checks, is_on};
use crate::driver::Driver;
use crate::sql::probe;
use diesel::QueryResult;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) fn next_mark() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Marks the transaction, or savepoint, of this depth. If this fails, the check at the end does not
/// find the mark.
pub(crate) async fn set_mark<D: Driver>(conn: &mut D, checks: &Checks, depth: NonZeroU32) {
    if is_on() {
        drop(conn.execute(&probe::set_mark(depth, checks.mark)).await);
    }
}

pub(crate) async fn check_mark<D: Driver>(
    conn: &mut D,
    checks: &Checks,
    depth: NonZeroU32,
) -> QueryResult<()> {
    if let Some(request) = checks.request.as_deref() {
        let check = probe::check_mark(depth, checks.mark, request);
        conn.execute(&check).await?;
    }
    Ok(())
}

/// Returns whether a transaction is open at the server. If the program ended it by SQL, Diesel
/// still counts one.
pub(crate) async fn is_open<D: Driver>(conn: &mut D) -> bool {
    !is_on() || conn.execute(probe::IN_TRANSACTION).await.is_ok()
}

/// Fails if the body of a session-level lock has left a transaction open that Diesel does not know
/// of.
pub(crate) async fn check_no_transaction<D: Driver>(
    conn: &mut D,
    outer: Option<NonZeroU32>,
) -> QueryResult<()> {
    if is_on() && outer.is_none() {
        conn.execute(&probe::check_session(false)).await?;
    }
    Ok(())
}
