//! Whether the transaction at the end of a call is the one at its start: a setting of the transaction marks it.

use super::{Call, is_on};
use crate::driver::Driver;
use crate::sql::probe;
use diesel::QueryResult;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) fn next_token() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Marks the transaction, or savepoint, of this depth. An error shows at its end, where the mark is not found.
pub(crate) async fn set_token<D: Driver>(conn: &mut D, call: &Call, depth: NonZeroU32) {
    if is_on() {
        drop(conn.execute(&probe::set_token(depth, call.token)).await);
    }
}

/// Fails where it is not marked by this call.
pub(crate) async fn check_token<D: Driver>(
    conn: &mut D,
    call: &Call,
    depth: NonZeroU32,
) -> QueryResult<()> {
    if is_on() {
        conn.execute(&probe::check_token(depth, call.token)).await?;
    }
    Ok(())
}

/// Fails where a transaction is open that Diesel does not know of, behind the body of a session-level lock.
pub(crate) async fn check_no_transaction<D: Driver>(
    conn: &mut D,
    outer: Option<NonZeroU32>,
) -> QueryResult<()> {
    if is_on() && outer.is_none() {
        conn.execute(&probe::check_session(false)).await?;
    }
    Ok(())
}
