//! Has the keeper renew and end claimed rows.

use super::Error;
use super::claimed::{AnyClaim, Claimed, duration, index_of, no_answer};
use super::conflicts::load;
use super::end::send::{end_all, end_fitting};
use super::observers::observers;
use super::renew::require_renewable;
use super::sql::{Form, Statement, Value, settled, text};
use super::table::Claim;
use crate::PoolError;
use crate::driver::Queries;
use crate::rows::{
    Answering, AnyStep, End, Ended, Event, Failure, HeldRow, Hold, Keeper, Name, Reach, Renewal,
    Renewed, RowError, RowEvent, Rows, Settled, Step, Stop, Times, failure_of, number_of_pool,
    tell,
};
use diesel::data_types::PgInterval;
use diesel::sql_types::{BigInt, Bool, Interval, Nullable};
use std::fmt::Display;
use std::future::ready;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// The end of a claim, and the message of a failure.
#[derive(Clone, Debug)]
pub(crate) struct ClaimEnd {
    pub(super) end: End,
    /// Empty if the end has no message.
    pub(super) message: Arc<str>,
}

impl ClaimEnd {
    pub(crate) fn new(end: End) -> Self {
        let message = Arc::default();
        Self { end, message }
    }

    pub(crate) fn failed(end: End, message: &str) -> Self {
        let message = text(message).into();
        Self { end, message }
    }
}

/// The connections on which claims are renewed and ended.
pub(crate) trait ClaimReach: Reach {
    /// Not generic, so that the keeper of claims is compiled in this crate.
    fn rows(self, steps: Box<dyn Steps<Self::Connection>>) -> AnyRows;
}

#[cfg(feature = "diesel-async")]
impl ClaimReach for crate::rows::Pooled {
    fn rows(self, steps: Box<dyn Steps<Self::Connection>>) -> AnyRows {
        Box::new(ClaimRows(self, steps))
    }
}

pub(crate) type AnyRows = Box<dyn Rows<AnyClaim>>;

pub(crate) type JobRenewal = Renewal<AnyClaim>;

/// Has the keeper renew claims, on connections of the pool with this number.
pub(crate) fn keep_all<T: Claim, P: Clone + 'static, R: ClaimReach>(
    pool: &P,
    number: usize,
    reach: fn(P) -> R,
    jobs: &[Claimed<T>],
) -> Result<Vec<JobRenewal>, PoolError> {
    let name = Name::new::<(T, P, R)>(number, None);
    let rows = || reach(pool.clone()).rows(Box::new(StepsOf::<T>(PhantomData)));
    keep_any(name, &rows, jobs.iter().map(Claimed::any).collect())
}

/// Not generic, like [`ClaimReach::rows`].
fn keep_any(
    name: Name,
    rows: &dyn Fn() -> AnyRows,
    jobs: Vec<AnyClaim>,
) -> Result<Vec<JobRenewal>, PoolError> {
    Keeper::of_process().keep_all(name, rows, jobs, true)
}

pub(crate) fn keep<T: Claim, P: Clone + 'static, R: ClaimReach>(
    pool: &P,
    identity: Option<usize>,
    reach: fn(P) -> R,
    job: &Claimed<T>,
) -> Result<JobRenewal, PoolError> {
    if let Some(observer) = observers(job.name(), None) {
        job.set_observer(&observer);
    }
    let number = identity.unwrap_or_else(number_of_pool);
    let mut renewals = keep_all(pool, number, reach, std::slice::from_ref(job))?;
    renewals
        .pop()
        .ok_or_else(|| PoolError::new("no row is kept"))
}

/// Runs the body until the claim is lost.
pub(super) async fn watch<T: Claim, R>(
    job: &Claimed<T>,
    body: impl Future<Output = R>,
) -> Result<R, Error> {
    match crate::rows::watch(job.hold(), None, || (), body).await {
        Ok(result) => Ok(result),
        Err(Stop::Unanswered) => Err(job.unknown(no_answer())),
        Err(Stop::Lost | Stop::Exceeded) => Err(job.gone()),
    }
}

/// Releases the job in the background when dropped, unless the thread is panicking. `A` is dropped
/// once the job is released.
pub(super) struct ReleaseOnDrop<A: Send + 'static>(Option<(JobRenewal, A)>);

impl<A: Send + 'static> ReleaseOnDrop<A> {
    pub(super) const fn new(renewal: JobRenewal, alive: A) -> Self {
        Self(Some((renewal, alive)))
    }

    /// Leaves it to the caller to end the claim.
    pub(super) const fn take(&mut self) -> Option<(JobRenewal, A)> {
        self.0.take()
    }
}

impl<A: Send + 'static> Drop for ReleaseOnDrop<A> {
    fn drop(&mut self) {
        if let Some((renewal, alive)) = self.0.take()
            && !std::thread::panicking()
        {
            renewal.end_later(ClaimEnd::new(End::Release), alive);
        }
    }
}

/// Converts the keeper's result of an end into the caller's.
pub(crate) fn ended<T: Claim>(job: &Claimed<T>, ended: Result<Ended, Error>) -> Result<(), Error> {
    match ended {
        Ok(Ended::Done) => Ok(()),
        Ok(Ended::Unknown(source)) => Err(job.unknown(source)),
        Err(error) if !job.hold().is_lost() => Err(error),
        Ok(Ended::Lost) | Err(_) => Err(job.gone()),
    }
}

/// Ends a claim after its body has returned `result`. An error of the body takes precedence over
/// one of the end.
pub(crate) async fn end_as_returned<T: Claim, V, E: From<Error> + Display>(
    renewal: JobRenewal,
    job: &Claimed<T>,
    on_err: End,
    result: Result<V, E>,
) -> Result<V, E> {
    let end = match &result {
        Ok(_) => ClaimEnd::new(End::Complete),
        Err(error) => ClaimEnd::failed(on_err, &error.to_string()),
    };
    let done = renewal.end(end).await;
    let value = result?;
    ended(job, done)?;
    Ok(value)
}

impl HeldRow for AnyClaim {
    type End = ClaimEnd;
    type Error = Error;

    fn hold(&self) -> &Hold {
        self.0.hold()
    }

    fn every(&self) -> Duration {
        self.0.every()
    }

    fn tell(&self, event: RowEvent<'_, Error>) {
        Arc::clone(&self.0).tell(event);
    }

    fn shown_end(end: &ClaimEnd) -> End {
        end.end
    }
}

/// The statements of the keeper about claims of one type, on one kind of connection; `None` if a
/// claim is of another type.
pub(crate) trait Steps<D>: Send + Sync {
    fn renew(&self, jobs: Vec<AnyClaim>) -> KnownStep<D, Vec<Renewed>>;
    fn settle(&self, jobs: Vec<AnyClaim>) -> KnownStep<D, Vec<Settled>>;
    fn end(&self, job: AnyClaim, end: ClaimEnd) -> KnownStep<D, bool>;
    fn end_all(&self, ends: Vec<(AnyClaim, ClaimEnd)>) -> KnownStep<D, Vec<bool>>;
}

type KnownStep<D, A> = Option<AnyStep<D, A, Error>>;

/// The statements about claims of this type.
struct StepsOf<T>(PhantomData<fn() -> T>);

impl<T: Claim, D: Queries> Steps<D> for StepsOf<T> {
    fn renew(&self, jobs: Vec<AnyClaim>) -> KnownStep<D, Vec<Renewed>> {
        Some(Arc::new(Renew::<T>(all_of(jobs)?)))
    }

    fn settle(&self, jobs: Vec<AnyClaim>) -> KnownStep<D, Vec<Settled>> {
        Some(Arc::new(Settle::<T>(all_of(jobs)?)))
    }

    fn end(&self, job: AnyClaim, end: ClaimEnd) -> KnownStep<D, bool> {
        Some(Arc::new(EndStep::<T>(Claimed::of_any(job)?, end)))
    }

    fn end_all(&self, ends: Vec<(AnyClaim, ClaimEnd)>) -> KnownStep<D, Vec<bool>> {
        let (jobs, ends): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
        let ends = all_of(jobs)?.into_iter().zip(ends);
        Some(Arc::new(EndAllStep::<T>(ends.collect())))
    }
}

fn all_of<T: Claim>(jobs: Vec<AnyClaim>) -> Option<Vec<Claimed<T>>> {
    jobs.into_iter().map(Claimed::of_any).collect()
}

/// The claims of one type on one pool.
pub(crate) struct ClaimRows<R: Reach>(pub(crate) R, pub(crate) Box<dyn Steps<R::Connection>>);

impl<R: Reach> ClaimRows<R> {
    fn send<A: Send + 'static>(
        &self,
        on_caller: bool,
        step: KnownStep<R::Connection, A>,
        times: Times,
    ) -> Answering<'_, A, Error> {
        if let Some(step) = step {
            return self.0.send(on_caller, step, times);
        }
        let other = PoolError::new("two kinds of rows have one name");
        Box::pin(ready(Err(other.into())))
    }
}

impl<R: Reach> Rows<AnyClaim> for ClaimRows<R> {
    fn sends_on_caller(&self) -> bool {
        R::IS_ASYNC
    }

    fn batches_ends(&self) -> bool {
        true
    }

    fn renew(&self, jobs: Vec<AnyClaim>, times: Times) -> Answering<'_, Vec<Renewed>, Error> {
        self.send(false, self.1.renew(jobs), times)
    }

    fn settled(&self, jobs: Vec<AnyClaim>, times: Times) -> Answering<'_, Vec<Settled>, Error> {
        self.send(false, self.1.settle(jobs), times)
    }

    fn end(
        &self,
        job: AnyClaim,
        end: ClaimEnd,
        times: Times,
        on_caller: bool,
    ) -> Answering<'_, bool, Error> {
        self.send(on_caller, self.1.end(job, end), times)
    }

    fn end_all(
        &self,
        ends: Vec<(AnyClaim, ClaimEnd)>,
        times: Times,
        on_caller: bool,
    ) -> Answering<'_, Vec<bool>, Error> {
        self.send(on_caller, self.1.end_all(ends), times)
    }
}

/// The number of a claim, from 1, the time that it lasts if it was renewed, and otherwise whether
/// it was held at the last commit.
type RenewColumns = (BigInt, Nullable<Interval>, Bool);

/// Renews claims by one statement, without waiting for a locked row. One answer for each, in their
/// order.
struct Renew<T>(Vec<Claimed<T>>);

impl<T: Claim, D: Queries> Step<D, Vec<Renewed>, Error> for Renew<T> {
    fn send<'s>(&'s self, conn: &'s mut D) -> Answering<'s, Vec<Renewed>, Error> {
        Box::pin(async move {
            let Some(first) = self.0.first() else {
                return Ok(Vec::new());
            };
            require_renewable(conn, first)?;
            let statement = Statement::<RenewColumns>::of::<T>(Form::RenewMany)
                .keys(self.0.iter().map(|job| &**job))
                .with("holders", Value::holders(self.0.iter()));
            let rows = load(conn, &statement).await;
            let rows: Vec<(i64, Option<PgInterval>, bool)> = rows?;
            let mut renewed = vec![Renewed::Gone; self.0.len()];
            for (nth, lasts, is_held) in rows {
                if let Some(renewed) = renewed.get_mut(index_of(nth)) {
                    *renewed = match lasts {
                        Some(lasts) => Renewed::For(duration(lasts)),
                        None if is_held => Renewed::Busy,
                        None => Renewed::Gone,
                    };
                }
            }
            Ok(renewed)
        })
    }

    fn is_renewal(&self) -> bool {
        true
    }

    fn trusted_part(&self, answers: Vec<Renewed>) -> Option<Vec<Renewed>> {
        let trusted_part = |answer| match answer {
            Renewed::Gone => Renewed::Busy,
            seen => seen,
        };
        Some(answers.into_iter().map(trusted_part).collect())
    }
}

/// Looks up the outcome of the transactions in which these claims were ended, without waiting for
/// them. One answer for each, in their order.
struct Settle<T>(Vec<Claimed<T>>);

impl<T: Claim, D: Queries> Step<D, Vec<Settled>, Error> for Settle<T> {
    fn send<'s>(&'s self, conn: &'s mut D) -> Answering<'s, Vec<Settled>, Error> {
        Box::pin(async move {
            let rows = load(conn, &settled(&self.0)).await;
            let mut rows: Vec<(i64, Option<String>, Option<String>)> = rows?;
            rows.sort_unstable();
            let rows = rows.into_iter().zip(&self.0);
            let settled = rows.map(|((_, transaction, holder), job)| {
                let is_ours = holder.as_deref() == Some(job.locked_by());
                let is_nested = job.hold().inside().is_nested;
                let is_taken_since = is_nested && holder.is_some() && job.hold().is_expired();
                match transaction.as_deref() {
                    Some("in progress") => Settled::Open,
                    Some("own") if !is_ours => Settled::Committed,
                    // A rollback to a savepoint may have undone the end, and another worker may
                    // have claimed the row since.
                    Some("committed") if !is_ours && !is_taken_since => Settled::Committed,
                    // The transaction was rolled back, as a whole or to a savepoint. If the server
                    // does not know it, the row decides.
                    _ => Settled::RolledBack,
                }
            });
            Ok(settled.collect())
        })
    }

    /// An open transaction is not an answer: the pool's connection may be the one that has it open.
    fn trusted_part(&self, answers: Vec<Settled>) -> Option<Vec<Settled>> {
        (!answers.contains(&Settled::Open)).then_some(answers)
    }
}

struct EndStep<T>(Claimed<T>, ClaimEnd);

impl<T: Claim, D: Queries> Step<D, bool, Error> for EndStep<T> {
    fn send<'s>(&'s self, conn: &'s mut D) -> Answering<'s, bool, Error> {
        Box::pin(async move {
            let Self(job, ClaimEnd { end, message }) = self;
            match end_fitting(conn, job, *end, message).await {
                Ok(refused) => {
                    if let Some(refused) = refused {
                        let refused = Error::Database(refused);
                        tell(job.observer(), Event::EndFailed(job, &refused));
                    }
                    Ok(true)
                }
                Err(Error::Lost { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    fn trusted_part(&self, is_ended: bool) -> Option<bool> {
        is_ended.then_some(true)
    }

    fn may_come_from_duplicate(&self, is_ended: &bool) -> bool {
        !is_ended
    }
}

struct EndAllStep<T>(Vec<(Claimed<T>, ClaimEnd)>);

impl<T: Claim, D: Queries> Step<D, Vec<bool>, Error> for EndAllStep<T> {
    fn send<'s>(&'s self, conn: &'s mut D) -> Answering<'s, Vec<bool>, Error> {
        Box::pin(async move {
            let ends = self.0.iter();
            let ends = ends.map(|(job, ClaimEnd { end, message })| (job, *end, Some(&**message)));
            let ends: Vec<_> = ends.collect();
            end_all(conn, &ends).await
        })
    }

    /// Claims that were not ended here are ended one by one.
    fn trusted_part(&self, are_ended: Vec<bool>) -> Option<Vec<bool>> {
        are_ended.contains(&true).then_some(are_ended)
    }

    fn may_come_from_duplicate(&self, are_ended: &Vec<bool>) -> bool {
        are_ended.contains(&false)
    }
}

impl RowError for Error {
    fn failure(&self) -> Failure {
        match self {
            Self::Pool(_) | Self::BrokenConnection { .. } => Failure::Unreachable,
            Self::Database(error) => failure_of(error),
            _ => Failure::Final,
        }
    }
}
