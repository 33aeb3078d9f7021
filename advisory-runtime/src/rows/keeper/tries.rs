//! The tries to end a row.

use crate::rows::UNANSWERED;
use crate::rows::answer::{Failure, RowError};
use crate::rows::backoff::Backoff;
use crate::rows::end::Ended;
use crate::rows::hold::{Hold, Phase};
use crate::rows::reach::Times;
use diesel::result::Error as DieselError;
use std::ops::ControlFlow;
use std::time::Duration;
use tokio::time::Instant;

/// The tries to end a row, until it expires.
///
/// A refusal that may pass is tried again for some seconds. After a try without an answer, a row
/// that is no longer held may have been ended by that try.
#[derive(Debug)]
pub(super) struct Tries<E> {
    until: Instant,
    backoff: Backoff,
    unanswered: Option<DieselError>,
    refused: Option<(Instant, E)>,
}

impl<E: RowError> Tries<E> {
    pub(super) fn new(hold: &Hold) -> Self {
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
    pub(super) fn times(&self) -> Times {
        let left = self.until.saturating_duration_since(Instant::now());
        // Shortly before the expiry too, whether the row was still held is for the server to say.
        let left = left.max(Duration::from_secs(2));
        Times::new(left, left)
    }

    /// The result, or when to try again.
    pub(super) fn after(
        &mut self,
        outcome: Result<bool, E>,
    ) -> ControlFlow<Result<Ended, E>, Instant> {
        let now = Instant::now();
        let mut until = self.until;
        let error = match outcome {
            Ok(true) => return ControlFlow::Break(Ok(Ended::Done)),
            Ok(false) => {
                let ended = self.unanswered.take().map_or(Ended::Lost, Ended::Unknown);
                return ControlFlow::Break(Ok(ended));
            }
            Err(error) => match error.failure() {
                Failure::Final => return ControlFlow::Break(Err(error)),
                Failure::Unanswered => {
                    (self.unanswered, self.refused) = (Some(error.into()), None);
                    None
                }
                Failure::Refused if error.database().is_some() => {
                    // The first says more than its followers.
                    until = until.min(self.refused.get_or_insert((now, error)).0 + UNANSWERED);
                    None
                }
                Failure::Unreachable | Failure::Refused => {
                    self.refused = None;
                    Some(error)
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
}
