//! The server's answers about rows.

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
