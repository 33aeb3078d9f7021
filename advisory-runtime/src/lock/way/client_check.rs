//! The setting by which the server notices the death of a client while a statement runs, and
//! servers that refuse it.

use crate::Error;
use crate::lock::call::{Call, Way};
use std::sync::atomic::{AtomicBool, Ordering};

/// The interval at which the server checks that its client is alive while a statement runs.
pub(super) const CLIENT_CHECK: &str = "client_connection_check_interval";

/// A condition: the server runs on Linux. Not all other systems support the setting.
pub(super) const IS_LINUX: &str = "pg_catalog.version() OPERATOR(pg_catalog.~~) '%linux%'";

/// For the open transaction. A server on Windows refuses it, and one before 15 on any system other
/// than Linux.
pub(super) const SET: &str = "SET LOCAL client_connection_check_interval=1000";

/// True until a server refuses it. Asking each time would cost as much as the lock.
static IS_KNOWN: AtomicBool = AtomicBool::new(true);

pub(super) fn is_known() -> bool {
    IS_KNOWN.load(Ordering::Relaxed)
}

/// Returns whether the error is a server's refusal of [`SET`]. If so, this process no longer sends
/// it. Every translation of such an error has the setting's name.
pub(super) fn record_refusal(call: &Call, error: &Error) -> bool {
    let (Error::Database(source) | Error::Cancelled { source, .. }) = error else {
        return false;
    };
    let is_refused = call.way == Way::Transaction && source.to_string().contains(CLIENT_CHECK);
    if is_refused {
        IS_KNOWN.store(false, Ordering::Relaxed);
    }
    is_refused
}
