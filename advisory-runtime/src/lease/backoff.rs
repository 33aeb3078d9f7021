//! When does a call that was refused try again, and when does it give up?

use super::Request;
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

impl Refusal {
    pub(super) fn held(left: Duration, lock_timeout: Option<&str>) -> Self {
        let lock_timeout = lock_timeout.and_then(setting);
        Self::Held { left, lock_timeout }
    }
}

/// The tries of one call.
pub(super) struct Backoff {
    lock: Cow<'static, str>,
    wait: Wait,
    since: Instant,
    next: Duration,
    conflicts: u32,
    /// Whether a try has met a holder: without one, the call does not say that the key is busy.
    has_met_holder: bool,
    lock_timeout: Option<Duration>,
}

impl Backoff {
    pub(super) fn new(request: &Request) -> Self {
        Self {
            lock: request.name(),
            wait: request.wait,
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
        match self.wait {
            Wait::For(wait) => Some(wait),
            Wait::Session => self.lock_timeout,
            Wait::Forever => None,
            Wait::Never => Some(Duration::ZERO),
        }
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
        let (budget, waited, lock) = (self.budget(), self.waited(), self.lock.clone());
        if budget == Some(Duration::ZERO) {
            if !matches!(refusal, Refusal::Conflict) || self.conflicts > CONFLICTS {
                return Err(Error::NotAvailable { lock });
            }
        } else if budget.is_some_and(|budget| waited >= budget) {
            return Err(Error::TimedOut {
                lock,
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

/// A time-out as the server writes it: `0`, `1500ms`, `5s`, `2min`, `1h`, `1d`.
fn setting(text: &str) -> Option<Duration> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let unit = match unit {
        "ms" | "" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    (number > 0).then(|| Duration::from_millis(number.saturating_mul(unit)))
}
