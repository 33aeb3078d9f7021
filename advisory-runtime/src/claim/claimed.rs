//! A row that this program has claimed, and until when it may act on it.

use super::table::{Claim, ttl};
use crate::Error;
use diesel::deserialize;
use diesel::pg::Pg;
use diesel::prelude::QueryableByName;
use diesel::row::NamedRow;
use diesel::sql_types::Text;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A row that is claimed. It reads as the row does; dropping it leaves the claim to expire.
#[must_use = "a claim that nobody finishes keeps its row from everybody until it expires"]
pub struct Claimed<T>(Arc<Claimant<T>>);

/// What a claim has in common with the task that renews it.
struct Claimant<T> {
    row: T,
    locked_by: String,
    ttl: Duration,
    until: Mutex<Instant>,
    is_finished: AtomicBool,
}

impl<T: Claim> Claimed<T> {
    pub(super) fn new(taken: Taken<T>, sent: Instant) -> Self {
        let ttl = ttl::<T>();
        Self(Arc::new(Claimant {
            row: taken.row,
            locked_by: taken.locked_by,
            ttl,
            until: Mutex::new(sent + ttl),
            is_finished: AtomicBool::new(false),
        }))
    }

    /// What stands in `locked_by`: the worker's name, `#`, and what no other claim has.
    #[must_use]
    pub fn locked_by(&self) -> &str {
        &self.0.locked_by
    }

    /// How long the claim and each of its renewals last.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.0.ttl
    }

    /// When the work has to have stopped, by this process's clock: the ttl after the claim or its last renewal was *sent*, less a
    /// tenth of it, at most a second. The server counts from a later moment, so the row is nobody else's before.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        let until = *self.0.until.lock().unwrap_or_else(PoisonError::into_inner);
        let margin = (self.0.ttl / 10).min(Duration::from_secs(1));
        until.checked_sub(margin).unwrap_or(until)
    }

    /// Whether it was completed, failed or released by this value.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished.load(Ordering::Acquire)
    }

    pub(super) fn renewed(&self, sent: Instant) {
        let mut until = self.0.until.lock().unwrap_or_else(PoisonError::into_inner);
        *until = (*until).max(sent + self.0.ttl);
    }

    pub(super) fn finished(&self) {
        self.0.is_finished.store(true, Ordering::Release);
    }

    /// The same claim, for the task that renews it.
    pub(super) fn share(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    pub(super) fn lost(&self) -> Error {
        Error::LockLost {
            lock: self.name().into(),
            source: None,
        }
    }

    /// What errors call it.
    pub(super) fn name(&self) -> String {
        format!("{} ({})", super::index::table_name::<T>(), self.0.locked_by)
    }
}

impl<T> Deref for Claimed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.row
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Claimed<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claimed")
            .field("row", &self.0.row)
            .field("locked_by", &self.0.locked_by)
            .finish_non_exhaustive()
    }
}

/// What a statement that claims returns: `locked_by`, and behind it the row.
pub(super) struct Taken<T> {
    locked_by: String,
    row: T,
}

impl<T: Claim> QueryableByName<Pg> for Taken<T> {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        Ok(Self {
            locked_by: row.get_value::<Text, _, _>(0)?,
            row: T::from_row(&row.partial_row(1..row.field_count()))?,
        })
    }
}
