//! How a row ends, in one vocabulary for leases and claims.

use super::UNANSWERED;
use super::backoff::Backoff;
use super::failure::{Failure, RowError};
use super::hold::{Hold, Phase};
use super::reach::Times;
use diesel::result::Error as DieselError;
use std::ops::ControlFlow;
use std::time::Duration;
use tokio::time::Instant;

/// How a claimed row ends.
///
/// ```
/// use advisory_runtime::claim::End;
/// use std::time::Duration;
///
/// let soon = End::Retry { after: Some(Duration::from_secs(30)) };
/// # assert_ne!(soon, End::Fail);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// What the server says of a row that this process wants to renew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// It is held for this long from when the statement began, at most.
    For(Duration),
    /// Another transaction has the row locked. It is still held by the last commit.
    Busy,
    /// It is no longer held: it has expired, has ended, or somebody else has it.
    Gone,
}

/// What the server says of the transaction in which a row was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    Open,
    Committed,
    RolledBack,
}

/// The tries to end a row, until it expires.
///
/// A refusal that may pass is tried again for some seconds. After a try without an answer, a row
/// that is no longer held may have been ended by that try.
#[derive(Debug)]
pub(crate) struct Tries<E> {
    until: Instant,
    backoff: Backoff,
    unanswered: Option<DieselError>,
    refused: Option<(Instant, E)>,
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

impl<E: RowError> Tries<E> {
    pub(crate) fn new(hold: &Hold) -> Self {
        let until = match hold.phase() {
            // How that transaction has ended matters after the expiry too, and nobody can take the
            // row before it has.
            Phase::InTransaction(_) => Instant::now() + UNANSWERED,
            _ => hold.expires(),
        };
        Self {
            until,
            backoff: Backoff::between(Duration::from_millis(100), Duration::from_secs(1)),
            unanswered: None,
            refused: None,
        }
    }

    /// How long the next try may take.
    pub(crate) fn times(&self) -> Times {
        let left = self.until.saturating_duration_since(Instant::now());
        // Shortly before the expiry too, whether the row was still held is for the server to say.
        let left = left.max(Duration::from_secs(2));
        Times::new(left, left)
    }

    /// The result, or when to try again.
    pub(crate) fn after(
        &mut self,
        outcome: Result<bool, E>,
    ) -> ControlFlow<Result<Ended, E>, Instant> {
        let now = Instant::now();
        let mut until = self.until;
        let error = match outcome {
            Ok(true) => return ControlFlow::Break(Ok(Ended::Done)),
            Ok(false) => return ControlFlow::Break(Ok(self.no_longer_held())),
            Err(error) => match (error.failure(), error.into_database()) {
                (Failure::Final, Ok(error)) => {
                    return ControlFlow::Break(Err(E::of_database(error)));
                }
                (Failure::Final, Err(error)) => return ControlFlow::Break(Err(error)),
                (Failure::Unanswered, Ok(source)) => {
                    (self.unanswered, self.refused) = (Some(source), None);
                    None
                }
                (Failure::Refused, Ok(source)) => {
                    // The first says more than its followers.
                    let first = || (now, E::of_database(source));
                    until = until.min(self.refused.get_or_insert_with(first).0 + UNANSWERED);
                    None
                }
                (_, error) => {
                    self.refused = None;
                    Some(error.map_or_else(|error| error, E::of_database))
                }
            },
        };
        let again = now + self.backoff.pause();
        if again < until {
            return ControlFlow::Continue(again);
        }
        if let Some(source) = self.unanswered.take() {
            return ControlFlow::Break(Ok(Ended::Unknown(source)));
        }
        let refused = self.refused.take().map(|(_, first)| first);
        ControlFlow::Break(match error.or(refused) {
            Some(error) => Err(error),
            None => Ok(Ended::Lost),
        })
    }

    fn no_longer_held(&mut self) -> Ended {
        self.unanswered.take().map_or(Ended::Lost, Ended::Unknown)
    }
}
