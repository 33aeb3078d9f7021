//! A claimed row, and how long this process may act on it.

use super::Error;
use super::table::{Claim, ttl};
use crate::renewal::{End, Expiry, Sent, Tenure};
use diesel::deserialize;
use diesel::pg::Pg;
use diesel::prelude::QueryableByName;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::row::NamedRow;
use diesel::sql_types::{BigInt, Nullable, Text};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A claimed row. It dereferences to the row. If it is dropped, the claim expires.
///
/// # Examples
///
/// ```
#[doc = example_of_jobs!()]
/// use std::time::Instant;
///
/// /// Whether there is time for another part of the work.
/// fn has_time(job: &Claimed<Job>) -> bool {
///     // The row's own fields are at hand too: `job.id`.
///     job.deadline() > Instant::now()
/// }
/// ```
#[must_use = "an unfinished claim keeps its row from others until it expires"]
pub struct Claimed<T>(Arc<Shared<T>>);

/// Shared with the task that renews the claim.
struct Shared<T> {
    row: T,
    locked_by: String,
    ttl: Duration,
    tenure: Tenure,
    ended: Mutex<Ended>,
    /// Whether a statement that ends the claim was sent and got no answer, so that it may have ended the claim.
    is_unanswered: AtomicBool,
}

/// Where the claim was ended in a transaction of the caller's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ended {
    pub(super) transaction: i64,
    /// Whether below a savepoint.
    pub(super) is_nested: bool,
}

impl<T: Claim> Claimed<T> {
    pub(super) fn new(returned: Returned<T>, sent: Sent) -> Self {
        let ttl = ttl::<T>();
        let sent = sent.after_wait(returned.lasts.saturating_sub(ttl));
        // Not later than the row says, such as where a trigger has shortened it.
        let until = Expiry::after(sent, ttl.min(returned.lasts));
        Self(Arc::new(Shared {
            row: returned.row,
            locked_by: returned.locked_by,
            ttl,
            tenure: Tenure::new(until, ttl),
            ended: Mutex::default(),
            is_unanswered: AtomicBool::new(false),
        }))
    }

    /// The value of `locked_by`: the worker's name, `#`, and the UUID of this claim.
    #[must_use]
    pub fn locked_by(&self) -> &str {
        &self.0.locked_by
    }

    /// How long the claim and each of its renewals last.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.0.ttl
    }

    /// When the work must have stopped, by this process's clock: a tenth of the ttl, at most a second, before the claim expires. The
    /// expiry counts from when the claim or its last renewal was *sent*, so on the server it is later. A wait of [`by_key`](super::by_key)
    /// for the row does not count.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.0.tenure.deadline().into_std()
    }

    /// Whether this value was completed, failed or released. If the transaction that did so is rolled back, a renewal notices.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.0.tenure.end(), End::Inside(_) | End::Done)
    }

    pub(crate) fn tenure(&self) -> &Tenure {
        &self.0.tenure
    }

    pub(super) fn ended(&self) -> Ended {
        *self.0.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_ended(&self, ended: Ended) {
        *self.0.ended.lock().unwrap_or_else(PoisonError::into_inner) = ended;
    }

    /// The answer of a statement that ends the claim, which is about to be sent.
    pub(super) fn answer(&self) -> Answer<'_> {
        Answer {
            is_unanswered: &self.0.is_unanswered,
            before: self.0.is_unanswered.swap(true, Ordering::Relaxed),
        }
    }

    /// Whether a statement that ends the claim got no answer.
    pub(super) fn is_unanswered(&self) -> bool {
        self.0.is_unanswered.load(Ordering::Relaxed)
    }

    pub(crate) fn share(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    pub(super) fn lost(&self) -> Error {
        Error::Lost { claim: self.name() }
    }

    /// The error when the row is not this claim's any more: after a statement that got no answer, that one may have ended the claim.
    pub(crate) fn gone(&self) -> Error {
        if self.is_unanswered() {
            return self.unknown(no_answer());
        }
        self.lost()
    }

    /// The error when the statement that ends the claim was not answered.
    pub(super) fn unknown(&self, source: DieselError) -> Error {
        Error::CommitUnknown {
            claim: self.name(),
            source,
        }
    }

    pub(super) fn name(&self) -> String {
        format!("{} ({})", super::index::table_name::<T>(), self.0.locked_by)
    }
}

/// The answer of a statement on its way.
pub(super) struct Answer<'j> {
    is_unanswered: &'j AtomicBool,
    before: bool,
}

impl Answer<'_> {
    pub(super) fn arrived(self) {
        self.is_unanswered.store(self.before, Ordering::Relaxed);
    }
}

/// The connection counts as lost, and is closed.
pub(super) fn no_answer() -> DieselError {
    lost("the server did not answer before the claim expired")
}

/// Counts as no answer, so that it is asked for again.
pub(super) fn still_open() -> DieselError {
    lost("the transaction that ended the claim is still open")
}

fn lost(why: &str) -> DieselError {
    DieselError::DatabaseError(
        DatabaseErrorKind::ClosedConnection,
        Box::new(why.to_owned()),
    )
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

/// The state of a row and of a transaction that has ended its claim.
pub(super) struct Holder {
    /// The `locked_by` of the claim that holds it.
    pub(super) by: Option<String>,
    /// `None` if the server does not know it.
    pub(super) transaction: Option<String>,
}

impl QueryableByName<Pg> for Holder {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        Ok(Self {
            by: row.get_value::<Nullable<Text>, _, _>(0)?,
            transaction: row.get_value::<Nullable<Text>, _, _>(1)?,
        })
    }
}

/// The transaction in which a claim was ended.
pub(super) struct Transaction(pub(super) i64);

impl QueryableByName<Pg> for Transaction {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        Ok(Self(row.get_value::<BigInt, _, _>(0)?))
    }
}

/// The time from a statement's start to the expiry.
pub(super) struct Lasts(pub(super) Duration);

impl QueryableByName<Pg> for Lasts {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        lasts(row, 0).map(Self)
    }
}

/// A number of microseconds; none if it is negative.
fn lasts<'a>(row: &impl NamedRow<'a, Pg>, column: usize) -> deserialize::Result<Duration> {
    let micros: i64 = row.get_value::<BigInt, _, _>(column)?;
    Ok(Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
}

/// A row of the answer: `locked_by`, the time from the statement's start to the expiry, and the claimed row.
pub(super) struct Returned<T> {
    locked_by: String,
    lasts: Duration,
    row: T,
}

/// A row of the answer.
pub(super) enum Answered<T> {
    Claimed(Returned<T>),
    /// Its last attempt was over, so that it has failed instead.
    Failed,
    /// It is claimed, but its columns cannot be read as the type.
    Unreadable(DieselError),
}

impl<T: Claim> QueryableByName<Pg> for Answered<T> {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        let locked_by: Option<String> = row.get_value::<Nullable<Text>, _, _>(0)?;
        let Some(locked_by) = locked_by else {
            return Ok(Self::Failed);
        };
        let lasts = lasts(row, 1)?;
        match T::from_row(&row.partial_row(2..row.field_count())) {
            Ok(row) => Ok(Self::Claimed(Returned {
                locked_by,
                lasts,
                row,
            })),
            Err(error) => Ok(Self::Unreadable(DieselError::DeserializationError(error))),
        }
    }
}

/// The claims of an answer, and whether a row has failed instead. A row that cannot be read stays claimed until its claim expires, so
/// that it does not come first again at once; it is an error only if nothing else was claimed.
pub(super) fn claims_of<T: Claim>(
    rows: Vec<Answered<T>>,
    sent: Sent,
) -> Result<(Vec<Claimed<T>>, bool), Error> {
    let (mut claims, mut has_failed, mut unreadable) = (Vec::new(), false, None);
    for row in rows {
        match row {
            Answered::Claimed(returned) => claims.push(Claimed::new(returned, sent)),
            Answered::Failed => has_failed = true,
            Answered::Unreadable(error) => unreadable = Some(error),
        }
    }
    match unreadable {
        Some(error) if claims.is_empty() => Err(Error::Database(error)),
        _ => Ok((claims, has_failed)),
    }
}
