//! A row that this program has claimed, and until when it may act on it.

use super::table::{Claim, ttl};
use crate::Error;
use crate::renewal::{End, Hold};
use diesel::deserialize;
use diesel::pg::Pg;
use diesel::prelude::QueryableByName;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::row::NamedRow;
use diesel::sql_types::Text;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A row that is claimed. It reads as the row does; dropping it leaves the claim to expire.
#[must_use = "a claim that nobody finishes keeps its row from everybody until it expires"]
pub struct Claimed<T>(Arc<Claimant<T>>);

/// What a claim has in common with the task that renews it.
struct Claimant<T> {
    row: T,
    locked_by: String,
    ttl: Duration,
    hold: Hold,
}

impl<T: Claim> Claimed<T> {
    pub(super) fn new(returned: Returned<T>, sent: Instant) -> Self {
        let ttl = ttl::<T>();
        Self(Arc::new(Claimant {
            row: returned.row,
            locked_by: returned.locked_by,
            ttl,
            hold: Hold::new(sent.into(), ttl),
        }))
    }

    /// The value of `locked_by`: the worker's name, `#`, and a UUID that no other claim has.
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
        self.0.hold.deadline().into_std()
    }

    /// Whether it was completed, failed or released by this value. Where that was in a transaction that was rolled back, a renewal
    /// finds it out.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.0.hold.end(), End::Inside(_) | End::Done)
    }

    pub(super) fn hold(&self) -> &Hold {
        &self.0.hold
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

    /// The error when a statement that ends it was not answered.
    pub(super) fn unknown(&self, source: DieselError) -> Error {
        Error::CommitUnknown {
            lock: self.name().into(),
            source,
        }
    }

    /// Its name in errors.
    fn name(&self) -> String {
        format!("{} ({})", super::index::table_name::<T>(), self.0.locked_by)
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

/// What a statement that claims returns: `locked_by`, and then the row.
pub(super) struct Returned<T> {
    locked_by: String,
    row: T,
}

impl<T: Claim> QueryableByName<Pg> for Returned<T> {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        Ok(Self {
            locked_by: row.get_value::<Text, _, _>(0)?,
            row: T::from_row(&row.partial_row(1..row.field_count()))?,
        })
    }
}
