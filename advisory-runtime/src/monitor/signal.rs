//! The outcome of a request to cancel a statement or to terminate a session.

use super::backend::PG_MONITOR;

/// The outcome of a request to cancel a backend's statement or to terminate its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signal {
    /// The signal to cancel its statement was sent; or its session was terminated, and its locks are
    /// free.
    Done,
    /// The signal to terminate its session was sent. The session was still alive after five seconds.
    Sent,
    /// The backend has ended, or its process id now belongs to another one. No signal was sent.
    Gone,
    /// This role may not signal the backend. No signal was sent.
    #[non_exhaustive]
    Refused {
        /// The role that is needed: `pg_signal_backend`; `superuser` for a backend of a superuser;
        /// or `pg_monitor` if this role cannot distinguish the backend from a later one with the
        /// same process id.
        needs: &'static str,
    },
}

impl Signal {
    pub(super) fn of(answer: Option<&str>) -> Self {
        let refused = |needs| Self::Refused { needs };
        match answer {
            Some("done") => Self::Done,
            Some("sent") => Self::Sent,
            Some("superuser") => refused("superuser"),
            Some("pg_signal_backend") => refused("pg_signal_backend"),
            Some(PG_MONITOR) => refused(PG_MONITOR),
            _ => Self::Gone,
        }
    }
}
