//! How does work run under a claim: renewed meanwhile, stopped before the row can be another's, and ended as the work ends?

use super::claimed::{Claimed, no_answer};
use super::ending::end;
use super::finish::renew_on;
use super::sql::{How, text};
use super::table::{Claim, MaybeColumn};
use crate::renewal::{self, Dedicated, End, Hold, Renew, Step, Stop};
use crate::{Error, Pool};
use diesel_async::AsyncPgConnection;
use std::fmt::Display;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Between two renewals.
const SHORTEST: Duration = Duration::from_millis(10);

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
/// Every `#[claim(renew = …)]` the statement of [`renew`](super::renew), on a connection of the pool; if work holds
/// them all, on one that is opened beside it, at most two at a time in a process. At the end that of
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
    let mut give_back = GiveBack(Some((pool, job)));
    // The renewal goes on until the job is ended, however long that takes.
    let ended = match watch(pool, job, work).await {
        Ok((Ok(result), _renewal)) => match end(pool, job, How::Complete).await {
            Ok(()) => Ok(result),
            Err(error) => Err(error.into()),
        },
        Ok((Err(error), _renewal)) => {
            let message = error.to_string();
            let message = text(&message);
            let how = match on_err {
                OnErr::Fail if T::FailedAt::COLUMN.is_some() => How::Fail(&message),
                OnErr::Fail | OnErr::Release => How::Release,
            };
            // The work's own error is not lost to what becomes of the claim.
            drop(end(pool, job, how).await);
            Err(error)
        }
        Err(lost) => Err(lost.into()),
    };
    give_back.0 = None;
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
    let (result, _) = watch(pool, job, work).await?;
    // Work that blocks its thread could not be dropped.
    if !job.is_finished() && job.hold().is_expired() {
        return Err(job.lost());
    }
    Ok(result)
}

/// Works until the claim is lost, renewed by a task that ends with this future.
async fn watch<T: Claim, P, R>(
    pool: &P,
    job: &Claimed<T>,
    work: impl Future<Output = R>,
) -> Result<(R, Renewal), Error>
where
    P: Pool + Clone + Send + 'static,
{
    let renewal = Renewal::start(pool, job);
    match renewal::watch(job.hold(), None, || (), work).await {
        Ok(result) => Ok((result, renewal)),
        Err(Stop::Unanswered) => Err(job.unknown(no_answer())),
        Err(Stop::Lost | Stop::Exceeded) => Err(job.lost()),
    }
}

/// The task that renews a claim, until dropped.
struct Renewal(JoinHandle<()>);

impl Renewal {
    fn start<T, P>(pool: &P, job: &Claimed<T>) -> Self
    where
        T: Claim,
        P: Pool + Clone + Send + 'static,
    {
        let row = Renewed {
            pool: pool.clone(),
            job: job.share(),
        };
        // A renewal that comes too late would be none; one after the other without a pause would keep a connection busy.
        let every = T::RENEW.min(job.ttl() / 2).max(SHORTEST);
        Self(tokio::spawn(async move {
            renewal::renew_until_lost(&row, every).await;
        }))
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Renewed<T, P> {
    pool: P,
    job: Claimed<T>,
}

impl<T: Claim, P: Pool + Send + Sync> Renew for Renewed<T, P> {
    fn hold(&self) -> &Hold {
        self.job.hold()
    }

    async fn renew(&self, left: Duration) -> Result<bool, Error> {
        renewal::round_trip(&self.pool, self, Dedicated::Doubted, T::RENEW, left).await
    }
}

impl<T: Claim, P: Pool + Send + Sync> Step for Renewed<T, P> {
    async fn send(&self, conn: &mut AsyncPgConnection) -> Result<bool, Error> {
        renew_on(conn, &self.job).await
    }
}

/// Gives the job back when its work is dropped, not when it panics.
struct GiveBack<'a, T, P>(Option<(&'a P, &'a Claimed<T>)>)
where
    T: Claim,
    P: Pool + Clone + Send + 'static;

impl<T, P> Drop for GiveBack<'_, T, P>
where
    T: Claim,
    P: Pool + Clone + Send + 'static,
{
    fn drop(&mut self) {
        if let Some((pool, job)) = self.0.take()
            && !std::thread::panicking()
            && job.hold().end() != End::Done
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (pool, job) = (pool.clone(), job.share());
            runtime.spawn(async move { drop(end(&pool, &job, How::Release).await) });
        }
    }
}
