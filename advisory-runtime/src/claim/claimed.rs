//! A row that this program has claimed, and until when it may act on it.

use super::table::{Claim, ttl};
use crate::Error;
use crate::expiry::Expiry;
use diesel::deserialize;
use diesel::pg::Pg;
use diesel::prelude::QueryableByName;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::row::NamedRow;
use diesel::sql_types::Text;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A row that is claimed. It reads as the row does; dropping it leaves the claim to expire.
#[must_use = "a claim that nobody finishes keeps its row from everybody until it expires"]
pub struct Claimed<T>(Arc<Claimant<T>>);

/// What a claim has in common with the task that renews it.
struct Claimant<T> {
    row: T,
    locked_by: String,
    ttl: Duration,
    standing: Mutex<Standing>,
}

/// Until when it is held, as far as this process knows, and whether it was ended.
#[derive(Clone, Copy, Debug)]
struct Standing {
    until: Expiry,
    end: End,
}

/// Whether a claim was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Nobody has tried.
    No,
    /// The statement has no answer yet.
    Asked,
    /// Since then in a transaction of the caller's, which may be rolled back: a renewal that is sent later tells.
    Inside(Instant),
    Yes,
}

impl<T: Claim> Claimed<T> {
    pub(super) fn new(taken: Taken<T>, sent: Instant) -> Self {
        let ttl = ttl::<T>();
        Self(Arc::new(Claimant {
            row: taken.row,
            locked_by: taken.locked_by,
            ttl,
            standing: Mutex::new(Standing {
                until: Expiry::after(sent, ttl),
                end: End::No,
            }),
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
        let until = self.standing().until.steady().into_std();
        until.checked_sub(self.margin()).unwrap_or(until)
    }

    /// Whether it was completed, failed or released by this value. Where that was in a transaction that was rolled back, a renewal
    /// finds it out.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.end(), End::Inside(_) | End::Yes)
    }

    /// Whether the deadline is over, by either clock: one of them stands still while a machine sleeps.
    pub(super) fn is_overdue(&self) -> bool {
        self.standing().until.is_over_within(self.margin())
    }

    /// Whether it can be another's.
    pub(super) fn is_expired(&self) -> bool {
        self.standing().until.is_over_within(Duration::ZERO)
    }

    pub(super) fn end(&self) -> End {
        self.standing().end
    }

    pub(super) fn renewed(&self, sent: Instant) {
        let mut standing = self.standing();
        standing.until = standing.until.extended(Expiry::after(sent, self.0.ttl));
        if matches!(standing.end, End::Inside(since) if since < sent) {
            standing.end = End::No;
        }
    }

    /// Says that a statement is sent that ends the claim.
    pub(super) fn ending(&self) -> Ending<'_, T> {
        let before = std::mem::replace(&mut self.standing().end, End::Asked);
        Ending {
            claim: self,
            end: before,
        }
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        let standing = self.0.standing.lock();
        standing.unwrap_or_else(PoisonError::into_inner)
    }

    fn margin(&self) -> Duration {
        (self.0.ttl / 10).min(Duration::from_secs(1))
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

    /// What it is when a statement that ends it was not answered.
    pub(super) fn unknown(&self, source: DieselError) -> Error {
        Error::CommitUnknown {
            lock: self.name().into(),
            source,
        }
    }

    /// What errors call it.
    fn name(&self) -> String {
        format!("{} ({})", super::index::table_name::<T>(), self.0.locked_by)
    }
}

/// A statement on its way that ends a claim. Dropped, the claim is as it was before.
pub(super) struct Ending<'a, T: Claim> {
    claim: &'a Claimed<T>,
    end: End,
}

impl<T: Claim> Ending<'_, T> {
    /// It has ended the claim, inside a transaction or for good.
    pub(super) fn done(mut self, is_inside: bool) {
        self.end = if is_inside {
            End::Inside(Instant::now())
        } else {
            End::Yes
        };
    }
}

impl<T: Claim> Drop for Ending<'_, T> {
    fn drop(&mut self) {
        self.claim.standing().end = self.end;
    }
}

/// As if the connection was lost: it is closed then.
pub(super) fn no_answer() -> DieselError {
    let message = "no answer came while the claim lasted".to_owned();
    DieselError::DatabaseError(DatabaseErrorKind::ClosedConnection, Box::new(message))
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
