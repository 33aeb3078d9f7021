//! Runs a body under a claim, which is renewed meanwhile and ends with the body. The body is
//! dropped before the claim expires.

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
/// A job that the body has completed, failed or released, such as in the transaction that writes
/// the results, is left as it is. The transaction must be over when the body returns; if it was
/// rolled back, the job ends then.
///
/// The body is dropped at the claim's [`deadline`](Claimed::deadline), or when a renewal is
/// refused. A body that blocks its thread cannot be dropped, nor can a task that it has spawned.
///
/// # Locking
///
/// The `UPDATE` of [`renew`](super::renew) every `#[claim(renew = …)]`, one for all rows that are
/// due, on a connection of the pool. It passes over a row that an open transaction has locked,
/// which is tried again until the claim expires. If the pool is exhausted or its connections do not
/// answer, the renewals of all rows of this pool and table share one connection outside the pool,
/// and the ends another one. At the end [`complete`](super::complete), [`fail`](super::fail) or
/// [`release`](super::release) on a connection of the pool, tried again until the claim's deadline
/// if the connection is lost or there is none, and for ten seconds if the server refuses it for a
/// reason that may pass, such as a `lock_timeout`. After a panic the claim expires, so a job that
/// always panics is tried once per ttl.
///
/// # Errors
///
/// The body's own error, even if the job could not be failed or released: then the claim expires.
/// Otherwise [`Error::Lost`] if the claim was lost and another worker may do the job: the body was
/// dropped, or returned too late. [`Error::CommitUnknown`] if the connection was lost, or did not
/// answer in time, while the job was being completed, also where the body has tried that itself.
/// [`Error::Pool`], [`Error::Database`].
///
/// # Panics
///
/// Outside a tokio runtime whose timer is enabled.
///
/// # Cancel safety
///
/// Cancel safe: the body is dropped, and the job is released in the background. After the body has
/// returned, the job is ended in the background as it would have been.
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
///         Ok::<_, Error>(())
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
    // It is renewed until the job has ended.
    let kept = keep(pool.identity(), || Pooled::new(pool.clone()), job);
    let mut kept = ReleaseOnDrop::new(kept.map_err(Error::Pool)?, ());
    let result = watch(job, body).await;
    let Some((kept, ())) = kept.take() else {
        return Err(job.gone().into());
    };
    end_as_returned(kept, job, on_err, result?).await
}

/// Runs a body under a claim as [`run`] does, but leaves it to the body or the caller to finish the
/// job.
///
/// After the job is finished through `job`, the body runs to its end, unless the transaction that
/// finished it is rolled back and the claim has expired.
///
/// # Locking
///
/// The renewals of [`run`]. If the job was finished inside a transaction, `SELECT … FOR SHARE` on
/// its row instead, which waits for the end of the transaction, and `pg_xact_status`, which tells
/// whether it was committed.
///
/// # Errors
///
/// [`Error::Lost`] if the claim was lost: the body was dropped, or blocked its thread until the
/// claim had expired. The same if the job was finished below a savepoint, in a transaction that
/// lasted longer than the claim, and another worker has claimed the row since.
/// [`Error::CommitUnknown`] if it was dropped while it waited for the statement that finishes the
/// job, or if such a statement got no answer before. What the body returns is inside the `Ok`.
///
/// # Cancel safety
///
/// Cancel safe: the body is dropped, and the claim is yours to finish, or expires.
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
    body: impl Future<Output = R>,
) -> Result<R, Error>
where
    T: Claim,
    P: Pool + Clone + Send + 'static,
{
    let _kept = keep(pool.identity(), || Pooled::new(pool.clone()), job)?;
    let result = watch(job, body).await?;
    if !job.is_finished() && job.hold().is_expired() {
        return Err(job.gone());
    }
    Ok(result)
}
