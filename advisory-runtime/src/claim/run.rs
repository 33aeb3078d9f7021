//! Work under a claim: renewed while it goes on, stopped before the row can be another's, and ended as the work ends.

use super::claimed::{Claimed, End, no_answer};
use super::ending::{Ending, end};
use super::renewal::Renewal;
use super::table::{Claim, MaybeColumn};
use crate::{Error, Pool};
use std::fmt::Display;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};
use tokio::time::sleep_until;

/// What becomes of a job whose work returns `Err`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnErr {
    /// It failed for good, with the error's text as its message; given back where the table has no `failed_at`.
    Fail,
    /// It is given back, and whoever comes next gets it: keep a count of your own, else what always fails is tried for ever.
    Release,
}

/// Works under a claim: renews it in the background, completes the job on `Ok`, and on `Err` ends it as `on_err` says.
///
/// `work` is a future, such as `sync(&job)`; it begins when this is awaited. To complete with columns of your own, or in a
/// transaction with the results, use [`keep`].
///
/// The work is dropped before the claim can expire ([`Claimed::deadline`]), when a renewal is refused or none has got through.
/// Nothing can drop work that blocks its thread, or a task that it has spawned.
///
/// # Locking
///
/// Every `#[claim(renew = …)]` the statement of [`renew`](super::renew), on a connection that the pool lends at once; where work
/// holds them all on one that is opened beside it, at most two at a time in a process. At the end that of
/// [`complete`](super::complete), [`fail`](super::fail) or [`release`](super::release), tried again when the pool lends no connection
/// or the connection is lost, for as long as the claim lasted when the work was over.
/// After a panic the claim expires, as after a crash: what panics always is tried once a ttl and not all the time.
///
/// # Errors
///
/// The work's own error as it is, also where failing or releasing the job has failed; then it expires. For the others
/// `E: From<Error>`: [`Error::LockLost`] when the claim was lost, so that somebody else may do the job: the work was dropped, or
/// has returned too late. [`Error::CommitUnknown`] when the connection was lost, or did not answer in time, while the job was
/// completed, and it may be.
/// [`Error::Pool`], [`Error::Database`].
///
/// # Panics
///
/// Outside a tokio runtime whose timer is enabled.
///
/// # Cancel safety
///
/// Cancel safe: the work is dropped, and then the job is given back in the background, at the latest when it expires.
///
/// # Examples
///
/// The page of [the module](super) has one.
pub async fn run<T, P, R, E>(
    pool: &P,
    job: &Claimed<T>,
    on_err: OnErr,
    work: impl Future<Output = Result<R, E>>,
) -> Result<R, E>
where
    T: Claim,
    P: Pool + Clone + Send + 'static,
    E: From<Error> + Display,
{
    let mut given_back = GivenBack(Some((pool, job)));
    // To the very end: that the job is ended takes as long as it takes.
    let mut renewal = Some(Renewal::start(pool, job));
    let ended = match watch(&mut renewal, job, work).await {
        Ok(Ok(result)) => match end(pool, job, Ending::Complete).await {
            Ok(()) => Ok(result),
            Err(error) => Err(error.into()),
        },
        Ok(Err(error)) => {
            let message = error.to_string();
            let ending = match on_err {
                OnErr::Fail if T::FailedAt::COLUMN.is_some() => Ending::Fail(&message),
                OnErr::Fail | OnErr::Release => Ending::Release,
            };
            // The work's own error is not lost to what becomes of the claim.
            drop(end(pool, job, ending).await);
            Err(error)
        }
        Err(lost) => Err(lost.into()),
    };
    given_back.0 = None;
    ended
}

/// Works under a claim as [`run`] does, and leaves the end of the job to the work or the caller.
///
/// Once the work has finished the job through `job`, it is neither renewed nor stopped any more; unless that was in a transaction
/// that is rolled back.
///
/// # Locking
///
/// As [`run`], without its end.
///
/// # Errors
///
/// [`Error::LockLost`] when the claim was lost: the work was dropped, or has kept its thread until the claim had expired.
/// [`Error::CommitUnknown`] when it was dropped while it waited for the end of the job. What the work returns is inside the `Ok`.
///
/// # Panics
///
/// As [`run`].
///
/// # Cancel safety
///
/// Cancel safe: the work is dropped, and the claim is left to you, or to expire.
///
/// # Examples
///
/// ```no_run
/// # #[cfg(feature = "bb8")]
/// # mod jobs {
/// # use advisory_runtime::{Error, claim::{self, Claim, Claimed}};
/// # use diesel_async::{AsyncConnection, AsyncPgConnection, pooled_connection::bb8::Pool};
/// async fn export<Job: Claim>(pool: &Pool<AsyncPgConnection>, job: &Claimed<Job>) -> Result<(), Error> {
///     claim::keep(pool, job, async {
///         // … slow work outside of a transaction, and then at once:
///         let mut conn = pool.get().await.map_err(|error| Error::Pool(Box::new(error)))?;
///         conn.transaction(async |conn| {
///             // … the job's results …
///             claim::complete(conn, job).await
///         })
///         .await
///     })
///     .await?
/// }
/// # }
/// ```
pub async fn keep<T, P, R>(
    pool: &P,
    job: &Claimed<T>,
    work: impl Future<Output = R>,
) -> Result<R, Error>
where
    T: Claim,
    P: Pool + Clone + Send + 'static,
{
    let result = watch(&mut Some(Renewal::start(pool, job)), job, work).await?;
    // What has kept its thread could not be dropped.
    if !job.is_finished() && job.is_expired() {
        return Err(job.lost());
    }
    Ok(result)
}

/// Works until the claim is lost: until then it is renewed, and until it is ended.
async fn watch<T: Claim, R>(
    renewal: &mut Option<Renewal>,
    job: &Claimed<T>,
    work: impl Future<Output = R>,
) -> Result<R, Error> {
    let mut work = pin!(work);
    let mut deadline = job.deadline();
    let mut alarm = pin!(sleep_until(deadline.into()));
    poll_fn(|context| {
        if let Some(lost) = lost(renewal, job, context) {
            return Poll::Ready(Err(lost));
        }
        // Each renewal has moved it; the alarm is set anew once it rings.
        while alarm.as_mut().poll(context).is_ready() && job.deadline() > deadline {
            deadline = job.deadline();
            alarm.as_mut().reset(deadline.into());
        }
        if let Poll::Ready(result) = work.as_mut().poll(context) {
            return Poll::Ready(Ok(result));
        }
        // The work may have tried to end the job, and been refused.
        match lost(renewal, job, context) {
            Some(lost) => Poll::Ready(Err(lost)),
            None => Poll::Pending,
        }
    })
    .await
}

/// Why the claim is nothing to work under any more. Once it was ended there is nothing to lose, nor to renew.
fn lost<T: Claim>(
    renewal: &mut Option<Renewal>,
    job: &Claimed<T>,
    context: &mut Context<'_>,
) -> Option<Error> {
    let is_ended = renewal.as_mut()?.is_ended(context);
    match job.end() {
        End::No if is_ended || job.is_overdue() => return Some(job.lost()),
        // Where the statement has ended the job, renewals are refused before its answer is here.
        End::Asked if job.is_overdue() => return Some(job.unknown(no_answer())),
        // Refused since, so it was committed.
        End::Inside(_) if is_ended => *renewal = None,
        End::Yes => *renewal = None,
        End::No | End::Asked | End::Inside(_) => {}
    }
    None
}

/// Gives the job back when its work is dropped, not when it panics.
struct GivenBack<'a, T, P>(Option<(&'a P, &'a Claimed<T>)>)
where
    T: Claim,
    P: Pool + Clone + Send + 'static;

impl<T, P> Drop for GivenBack<'_, T, P>
where
    T: Claim,
    P: Pool + Clone + Send + 'static,
{
    fn drop(&mut self) {
        if let Some((pool, job)) = self.0.take()
            && !std::thread::panicking()
            && job.end() != End::Yes
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (pool, job) = (pool.clone(), job.share());
            runtime.spawn(async move { drop(end(&pool, &job, Ending::Release).await) });
        }
    }
}
