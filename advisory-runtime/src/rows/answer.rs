//! The server's answers about rows, and the kinds of failure, which decide about the next try.

use crate::error::{ProductError, is_connection_lost, may_pass};
use diesel::result::Error as DieselError;
use std::time::Duration;

/// The server's answer about a row that this process wants to renew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// It is held for this long from when the statement began, at most.
    For(Duration),
    /// Another transaction has the row locked. It is still held by the last commit.
    Busy,
    /// It is no longer held: it has expired, has ended, or somebody else has it.
    Gone,
}

/// The server's answer about the transaction in which a row was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    Open,
    Committed,
    RolledBack,
}

/// Why a statement that ends or renews a row failed, as far as the next try is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
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
pub trait RowError: ProductError + Into<DieselError> {
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
