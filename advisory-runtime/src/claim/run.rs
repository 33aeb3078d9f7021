//! Runs work under a claim, which is renewed meanwhile and ends with the work. The work is dropped before the claim expires.

use super::Error;
use super::claimed::{Claimed, no_answer};
use super::ending::end;
use super::finish::{is_open_on, renew_on};
use super::on_err::{OnErr, every};
use super::sql::{How, text};
use super::table::Claim;
use crate::Pool;
use crate::renewal::{self, DedicatedAnswer, End, Renew, RenewalStep, Stop, Tenure};
use diesel_async::AsyncPgConnection;
use std::fmt::Display;
use std::time::Duration;
use tokio::task::JoinSet;

/// Works under a claim: renews it in the background, completes the job on `Ok`, and on `Err` ends it as `on_err` says.
///
/// `work` is a future, such as `sync(&job)`, which starts when this one is awaited. To complete the job with columns of yours, or
/// in the transaction that writes the results, let the work do so, here or under [`renew_while`]: a job that the work has completed, failed
/// or released is left as it is. If the work did so in a transaction that was rolled back, the job ends as the work returns. That
/// transaction must be over when the work returns.
///
/// The work is dropped at the claim's [`deadline`](Claimed::deadline), or when a renewal is refused. Work that blocks its thread
/// cannot be dropped, nor can a task that it has spawned.
///
/// # Locking
///
/// The statement of [`renew`](super::renew) every `#[claim(renew = …)]`, on a connection of the pool or, if the pool is exhausted,
/// on one opened beside it, at most two at a time in a process. At the end [`complete`](super::complete), [`fail`](super::fail) or
/// [`release`](super::release) on a connection of the pool, tried again until the claim's deadline if the connection is lost or there is
/// none, and for ten seconds if the server refuses it for a reason that may pass, such as a `lock_timeout`.
/// After a panic the claim expires, so a job that always panics is tried once per ttl.
///
/// # Errors
///
/// The work's own error, even if failing or releasing the job did not work: then the claim expires. Otherwise
/// [`Error::Lost`] if the claim was lost and another worker may do the job: the work was dropped, or returned too late.
/// [`Error::CommitUnknown`] if the connection was lost, or did not answer in time, while the job was being completed, also where
/// the work has tried that itself. [`Error::Pool`], [`Error::Database`].
///
/// # Panics
///
/// Outside a tokio runtime whose timer is enabled.
///
/// # Cancel safety
///
/// Cancel safe: the work is dropped, and the job is released in the background. After the work has returned, the job is ended in the
/// background as it would have been.
///
/// # Examples
///
/// ```no_run
/// # #[cfg(feature = "bb8")]
/// # mod jobs {
/// # use advisory_runtime::claim::{self, Claim, Claimed, Error, OnErr};
/// # use diesel_async::{AsyncPgConnection, pooled_connection::bb8::Pool};
/// async fn work<Job: Claim>(pool: &Pool<AsyncPgConnection>, job: &Claimed<Job>) -> Result<(), Error> {
///     claim::run(pool, job, OnErr::Release, async {
///         // … slow work outside of a transaction; its error releases the row …
///         Ok::<_, Error>(())
///     })
///     .await
/// }
/// # }
/// ```
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
    let mut guard = EndOnDrop {
        pool,
        job,
        on_err,
        result: Some(WorkResult::Dropped),
    };
    // The renewal goes on until the job has ended.
    let ended = match watch(pool, job, work).await {
        Ok((Ok(result), _renewal)) => match guard.end(WorkResult::Done).await {
            Ok(()) => Ok(result),
            Err(error) => Err(error.into()),
        },
        Ok((Err(error), _renewal)) => {
            let message = text(&error.to_string()).into_owned();
            // The work's own error counts, whether or not the claim could be ended.
            drop(guard.end(WorkResult::Failed(message)).await);
            Err(error)
        }
        Err(lost) => Err(lost.into()),
    };
    guard.result = None;
    ended
}

/// Works under a claim as [`run`] does, but leaves it to the work or the caller to finish the job.
///
/// Once the job is finished through `job`, the work is not dropped any more, unless the transaction that finished it is rolled back
/// and the claim has expired.
///
/// # Locking
///
/// The renewals of [`run`]. If the job was finished inside a transaction, `SELECT … FOR SHARE` on its row instead, which waits for the
/// end of the transaction, and `pg_xact_status`, which tells whether it was committed.
///
/// # Errors
///
/// [`Error::Lost`] if the claim was lost: the work was dropped, or blocked its thread until the claim had expired. The same if the job
/// was finished below a savepoint, in a transaction that lasted longer than the claim, and another worker has claimed the row since.
/// [`Error::CommitUnknown`] if it was dropped while it waited for the statement that finishes the job, or if such a statement got no
/// answer before. What the work returns is inside the `Ok`.
///
/// # Panics
///
/// As [`run`].
///
/// # Cancel safety
///
/// Cancel safe: the work is dropped, and the claim is yours to finish, or expires.
///
/// # Examples
///
/// ```no_run
/// # #[cfg(feature = "bb8")]
/// # mod jobs {
/// # use advisory_runtime::{Pool as _, claim::{self, Claim, Claimed, Error}};
/// # use diesel_async::{AsyncConnection, AsyncPgConnection, pooled_connection::bb8::Pool};
/// async fn export<Job: Claim>(pool: &Pool<AsyncPgConnection>, job: &Claimed<Job>) -> Result<(), Error> {
///     claim::renew_while(pool, job, async {
///         // … slow work outside of a transaction, and then:
///         let mut conn = pool.connection().await?;
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
pub async fn renew_while<T, P, R>(
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
    if !job.is_finished() && job.tenure().is_expired() {
        return Err(job.gone());
    }
    Ok(result)
}

/// Works until the claim is lost. The task that renews it ends when the returned set is dropped.
async fn watch<T: Claim, P, R>(
    pool: &P,
    job: &Claimed<T>,
    work: impl Future<Output = R>,
) -> Result<(R, JoinSet<()>), Error>
where
    P: Pool + Clone + Send + 'static,
{
    let row = RenewedRow {
        pool: pool.clone(),
        job: job.share(),
    };
    let every = every::<T>();
    let mut renewal = JoinSet::new();
    renewal.spawn(async move { renewal::renew_until_lost(&row, every).await });
    match renewal::watch(job.tenure(), None, || (), work).await {
        Ok(result) => Ok((result, renewal)),
        Err(Stop::Unanswered) => Err(job.unknown(no_answer())),
        Err(Stop::Lost | Stop::Exceeded) => Err(job.gone()),
    }
}

struct RenewedRow<T, P> {
    pool: P,
    job: Claimed<T>,
}

impl<T: Claim, P: Pool + Send + Sync> Renew for RenewedRow<T, P> {
    type Error = Error;

    fn tenure(&self) -> &Tenure {
        self.job.tenure()
    }

    async fn renew(&self, left: Duration) -> Result<bool, Error> {
        renewal::round_trip(&self.pool, self, DedicatedAnswer::Doubted, T::RENEW, left).await
    }

    async fn is_ended(&self, left: Duration) -> Result<bool, Error> {
        let step = IsOpen(&self.job);
        let is_open =
            renewal::round_trip(&self.pool, &step, DedicatedAnswer::Doubted, T::RENEW, left);
        Ok(!is_open.await?)
    }
}

impl<T: Claim, P: Pool + Send + Sync> RenewalStep for RenewedRow<T, P> {
    type Error = Error;

    async fn send(&self, conn: &mut AsyncPgConnection) -> Result<bool, Error> {
        renew_on(conn, &self.job).await
    }
}

/// Asks how the transaction that ended the claim has ended.
struct IsOpen<'j, T>(&'j Claimed<T>);

impl<T: Claim> RenewalStep for IsOpen<'_, T> {
    type Error = Error;

    async fn send(&self, conn: &mut AsyncPgConnection) -> Result<bool, Error> {
        is_open_on(conn, self.0).await
    }
}

/// What is known of the work.
enum WorkResult {
    Dropped,
    Done,
    /// With the error's text.
    Failed(String),
}

impl WorkResult {
    const fn how<T: Claim>(&self, on_err: OnErr) -> How<'_> {
        match self {
            Self::Dropped => How::Release,
            Self::Done => How::Complete,
            Self::Failed(message) => on_err.how::<T>(message.as_str()),
        }
    }
}

/// Ends the job in the background when its future is dropped, but not when its work panics: released, or as the work has returned.
struct EndOnDrop<'a, T, P>
where
    T: Claim,
    P: Pool + Clone + Send + 'static,
{
    pool: &'a P,
    job: &'a Claimed<T>,
    on_err: OnErr,
    /// `None` when nothing is left to do.
    result: Option<WorkResult>,
}

impl<T, P> EndOnDrop<'_, T, P>
where
    T: Claim,
    P: Pool + Clone + Send + 'static,
{
    async fn end(&mut self, result: WorkResult) -> Result<(), Error> {
        let how = self.result.insert(result).how::<T>(self.on_err);
        end(self.pool, self.job, how).await
    }
}

impl<T, P> Drop for EndOnDrop<'_, T, P>
where
    T: Claim,
    P: Pool + Clone + Send + 'static,
{
    fn drop(&mut self) {
        if let Some(result) = self.result.take()
            && !std::thread::panicking()
            && self.job.tenure().end() != End::Done
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (pool, job, on_err) = (self.pool.clone(), self.job.share(), self.on_err);
            runtime.spawn(async move { drop(end(&pool, &job, result.how::<T>(on_err)).await) });
        }
    }
}
