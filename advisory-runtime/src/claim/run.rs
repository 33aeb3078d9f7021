//! Runs a body under a claim, renews the claim meanwhile, and drops the body before the claim
//! expires.

use super::Error;
use super::claimed::Claimed;
use super::rows::{ReleaseOnDrop, end_as_returned, keep, watch};
use super::table::Claim;
use crate::Pool;
use crate::rows::{End, Pooled};
use std::fmt::Display;

/// Runs a body under a claim: renews it in the background, completes the job on `Ok`, and on `Err`
/// ends it as `on_err` says.
///
/// A job that the body itself has completed, failed or released, such as in the transaction that
/// writes the results, stays as it is. That transaction must have ended when the body returns. If
/// it was rolled back, this function ends the job.
///
/// The body is dropped at the claim's [`deadline`](Claimed::deadline), or when a renewal is
/// refused. A body that blocks its thread cannot be dropped, nor can a task that it has spawned.
///
/// # Locking
///
/// The `UPDATE` of [`renew`](super::renew) every `#[claim(renew = …)]`, on a connection of the
/// pool. One statement renews all rows that are due. It passes over a row that an open transaction
/// has locked, and tries it again until the claim expires.
///
/// At the end the statement of [`complete`](super::complete), [`fail`](super::fail) or
/// [`release`](super::release), on a connection of the pool. If the pool gives no connection, or
/// the connection is lost, the end is tried again until the claim's deadline. If the server refuses
/// it for a reason that may be temporary, such as a `lock_timeout`, the end is tried again for ten
/// seconds.
///
/// If the pool is exhausted or its connections do not answer, the renewals of all rows of this pool
/// and table share one connection outside the pool, and the ends another one. After a panic the
/// claim expires, so a job that always panics is tried once per ttl.
///
/// # Errors
///
/// The body's own error, even if the job could not be failed or released; the claim then expires.
/// [`Error::Lost`] if the claim was lost and another worker may run the job: the body was dropped,
/// or returned too late. [`Error::CommitUnknown`] if the connection was lost or did not answer in
/// time while the job was being completed, by the body or after it. [`Error::Pool`] and
/// [`Error::Database`].
///
/// # Panics
///
/// Panics if called outside of a tokio runtime with an enabled timer.
///
/// # Cancel safety
///
/// Cancel safe: the body is dropped, and the job is released in the background. If the body has
/// returned already, its result decides how the job is ended in the background.
///
/// # Examples
///
/// ```no_run
/// # #[cfg(feature = "bb8")]
/// # mod jobs {
/// # use advisory_runtime::claim::{self, Claim, Claimed, End, Error};
/// # use diesel_async::{AsyncPgConnection, pooled_connection::bb8::Pool};
/// async fn work<Job: Claim>(pool: &Pool<AsyncPgConnection>, job: &Claimed<Job>) -> Result<(), Error> {
///     claim::run(pool, job, End::Release, async {
///         // … slow work outside of a transaction; its error releases the row …
///         Ok(())
///     })
///     .await
/// }
/// # }
/// ```
pub async fn run<T, P, R, E>(
    pool: &P,
    job: &Claimed<T>,
    on_err: End,
    body: impl Future<Output = Result<R, E>>,
) -> Result<R, E>
where
    T: Claim,
    P: Pool + Clone + Send + 'static,
    E: From<Error> + Display,
{
    let renewal = keep(pool, pool.identity(), Pooled::new, job);
    let mut renewal = ReleaseOnDrop::new(renewal.map_err(Error::Pool)?, ());
    let result = watch(job, body).await;
    let Some((renewal, ())) = renewal.take() else {
        return Err(job.gone().into());
    };
    end_as_returned(renewal, job, on_err, result?).await
}

/// Runs a body under a claim like [`run`], but leaves it to the body or the caller to finish the
/// job.
///
/// After the job is finished through `job`, the body runs to its end, unless the transaction that
/// finished it is rolled back and the claim has expired.
///
/// # Locking
///
/// The renewals of [`run`]. After the job is finished inside a transaction, they are replaced by a
/// `SELECT` of `pg_xact_status`, which reads without waiting whether the transaction was committed.
///
/// # Errors
///
/// [`Error::Lost`] if the claim was lost: the body was dropped, or blocked its thread until the
/// claim had expired. Also [`Error::Lost`] if the job was finished below a savepoint in a
/// transaction that lasted longer than the claim, and another worker has claimed the row since.
/// [`Error::CommitUnknown`] if the body was dropped while it waited for the statement that finishes
/// the job, or if an earlier such statement got no answer. A value or error that the body returns
/// is inside the `Ok`.
///
/// # Cancel safety
///
/// Cancel safe: the body is dropped, and you can still finish the claim, which otherwise expires.
///
/// # Examples
///
/// ```no_run
/// # #[cfg(feature = "bb8")]
/// # mod jobs {
/// # use advisory_runtime::{Pool as _, claim::{self, Claim, Claimed, Error}};
/// # use diesel_async::{AsyncConnection, AsyncPgConnection, pooled_connection::bb8::Pool};
/// async fn export<Job: Claim>(
///     pool: &Pool<AsyncPgConnection>,
///     job: &Claimed<Job>,
/// ) -> Result<(), Error> {
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
    body: impl Future<Output = R>,
) -> Result<R, Error>
where
    T: Claim,
    P: Pool + Clone + Send + 'static,
{
    let _kept = keep(pool, pool.identity(), Pooled::new, job)?;
    let result = watch(job, body).await?;
    if !job.is_finished() && job.hold().is_expired() {
        return Err(job.gone());
    }
    Ok(result)
}
