//! Work under a claim: renewed while it goes on, stopped before the row can be another's, and ended as the work ends.

use super::claimed::Claimed;
use super::finish::{complete_on, fail_on, release_on};
use super::renewal::Renewal;
use super::table::{Claim, MaybeColumn};
use crate::error::is_connection_lost;
use crate::{Connection, Error, Pool};
use std::fmt::Display;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};
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
/// Nothing can drop work that blocks its thread.
///
/// # Locking
///
/// Every `#[claim(renew = …)]` the statement of [`renew`](super::renew), on a connection that the pool lends for it: a pool whose
/// connections are all held by work renews nothing. At the end that of [`complete`](super::complete), [`fail`](super::fail) or
/// [`release`](super::release), tried again while the claim lasts when the pool lends no connection or the connection is lost.
/// After a panic the claim expires, as after a crash: what panics always is tried once a ttl and not all the time.
///
/// # Errors
///
/// The work's own error as it is, also where failing or releasing the job has failed; then it expires. For the others
/// `E: From<Error>`: [`Error::LockLost`] when the claim was lost, so that somebody else may do the job: the work was dropped, or
/// has returned too late. [`Error::CommitUnknown`] when the connection was lost while the job was completed, and it may be.
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
    let ended = keep(pool, job, async {
        match work.await {
            Ok(result) => {
                complete(pool, job).await?;
                Ok(result)
            }
            Err(error) => {
                // The work's own error is not lost to what becomes of the claim.
                drop(give_up(pool, job, on_err, &error).await);
                Err(error)
            }
        }
    })
    .await;
    given_back.0 = None;
    ended.unwrap_or_else(|lost| Err(lost.into()))
}

/// Works under a claim as [`run`] does, and leaves the end of the job to the work or the caller.
///
/// Once the work has finished the job through `job`, it is neither renewed nor stopped any more.
///
/// # Locking
///
/// As [`run`], without its end.
///
/// # Errors
///
/// [`Error::LockLost`] when the claim was lost; the work was dropped. What the work returns is inside the `Ok`.
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
    let mut renewal = Some(Renewal::start(pool, job));
    // Behind the renewal, so that it is dropped before it.
    let mut work = pin!(work);
    let mut deadline = job.deadline();
    let mut alarm = pin!(sleep_until(deadline.into()));
    poll_fn(|context| {
        if let Some(running) = &mut renewal {
            let is_ended = running.poll_ended(context).is_ready();
            // Each renewal has moved it; the alarm is set anew once it rings.
            while alarm.as_mut().poll(context).is_ready() && job.deadline() > deadline {
                deadline = job.deadline();
                alarm.as_mut().reset(deadline.into());
            }
            if job.is_finished() {
                renewal = None;
            } else if is_ended || Instant::now() >= job.deadline() {
                return Poll::Ready(Err(job.lost()));
            }
        }
        work.as_mut().poll(context).map(Ok)
    })
    .await
}

/// Completes the job, however long it takes to reach the server: [`keep`] ends it in time.
async fn complete<T: Claim, P: Pool>(pool: &P, job: &Claimed<T>) -> Result<(), Error> {
    // An answer was lost, so that a refusal can be that of a job which is completed.
    let mut unknown = None;
    loop {
        let error = match attempt(pool, job).await {
            Err(Error::Database(source)) if is_connection_lost(&source) => {
                let lock = job.name().into();
                unknown = Some(Error::CommitUnknown { lock, source });
                None
            }
            Err(error @ Error::Pool(_)) => Some(error),
            Err(error @ Error::LockLost { .. }) => return Err(unknown.unwrap_or(error)),
            done => return done,
        };
        let again = Instant::now() + Duration::from_millis(100);
        if again >= job.deadline() {
            return Err(unknown.or(error).unwrap_or_else(|| job.lost()));
        }
        sleep_until(again.into()).await;
    }
}

async fn attempt<T: Claim, P: Pool>(pool: &P, job: &Claimed<T>) -> Result<(), Error> {
    complete_on(pool.connection().await?.pg(), job).await
}

async fn give_up<T: Claim, P: Pool>(
    pool: &P,
    job: &Claimed<T>,
    on_err: OnErr,
    error: &impl Display,
) -> Result<(), Error> {
    let message = error.to_string();
    let mut conn = pool.connection().await?;
    if on_err == OnErr::Fail && T::FailedAt::COLUMN.is_some() {
        fail_on(conn.pg(), job, &message).await
    } else {
        release_on(conn.pg(), job).await
    }
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
            && !job.is_finished()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (pool, job) = (pool.clone(), job.share());
            runtime.spawn(async move {
                if let Ok(mut conn) = pool.connection().await {
                    drop(release_on(conn.pg(), &job).await);
                }
            });
        }
    }
}
