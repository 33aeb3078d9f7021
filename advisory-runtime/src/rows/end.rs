//! The end of a row, in one vocabulary for leases and claims.

use diesel::result::Error as DieselError;
use std::time::Duration;

/// How a claimed row ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum End {
    /// It is done. With `#[claim(completed_at = "delete")]` the row is deleted.
    Complete,
    /// It fails for good, with a message. If the table has no `failed_at`, it is released.
    Fail,
    /// Its attempt counts, and it is tried again later: after this pause, or after the one of
    /// `#[claim(backoff = …)]`. The last of `#[claim(max_attempts = …)]` fails it for good.
    ///
    /// If the table has no `run_at`, it is released, and the next worker claims it at once.
    Retry {
        /// The pause; `None` for the one of `#[claim(backoff = …)]`.
        after: Option<Duration>,
    },
    /// Others can claim it at once, and its attempt does not count.
    Release,
    /// The row is deleted.
    Delete,
}

/// The change that an end makes to its row.
pub(crate) enum Change {
    /// Sets columns, to values that follow from the row.
    Set,
    /// Also sets the message, and the time of the next attempt by the caller's pause, if any.
    SetMessage {
        pause: Option<Duration>,
    },
    Delete,
}

impl End {
    pub(crate) const fn change(self) -> Change {
        match self {
            Self::Complete | Self::Release => Change::Set,
            Self::Fail => Change::SetMessage { pause: None },
            Self::Retry { after: pause } => Change::SetMessage { pause },
            Self::Delete => Change::Delete,
        }
    }

    pub(crate) const fn has_message(self) -> bool {
        matches!(self.change(), Change::SetMessage { .. })
    }
}

/// How a row was ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// As it was asked.
    Done,
    /// Nothing was changed: the row was no longer held.
    Lost,
    /// The row is no longer held, and a try without an answer may have ended it.
    Unknown(DieselError),
}
