//! Has the keeper renew and end claimed rows.

use super::Error;
use super::claimed::{Claimed, duration, index_of, no_answer};
use super::conflicts::load;
use super::end::send::{end_all, end_fitting};
use super::observers::observers;
use super::renew::require_renewable;
use super::sql::{Form, Statement, Value, settled, text};
use super::table::{Claim, every};
use crate::PoolError;
use crate::driver::Queries;
use crate::rows::{
    End, Ended, Event, Failure, HeldRow, Hold, Keeper, Kept, Name, Observer, Reach, Renewed,
    RowError, Rows, Settled, Step, Stop, Times, failure_of, number_of_pool, tell,
};
use diesel::data_types::PgInterval;
use diesel::sql_types::{BigInt, Bool, Interval, Nullable};
use std::fmt::Display;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// The end of a claim, and the message of a failure.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(feature = "diesel-async"),
    allow(unreachable_pub, reason = "leases make the trait with it public")
)]
pub struct ClaimEnd {
    pub(super) end: End,
    /// Empty if the end has no message.
    pub(super) message: Arc<str>,
}

impl ClaimEnd {
    pub(crate) fn new(end: End) -> Self {
        Self::failed(end, "")
    }

    pub(crate) fn failed(end: End, message: &str) -> Self {
        let message = text(message).into();
        Self { end, message }
    }
}

/// Has the keeper renew claims, on connections of this pool.
pub(super) fn keep_all<T: Claim, R: Reach>(
    pool: usize,
    reach: impl FnOnce() -> R,
    jobs: Vec<Claimed<T>>,
) -> Result<Vec<KeptJob<T, R>>, PoolError> {
    let name = Name::new::<ClaimRows<T, R>>(pool, None);
    let rows = || ClaimRows(reach(), PhantomData);
    Keeper::of_process().keep_all(name, rows, jobs, true)
}

/// Has the keeper renew a claim.
pub(crate) fn keep<T: Claim, R: Reach>(
    identity: Option<usize>,
    reach: impl FnOnce() -> R,
    job: &Claimed<T>,
) -> Result<KeptJob<T, R>, PoolError> {
    if let Some(observer) = observers(job.name(), None) {
        job.set_observer(&observer);
    }
    let pool = identity.unwrap_or_else(number_of_pool);
    let mut kept = keep_all(pool, reach, vec![job.clone()])?;
    kept.pop().ok_or_else(|| PoolError::new("no row is kept"))
}

/// A claim that is renewed.
pub(crate) type KeptJob<T, R> = Kept<ClaimRows<T, R>>;

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
pub(super) struct ReleaseOnDrop<T: Claim, R: Reach, A: Send + 'static>(Option<(KeptJob<T, R>, A)>);

impl<T: Claim, R: Reach, A: Send + 'static> ReleaseOnDrop<T, R, A> {
    pub(super) const fn new(kept: KeptJob<T, R>, alive: A) -> Self {
        Self(Some((kept, alive)))
    }

    /// Leaves it to the caller to end the claim.
    pub(super) const fn take(&mut self) -> Option<(KeptJob<T, R>, A)> {
        self.0.take()
    }
}

impl<T: Claim, R: Reach, A: Send + 'static> Drop for ReleaseOnDrop<T, R, A> {
    fn drop(&mut self) {
        if let Some((kept, alive)) = self.0.take()
            && !std::thread::panicking()
        {
            kept.end_later(ClaimEnd::new(End::Release), alive);
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
pub(crate) async fn end_as_returned<T: Claim, R: Reach, V, E: From<Error> + Display>(
    kept: KeptJob<T, R>,
    job: &Claimed<T>,
    on_err: End,
    result: Result<V, E>,
) -> Result<V, E> {
    match &result {
        Ok(_) => ended(job, kept.end(ClaimEnd::new(End::Complete)).await)?,
        Err(error) => drop(kept.end(ClaimEnd::failed(on_err, &error.to_string())).await),
    }
    result
}

/// The claimed rows of one type on one pool.
pub(crate) struct ClaimRows<T, R>(R, PhantomData<fn() -> T>);

impl<T: Claim> HeldRow for Claimed<T> {
    type End = ClaimEnd;
    type Error = Error;
    type Shown = Self;

    fn hold(&self) -> &Hold {
        Claimed::hold(self)
    }

    fn every(&self) -> Duration {
        every::<T>()
    }

    fn shown(&self) -> &Self {
        self
    }

    fn observer(&self) -> Option<&Observer<Self, Error>> {
        Claimed::observer(self)
    }

    fn shown_end(end: &ClaimEnd) -> End {
        end.end
    }
}

impl<T: Claim, R: Reach> Rows for ClaimRows<T, R> {
    type Row = Claimed<T>;

    const SENDS_HERE: bool = R::IS_ASYNC;
    const GATHERS: bool = true;

    async fn renew(&self, jobs: Vec<Claimed<T>>, times: Times) -> Result<Vec<Renewed>, Error> {
        self.0.send(Arc::new(Renew(jobs)), times).await
    }

    async fn settled(&self, jobs: Vec<Claimed<T>>, times: Times) -> Result<Vec<Settled>, Error> {
        self.0.send(Arc::new(Settle(jobs)), times).await
    }

    async fn end(
        &self,
        job: Claimed<T>,
        end: ClaimEnd,
        times: Times,
        is_here: bool,
    ) -> Result<bool, Error> {
        self.0
            .send_from(is_here, Arc::new(EndStep(job, end)), times)
            .await
    }

    async fn end_all(
        &self,
        ends: Vec<(Claimed<T>, ClaimEnd)>,
        times: Times,
        is_here: bool,
    ) -> Result<Vec<bool>, Error> {
        self.0
            .send_from(is_here, Arc::new(EndAllStep(ends)), times)
            .await
    }
}

/// The number of a claim, from 1, the time that it lasts if it was renewed, and otherwise whether it
/// was held at the last commit.
type RenewColumns = (BigInt, Nullable<Interval>, Bool);

/// Renews claims by one statement, without waiting for a locked row. One answer for each, in their
/// order.
struct Renew<T>(Vec<Claimed<T>>);

impl<T: Claim> Step for Renew<T> {
    type Answer = Vec<Renewed>;
    type Error = Error;

    const IS_RENEWAL: bool = true;

    async fn send<D: Queries>(&self, conn: &mut D) -> Result<Vec<Renewed>, Error> {
        let Some(first) = self.0.first() else {
            return Ok(Vec::new());
        };
        require_renewable(conn, first)?;
        let statement = Statement::<RenewColumns>::of::<T>(Form::RenewMany)
            .keys(self.0.iter().map(|job| &**job))
            .with("holders", Value::holders(self.0.iter()));
        let rows = load(conn, &statement).await;
        let rows: Vec<(i64, Option<PgInterval>, bool)> = rows?;
        let mut renewed: Vec<_> = self.0.iter().map(|_| Renewed::Gone).collect();
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
    }

    fn doubted(answers: Vec<Renewed>) -> Option<Vec<Renewed>> {
        let doubted = |answer| match answer {
            Renewed::Gone => Renewed::Busy,
            seen => seen,
        };
        Some(answers.into_iter().map(doubted).collect())
    }
}

/// Looks up the outcome of the transactions in which these claims were ended, without waiting for
/// them. One answer for each, in their order.
struct Settle<T>(Vec<Claimed<T>>);

impl<T: Claim> Step for Settle<T> {
    type Answer = Vec<Settled>;
    type Error = Error;

    async fn send<D: Queries>(&self, conn: &mut D) -> Result<Vec<Settled>, Error> {
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
                // A rollback to a savepoint may have undone the end, and another worker may have
                // claimed the row since.
                Some("committed") if !is_ours && !is_taken_since => Settled::Committed,
                // The transaction was rolled back, as a whole or to a savepoint. If the server does
                // not know it, the row decides.
                _ => Settled::RolledBack,
            }
        });
        Ok(settled.collect())
    }

    /// An open transaction is not an answer: the pool's connection may be the one that has it open.
    fn doubted(answers: Vec<Settled>) -> Option<Vec<Settled>> {
        (!answers.contains(&Settled::Open)).then_some(answers)
    }
}

struct EndStep<T>(Claimed<T>, ClaimEnd);

impl<T: Claim> Step for EndStep<T> {
    type Answer = bool;
    type Error = Error;

    async fn send<D: Queries>(&self, conn: &mut D) -> Result<bool, Error> {
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
    }

    fn doubted(is_ended: bool) -> Option<bool> {
        is_ended.then_some(true)
    }

    fn may_be_of_twin(is_ended: &bool) -> bool {
        !is_ended
    }
}

struct EndAllStep<T>(Vec<(Claimed<T>, ClaimEnd)>);

impl<T: Claim> Step for EndAllStep<T> {
    type Answer = Vec<bool>;
    type Error = Error;

    async fn send<D: Queries>(&self, conn: &mut D) -> Result<Vec<bool>, Error> {
        let ends = self.0.iter();
        let ends = ends.map(|(job, ClaimEnd { end, message })| (job, *end, Some(&**message)));
        let ends: Vec<_> = ends.collect();
        end_all(conn, &ends).await
    }

    /// Claims that were not ended here are ended one by one.
    fn doubted(are_ended: Vec<bool>) -> Option<Vec<bool>> {
        are_ended.contains(&true).then_some(are_ended)
    }

    fn may_be_of_twin(are_ended: &Vec<bool>) -> bool {
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
