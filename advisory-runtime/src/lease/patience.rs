//! How long to wait for somebody else's lease, and how often to look.

use super::Request;
use super::row::micros;
use crate::{Error, Wait};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(500);
/// The least that a try may wait for the pool: the one at the very end has nothing left.
const LENT: Duration = Duration::from_millis(100);
/// How often a call that does not wait tries again where two wrote the row at one moment.
const COLLISIONS: u32 = 10;

/// Why a try was no grant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refusal {
    /// Somebody holds it.
    Held {
        left: Duration,
        lock_timeout: Option<Duration>,
    },
    /// Nobody knows: two wrote at one moment.
    Again,
}

impl Refusal {
    pub(super) fn held(left: Option<&str>, lock_timeout: Option<&str>) -> Self {
        Self::Held {
            left: left.and_then(micros).unwrap_or_default(),
            lock_timeout: lock_timeout.and_then(setting),
        }
    }
}

/// What is left of a wait.
pub(super) struct Patience {
    request: Request,
    since: Instant,
    next: Duration,
    collisions: u32,
}

impl Patience {
    pub(super) fn new(request: &Request) -> Self {
        Self {
            request: request.clone(),
            since: Instant::now(),
            next: FIRST,
            collisions: 0,
        }
    }

    pub(super) fn waited(&self) -> Duration {
        self.since.elapsed()
    }

    /// How long the next try may wait for the pool.
    pub(super) fn left(&self) -> Option<Duration> {
        match self.request.wait {
            Wait::For(wait) if !wait.is_zero() => {
                Some(wait.saturating_sub(self.waited()).max(LENT))
            }
            Wait::For(_) | Wait::Session | Wait::Never | Wait::Forever => None,
        }
    }

    /// Waits until the next try, or says that there is none.
    pub(super) async fn wait(&mut self, refusal: Refusal) -> Result<(), Error> {
        let lock = || self.request.name();
        let (left, lock_timeout) = match refusal {
            Refusal::Held { left, lock_timeout } => (left, lock_timeout),
            Refusal::Again => (Duration::ZERO, None),
        };
        let budget = match self.request.wait {
            Wait::For(wait) => Some(wait),
            Wait::Session => lock_timeout,
            Wait::Forever => None,
            Wait::Never => Some(Duration::ZERO),
        };
        if let (Some(Duration::ZERO), Refusal::Again) = (budget, refusal) {
            self.collisions += 1;
            if self.collisions > COLLISIONS {
                return Err(Error::NotAvailable { lock: lock() });
            }
        } else if budget == Some(Duration::ZERO) {
            return Err(Error::NotAvailable { lock: lock() });
        }
        let waited = self.waited();
        if budget.is_some_and(|budget| !budget.is_zero() && waited >= budget) {
            return Err(Error::TimedOut {
                lock: lock(),
                waited,
                source: None,
            });
        }
        // No two at once, and one at the very end.
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
}

/// Between 0 and 1.
fn chance() -> f64 {
    let random = RandomState::new().hash_one(0_u8);
    f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX)
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
