//! The setting by which the server notices the death of a client while a statement runs, and servers that refuse it.

use crate::Error;
use crate::driver::Driver;
use crate::lock::call::Call;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often the server checks that its client is alive while a statement runs.
pub(super) const CLIENT_CHECK: &str = "client_connection_check_interval";

/// For the open transaction. A server on Windows refuses it, and one before 15 on any system other than Linux.
pub(super) const SET: &str = "SET LOCAL client_connection_check_interval=1000";

/// The same for nothing but itself: to see whether the server refuses it.
const TRY: &str = "SELECT pg_catalog.set_config('client_connection_check_interval','1000',true)";

/// Whether no server has refused it. To ask each time would cost more than the lock.
static IS_KNOWN: AtomicBool = AtomicBool::new(true);

pub(super) fn is_known() -> bool {
    IS_KNOWN.load(Ordering::Relaxed)
}

/// Whether this error may be the refusal of [`SET`], which was sent, and the server refuses it. From then on this process does not send
/// it any more.
pub(super) async fn is_refused<D: Driver>(conn: &mut D, call: &Call, error: &Error) -> bool {
    let was_sent = call.request.max_hold.is_some() && call.outer.is_none() && is_known();
    if !was_sent || !matches!(error, Error::Database(_) | Error::Cancelled { .. }) {
        return false;
    }
    let is_refused = !conn.is_broken() && conn.execute(TRY).await.is_err() && !conn.is_broken();
    if is_refused {
        IS_KNOWN.store(false, Ordering::Relaxed);
    }
    is_refused
}
