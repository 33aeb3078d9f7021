//! How long a request waits.

use std::time::Duration;

/// How long to wait for a lock that another session holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// As long as the session's own `lock_timeout` allows, which counts for each key. With [`Request::poll`](crate::Request::poll), forever.
    #[default]
    Session,
    /// Not at all: `pg_try_advisory_*`. [`Error::NotAvailable`](crate::Error::NotAvailable) when it is held.
    Never,
    /// At most this long for all keys together, by the server's clock, rounded up to whole milliseconds. Zero is
    /// [`Wait::Never`]; more than 24 days count as 24 days.
    For(Duration),
    /// Forever, whatever the session's `lock_timeout` is. Its `statement_timeout` still ends the wait.
    Forever,
}

impl From<Duration> for Wait {
    fn from(wait: Duration) -> Self {
        Self::For(wait)
    }
}
