//! The errors of leases, as spans and metrics show them.

use super::Error;
use crate::observe::Observed;
#[cfg(feature = "tracing")]
use crate::observe::Severity;
#[cfg(feature = "tracing")]
use std::time::Duration;

impl Observed for Error {
    fn word(&self) -> &'static str {
        match self {
            Self::Held { waited, .. } if waited.is_zero() => "not_available",
            Self::Held { .. } => "timed_out",
            Self::Done { .. } => "already_done",
            Self::SelfDeadlock { .. } => "self_deadlock",
            Self::HoldExceeded { .. } => "hold_exceeded",
            Self::Lost { .. } => "lost",
            Self::RolledBack { .. } => "rolled_back",
            Self::CommitUnknown { .. } => "commit_unknown",
            Self::Pool(_) => "pool",
            Self::BrokenConnection { .. } => "broken_connection",
            Self::Database(_) => "database",
            _ => "misused",
        }
    }

    #[cfg(feature = "tracing")]
    fn severity(&self) -> Severity {
        match self {
            Self::Held { .. } => Severity::Contention,
            Self::Done { .. } => Severity::Done,
            Self::RolledBack { .. } => Severity::Ignored,
            Self::Lost { .. } => Severity::Lost,
            _ => Severity::Other,
        }
    }

    #[cfg(feature = "tracing")]
    fn waited(&self) -> Option<Duration> {
        match self {
            Self::Held { waited, .. } if !waited.is_zero() => Some(*waited),
            _ => None,
        }
    }
}
