//! The kinds of failure of a statement about a row, which decide about the next try.

use crate::error::{ProductError, is_connection_lost, may_pass};
use diesel::result::Error as DieselError;

/// Why a statement that ends or renews a row failed, as far as the next try is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// There was no connection, or the transaction that ended the row is open: nothing was changed.
    Unreachable,
    /// The statement may have been executed.
    Unanswered,
    /// The server refused it, for a reason that can pass.
    Refused,
    /// It is refused each time.
    Final,
}

/// The error of leases and of claims.
pub(crate) trait RowError: ProductError + Into<DieselError> {
    fn failure(&self) -> Failure;
}

/// The classification of an error that is nothing else than Diesel's.
pub(crate) fn failure_of(error: &DieselError) -> Failure {
    if is_connection_lost(error) {
        Failure::Unanswered
    } else if may_pass(error) {
        Failure::Refused
    } else {
        Failure::Final
    }
}
