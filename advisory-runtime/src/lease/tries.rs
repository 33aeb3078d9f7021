//! The tries of an acquisition: when the next one is, and when there is none.

use super::{Error, Request, Table};
use crate::Wait;
use crate::rows::Backoff;
use std::time::Duration;
use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(500);
/// The time for the try at the deadline, when nothing is left of the wait.
pub(super) const LAST_TRY: Duration = Duration::from_millis(100);
/// How often a call with `Wait::Never` tries again after conflicts.
const CONFLICTS: u32 = 10;

/// Why a try was refused.
#[derive(Clone, Copy, Debug)]
pub enum Refusal {
    /// The work under the key is done. No wait changes that.
    Done { remaining: Duration },
    /// The key is held.
    Held {
        left: Duration,
        lock_timeout: Option<Duration>,
    },
    /// Another session wrote the row at the same moment.
    Conflict,
}

/// The tries of one call.
pub(super) struct Tries<'c> {
    request: &'c Request,
    table: &'c Table,
    since: Instant,
    backoff: Backoff,
    conflicts: u32,
    /// `true` if a try found the key held. Only then may an unreachable server count as a busy key.
    has_met_holder: bool,
    lock_timeout: Option<Duration>,
}

impl<'c> Tries<'c> {
    pub(super) fn new(request: &'c Request, table: &'c Table) -> Self {
        Self {
            request,
            table,
            since: Instant::now(),
            backoff: Backoff::between(FIRST, LONGEST),
            conflicts: 0,
            has_met_holder: false,
            lock_timeout: None,
        }
    }

    pub(super) fn waited(&self) -> Duration {
        self.since.elapsed()
    }

    /// How long the next try may take; `None` without a bound.
    pub(super) fn left(&self) -> Option<Duration> {
        let budget = self.budget().filter(|budget| !budget.is_zero())?;
        Some(budget.saturating_sub(self.waited()).max(LAST_TRY))
    }

    fn budget(&self) -> Option<Duration> {
        match self.request.wait {
            Wait::For(wait) => Some(wait),
            Wait::Session => self.lock_timeout,
            Wait::Forever => None,
            Wait::Never => Some(Duration::ZERO),
        }
    }

    fn held(&self, waited: Duration) -> Error {
        Error::Held {
            lock: self.request.name(),
            busy: self.table.busy_key(self.request.key_hash),
            waited,
        }
    }

    /// Waits until the next try, or fails when the wait is over or is pointless. After a try that
    /// did not reach the server, it fails unless an earlier one found the key held.
    pub(super) async fn pause(&mut self, refused: Result<Refusal, Error>) -> Result<(), Error> {
        let (mut held_for, mut is_conflict) = (None, false);
        match refused {
            Ok(Refusal::Done { remaining }) => {
                let lock = self.request.name();
                return Err(Error::Done { lock, remaining });
            }
            Ok(Refusal::Held { left, lock_timeout }) => {
                held_for = (!left.is_zero()).then(|| left + Duration::from_millis(1));
                (self.lock_timeout, self.has_met_holder) = (lock_timeout, true);
            }
            Ok(Refusal::Conflict) => {
                self.conflicts += 1;
                is_conflict = true;
            }
            Err(error) if !self.has_met_holder || self.budget() == Some(Duration::ZERO) => {
                return Err(error);
            }
            Err(_) => {}
        }
        let (budget, waited) = (self.budget(), self.waited());
        if budget == Some(Duration::ZERO) {
            if !is_conflict || self.conflicts > CONFLICTS {
                return Err(self.held(Duration::ZERO));
            }
        } else if budget.is_some_and(|budget| waited >= budget) {
            return Err(self.held(waited));
        }
        // Tries once more at the deadline.
        let pause = self.backoff.pause();
        let deadline = budget.filter(|budget| !budget.is_zero());
        let bounds = [held_for, deadline.map(|end| end.saturating_sub(waited))];
        let pause = bounds.into_iter().flatten().fold(pause, Duration::min);
        tokio::time::sleep_until(Instant::now() + pause).await;
        Ok(())
    }
}
