//! How a job ends whose work returns an error, and how often a claim is renewed.

use super::sql::How;
use super::table::{Claim, MaybeTime, ttl};
use std::time::Duration;

/// The shortest time between two renewals: without a pause they would keep a connection busy.
const SHORTEST: Duration = Duration::from_millis(10);

/// What happens to a job whose work returns `Err`.
///
/// ```
/// use advisory_runtime::claim::OnErr;
/// use std::time::Duration;
///
/// let soon = OnErr::Retry { after: Some(Duration::from_secs(30)) };
/// # assert_ne!(soon, OnErr::Fail);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnErr {
    /// It fails for good, with the error's text as its message. If the table has no `failed_at`, it is released.
    Fail,
    /// It is tried again later, and its attempt counts, as [`retry`](super::retry) says: after this pause, or after the one that
    /// `#[claim(backoff = …)]` says. The last of `#[claim(max_attempts = …)]` fails it for good, with the error's text as its message.
    ///
    /// If the table has no `run_at`, it is released, and the next worker claims it at once.
    Retry {
        /// The pause; `None` for the one of `#[claim(backoff = …)]`.
        after: Option<Duration>,
    },
    /// It is released, and the next worker claims it at once. Its attempt does not count, so a job that always fails is tried without
    /// end and keeps the ones behind it waiting.
    Release,
}

impl OnErr {
    pub(crate) const fn how<T: Claim>(self, message: &str) -> How<'_> {
        match self {
            Self::Fail if T::FailedAt::COLUMN.is_some() => How::Fail(message),
            Self::Retry { after } => How::Retry(message, after),
            Self::Fail | Self::Release => How::Release,
        }
    }
}

/// The time between two renewals.
pub(crate) fn every<T: Claim>() -> Duration {
    T::RENEW.min(ttl::<T>() / 2).max(SHORTEST)
}
