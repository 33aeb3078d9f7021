//! A claimed row, and the answers of the server about it.

use super::Error;
use super::mutex::locked;
use super::table::{Claim, every, ttl};
use crate::observe::Telemetry;
use crate::rows::{self, Hold, Moment, Observer, RowEvent, connection_lost, tell};
use diesel::data_types::PgInterval;
use diesel::deserialize;
use diesel::pg::Pg;
use diesel::prelude::QueryableByName;
use diesel::result::Error as DieselError;
use diesel::row::NamedRow;
use diesel::sql_types::{BigInt, Bool, Interval, Nullable, Text};
use std::any::Any;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// A claimed row. It dereferences to the row.
///
/// Dropping it does not release the claim, which then expires.
///
/// ```
#[doc = example_of_jobs!()]
/// use std::time::Instant;
///
/// /// Returns `true` if there is time for another part of the work.
/// fn has_time(job: &Claimed<Job>) -> bool {
///     // The row's own fields can be used too: `job.id`.
///     job.deadline() > Instant::now()
/// }
/// ```
#[must_use = "an unfinished claim keeps its row from others until it expires"]
pub struct Claimed<T>(Arc<Shared<T>>);

/// The state that is shared with the task that renews the claim.
struct Shared<T> {
    row: T,
    locked_by: String,
    hold: Hold,
    /// `true` if the row had an earlier claim, which has expired.
    has_expired: bool,
    /// The number of statements that were sent to end the claim, got no answer yet, and may have
    /// ended it. Two can be sent at a time, on two connections.
    unanswered: AtomicUsize,
    observer: OnceLock<Observer<Claimed<T>, Error>>,
    /// The span and the metrics of the running body.
    telemetry: Mutex<Option<Telemetry>>,
}

/// An event of a claim, for [`Worker::observe`](super::Worker::observe).
///
/// ```
/// use advisory_runtime::claim::Event;
///
/// fn log<T>(event: Event<'_, T>) {
///     match event {
///         Event::Ended { end, held, .. } => println!("{end:?} after {held:?}"),
///         Event::Refused(error) | Event::NoConnection(error) => eprintln!("no claim: {error}"),
///         _ => {}
///     }
/// }
/// ```
pub type Event<'e, T> = rows::Event<'e, Claimed<T>, Error>;

impl<T: Claim> Claimed<T> {
    fn new(row: T, locked_by: String, has_expired: bool, lasts: Duration, sent: Moment) -> Self {
        let ttl = ttl::<T>();
        let sent = sent.after_wait(lasts.saturating_sub(ttl));
        // A trigger may have shortened the claim.
        let until = sent.plus(ttl.min(lasts));
        Self(Arc::new(Shared {
            row,
            locked_by,
            hold: Hold::new(until, ttl),
            has_expired,
            unanswered: AtomicUsize::new(0),
            observer: OnceLock::new(),
            telemetry: Mutex::new(None),
        }))
    }

    /// Sets the observer, unless there is one.
    pub(super) fn set_observer(&self, observer: &Observer<Self, Error>) {
        let _is_first = self.0.observer.set(Arc::clone(observer)).is_ok();
    }

    pub(super) fn observer(&self) -> Option<&Observer<Self, Error>> {
        self.0.observer.get()
    }

    pub(super) fn any(&self) -> AnyClaim {
        AnyClaim(Arc::<Shared<T>>::clone(&self.0))
    }

    /// Returns `None` for a claim of another type.
    pub(super) fn of_any(AnyClaim(claim): AnyClaim) -> Option<Self> {
        let claim: Arc<dyn Any + Send + Sync> = claim;
        claim.downcast().ok().map(Self)
    }

    pub(super) fn telemetry(&self) -> MutexGuard<'_, Option<Telemetry>> {
        locked(&self.0.telemetry)
    }

    /// Returns the value of `locked_by`: the worker's name, `#`, and the UUID of this claim.
    #[must_use]
    pub fn locked_by(&self) -> &str {
        &self.0.locked_by
    }

    /// Returns the time that the claim and each of its renewals last.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        ttl::<T>()
    }

    /// Returns the time by which the body must have stopped, on this process's clock. It is a tenth
    /// of the ttl, at most a second, before the claim expires.
    ///
    /// The ttl counts from when the claim or its last renewal was *sent*, so the claim expires
    /// later on the server. The time that a claim by [`key`](super::Next::key) waits for its row
    /// does not count.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.0.hold.deadline().into_std()
    }

    /// Returns `true` if this claim was completed, failed or released. If the transaction that did
    /// so is rolled back, the next renewal notices.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.hold.phase().is_complete()
    }

    pub(crate) fn hold(&self) -> &Hold {
        &self.0.hold
    }

    /// Returns `true` if the row had an earlier claim, which has expired. Its worker died, perhaps
    /// because of the row.
    pub(crate) fn has_expired_before(&self) -> bool {
        self.0.has_expired
    }

    /// Counts a statement that is about to be sent to end the claim, until its answer arrives.
    pub(super) fn answer(&self) -> Awaited<'_> {
        self.0.unanswered.fetch_add(1, Ordering::Relaxed);
        Awaited(&self.0.unanswered)
    }

    pub(super) fn lost(&self) -> Error {
        Error::Lost {
            claim: self.name(),
            source: self.hold().reason(),
        }
    }

    /// Returns the error for a claim that no longer holds its row. If a statement of this claim got
    /// no answer, that statement may have ended it.
    pub(crate) fn gone(&self) -> Error {
        if self.0.unanswered.load(Ordering::Relaxed) > 0 {
            return self.unknown(no_answer());
        }
        self.lost()
    }

    /// Returns the error for a claim that may have ended, because the statement got no answer.
    pub(super) fn unknown(&self, source: DieselError) -> Error {
        Error::CommitUnknown {
            claim: self.name(),
            source,
        }
    }

    pub(super) fn name(&self) -> String {
        format!("{} ({})", super::sql::table_name::<T>(), self.0.locked_by)
    }
}

/// A claim of any type, so that the keeper is not compiled for each.
#[derive(Clone)]
pub(crate) struct AnyClaim(pub(super) Arc<dyn ErasedClaim>);

/// What the keeper needs to know of a claim.
pub(super) trait ErasedClaim: Any + Send + Sync {
    fn hold(&self) -> &Hold;
    fn every(&self) -> Duration;
    fn tell(self: Arc<Self>, event: RowEvent<'_, Error>);
}

impl<T: Claim> ErasedClaim for Shared<T> {
    fn hold(&self) -> &Hold {
        &self.hold
    }

    fn every(&self) -> Duration {
        every::<T>()
    }

    fn tell(self: Arc<Self>, event: RowEvent<'_, Error>) {
        let job = Claimed(self);
        tell(job.observer(), rows::Event::of(&job, &event));
    }
}

/// The answer of a statement that was sent. If it does not arrive, the statement stays counted.
pub(super) struct Awaited<'j>(&'j AtomicUsize);

impl Awaited<'_> {
    pub(super) fn arrived(self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the error for a statement without an answer, after which the connection counts as lost.
pub(super) fn no_answer() -> DieselError {
    connection_lost("the server did not answer before the claim expired")
}

/// A clone refers to the same claim. When it is ended or lost, it is so for all clones.
impl<T> Clone for Claimed<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
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

/// Converts the number of a row, which counts from 1, to an index.
pub(super) fn index_of(nth: i64) -> usize {
    usize::try_from(nth - 1).unwrap_or(usize::MAX)
}

/// Converts an interval; returns zero if it is negative.
pub(super) fn duration(interval: PgInterval) -> Duration {
    const DAY: i64 = 24 * 60 * 60 * 1_000_000;
    let days = i64::from(interval.days).saturating_mul(DAY);
    let micros = interval.microseconds.saturating_add(days);
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// A row of the answer to a claim. A statement that claims one row does not return `has_expired`
/// and `nth`.
pub(super) struct Answered<T, const IS_ONE: bool = false> {
    /// `None` if the row has no attempt left, and is not claimed.
    locked_by: Option<String>,
    /// The time from the statement's start to the expiry.
    lasts: Duration,
    has_expired: bool,
    /// The number in the order of the claims.
    nth: i64,
    /// An error if the columns cannot be read as the type.
    row: deserialize::Result<T>,
}

impl<T: Claim, const IS_ONE: bool> QueryableByName<Pg> for Answered<T, IS_ONE> {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        let lasts: Option<_> = row.get_value::<Nullable<Interval>, _, _>(1)?;
        let first = if IS_ONE { 2 } else { 4 };
        Ok(Self {
            locked_by: row.get_value::<Nullable<Text>, _, _>(0)?,
            lasts: lasts.map_or(Duration::ZERO, duration),
            has_expired: !IS_ONE && row.get_value::<Bool, _, _>(2)?,
            nth: if IS_ONE {
                1
            } else {
                row.get_value::<BigInt, _, _>(3)?
            },
            row: T::from_row(&row.partial_row(first..row.field_count())),
        })
    }
}

/// The claimed rows of an answer, and the rows that have no attempt left, if there are any.
pub(super) struct Answer<T> {
    pub(super) claimed: Vec<Claimed<T>>,
    pub(super) spent: Option<Vec<T>>,
}

impl<T: Claim> Answer<T> {
    /// Sorts the rows of an answer. A row that cannot be read stays claimed until its claim
    /// expires, so that it is not the first again at once. It is an error only if nothing else was
    /// claimed.
    pub(super) fn of<const IS_ONE: bool>(
        rows: Vec<Answered<T, IS_ONE>>,
        before: Moment,
    ) -> Result<Self, Error> {
        // An `UPDATE` returns rows in any order. Only their numbers are sorted, because
        // compiling a sort for each type of row takes long.
        let (mut order, mut unsorted) = (Vec::new(), Vec::new());
        for row in rows {
            order.push((row.nth, order.len()));
            unsorted.push(Some(row));
        }
        order.sort_unstable();
        let (mut claimed, mut spent, mut unreadable) = (Vec::new(), None, None);
        for (_, place) in order {
            let Some(row) = unsorted[place].take() else {
                continue;
            };
            match (row.locked_by, row.row) {
                (None, read) => spent.get_or_insert_with(Vec::new).extend(read.ok()),
                (Some(locked_by), Ok(read)) => {
                    let (has_expired, lasts) = (row.has_expired, row.lasts);
                    claimed.push(Claimed::new(read, locked_by, has_expired, lasts, before));
                }
                (Some(_), Err(error)) => unreadable = Some(error),
            }
        }
        match unreadable {
            Some(error) if claimed.is_empty() && spent.is_none() => {
                Err(Error::Database(DieselError::DeserializationError(error)))
            }
            _ => Ok(Self { claimed, spent }),
        }
    }
}
