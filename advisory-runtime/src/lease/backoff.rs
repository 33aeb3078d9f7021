//! When does a call that was refused try again, and when does it give up?

use super::{Request, Table};
use crate::error::BusyLock;
pub(super) use crate::lock::chance;
use crate::{Error, Wait};
use std::borrow::Cow;
use std::time::Duration;
use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(500);
/// The least that a try may take: the one at the deadline has nothing left of the wait.
pub(super) const LAST_TRY: Duration = Duration::from_millis(100);
/// How often a call that does not wait tries again after a conflict.
const CONFLICTS: u32 = 10;

/// Why a try was no grant.
#[derive(Clone, Copy, Debug)]
pub enum Refusal {
    /// Somebody holds the key, or it is kept.
    Held {
        left: Duration,
        lock_timeout: Option<Duration>,
    },
    /// Two wrote the row at the same moment.
    Conflict,
    /// The server could not be asked.
    Unreachable,
}

/// The tries of one call.
pub(super) struct Backoff<'c> {
    request: &'c Request,
    table: &'c Table,
    since: Instant,
    next: Duration,
    conflicts: u32,
    /// Whether a try has met a holder: without one, the call does not say that the key is busy.
    has_met_holder: bool,
    lock_timeout: Option<Duration>,
}

impl<'c> Backoff<'c> {
    pub(super) fn new(request: &'c Request, table: &'c Table) -> Self {
        Self {
            request,
            table,
            since: Instant::now(),
            next: FIRST,
            conflicts: 0,
            has_met_holder: false,
            lock_timeout: None,
        }
    }

    pub(super) fn waited(&self) -> Duration {
        self.since.elapsed()
    }

    /// How long the next try may take, if the call's wait bounds it.
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

    fn busy(&self) -> (Cow<'static, str>, BusyLock) {
        let busy = BusyLock::lease(self.table.name(), self.request.key_hash());
        (self.request.name(), busy)
    }

    /// Waits until the next try, or says why there is none.
    pub(super) async fn pause(&mut self, refusal: Refusal) -> Result<(), Error> {
        let mut left = Duration::ZERO;
        if let Refusal::Held {
            left: remaining,
            lock_timeout,
        } = refusal
        {
            left = remaining;
            self.lock_timeout = lock_timeout;
            self.has_met_holder = true;
        }
        self.conflicts += u32::from(matches!(refusal, Refusal::Conflict));
        let (budget, waited) = (self.budget(), self.waited());
        if budget == Some(Duration::ZERO) {
            if !matches!(refusal, Refusal::Conflict) || self.conflicts > CONFLICTS {
                let (lock, busy) = self.busy();
                return Err(Error::NotAvailable { lock, busy });
            }
        } else if budget.is_some_and(|budget| waited >= budget) {
            let (lock, busy) = self.busy();
            return Err(Error::TimedOut {
                lock,
                busy,
                waited,
                source: None,
            });
        }
        // Adds jitter, and tries once more at the deadline.
        let mut pause = self.next.mul_f64(0.5 + 0.5 * chance());
        self.next = (self.next * 2).min(LONGEST);
        if !left.is_zero() {
            pause = pause.min(left + Duration::from_millis(1));
        }
        if let Some(budget) = budget.filter(|budget| !budget.is_zero()) {
            pause = pause.min(budget.saturating_sub(waited));
        }
        tokio::time::sleep_until(Instant::now() + pause).await;
        Ok(())
    }

    /// As [`pause`](Self::pause), when a try could not ask the server. The error, unless a try before it has met a holder: then the
    /// call goes on, and the key is what it waits for.
    pub(super) async fn pause_after(&mut self, error: Error) -> Result<(), Error> {
        if !self.has_met_holder || self.budget() == Some(Duration::ZERO) {
            return Err(error);
        }
        self.pause(Refusal::Unreachable).await
    }
}
