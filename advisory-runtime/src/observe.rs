//! Spans, events and metrics of locks.

#[cfg(any(feature = "tracing", feature = "metrics"))]
mod telemetry;

#[cfg(any(feature = "tracing", feature = "metrics"))]
pub(crate) use telemetry::Telemetry;

#[cfg(any(feature = "tracing", feature = "metrics"))]
use crate::error::Error;
#[cfg(any(feature = "tracing", not(feature = "metrics")))]
use std::time::Duration;

#[cfg(any(feature = "tracing", feature = "metrics"))]
pub(crate) trait Observed: std::fmt::Display {
    /// A label: one of few.
    fn word(&self) -> &'static str;

    #[cfg(feature = "tracing")]
    fn severity(&self) -> Severity;

    /// The time that the call waited, if the error says so.
    #[cfg(feature = "tracing")]
    fn waited(&self) -> Option<Duration>;
}

#[cfg(feature = "tracing")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Others hold what was asked for.
    Contention,
    /// The work is done already.
    Done,
    /// The body has ignored an error of its own.
    Ignored,
    /// The lock or lease that the body relied on was lost.
    Lost,
    Other,
}

#[cfg(any(feature = "tracing", feature = "metrics"))]
impl Observed for Error {
    fn word(&self) -> &'static str {
        match self {
            Self::NotAvailable { .. } => "not_available",
            Self::TimedOut { .. } => "timed_out",
            Self::QueueFull { .. } => "queue_full",
            Self::SelfDeadlock { .. } => "self_deadlock",
            Self::TaskDeadlock { .. } => "task_deadlock",
            Self::Cancelled { .. } => "cancelled",
            Self::HoldExceeded { .. } => "hold_exceeded",
            Self::LockLost { .. } => "lost",
            Self::Deadlock { .. } => "deadlock",
            Self::LockTableFull { .. } => "lock_table_full",
            Self::RolledBack { .. } => "rolled_back",
            Self::TransactionEnded { .. } => "transaction_ended",
            Self::CommitUnknown { .. } => "commit_unknown",
            Self::InFailedTransaction { .. } => "in_failed_transaction",
            Self::Pool(_) => "pool",
            Self::BrokenConnection { .. } => "broken_connection",
            Self::Database(_) => "database",
            _ => "misused",
        }
    }

    #[cfg(feature = "tracing")]
    fn severity(&self) -> Severity {
        match self {
            Self::RolledBack { .. } | Self::TransactionEnded { .. } => Severity::Ignored,
            Self::LockLost { .. } => Severity::Lost,
            error if error.is_busy() => Severity::Contention,
            _ => Severity::Other,
        }
    }

    #[cfg(feature = "tracing")]
    fn waited(&self) -> Option<Duration> {
        match self {
            Self::TimedOut { waited, .. } => Some(*waited),
            _ => None,
        }
    }
}

/// Without those features a lock carries no state for them.
#[cfg(not(any(feature = "tracing", feature = "metrics")))]
#[derive(Debug)]
pub(crate) struct Telemetry;

#[cfg(not(any(feature = "tracing", feature = "metrics")))]
#[expect(clippy::unused_self, reason = "nothing observes")]
impl Telemetry {
    pub(crate) const fn new(_: &'static str, _: &'static str, _: &'static str, _: bool) -> Self {
        Self
    }

    pub(crate) const fn record_acquired(&mut self, _: Duration) {}

    pub(crate) const fn record_left(&mut self, _: Duration) {}

    pub(crate) const fn record_refusal<E>(&mut self, _: &E) {}

    pub(crate) const fn record_end<E>(&mut self, _: Result<Outcome, &E>) {}

    pub(crate) const fn forget(self) {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The body returned `Ok`, and that holds.
    Done,
    /// The body returned an error.
    Failed,
}
