//! How does one process of several lead?

use super::backoff::chance;
use super::store::{Store, is_unreachable};
use super::{Lease, Leases, Request, Source};
use crate::{Error, Wait};
use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Campaigns for ever: waits until the key is free, runs the body while this process leads, and campaigns again.
///
/// The body gets the lease of its term, whose token is larger than in each earlier term, whichever process led in it. It is dropped
/// before the lease is lost; tasks that it has spawned are not, and learn it from [`Lease::lost`]. After its `Ok` the leadership is given up, and this process campaigns again when the
/// others had a chance. While the server cannot be reached, it tries on. To give the leadership up when the process shuts down, use
/// [`lead_until`]; dropping this future gives it up in the background, which a runtime that ends may not carry out.
///
/// # Locking
///
/// As [`Leases::acquire`](super::Leases::acquire). The request's `wait` and `keep` do not count.
///
/// # Errors
///
/// The body's own. [`Error::InvalidLease`], [`Error::KeyTooLong`], [`Error::MissingTable`], [`Error::NoRuntime`] and what the server
/// refuses for another reason: trying again would not help.
///
/// # Cancel safety
///
/// Cancel safe in that nothing is left: the body is dropped, and the lease is released in the background.
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::lease::{self, Request};
/// use advisory_runtime::{Error, Pool as _};
/// use diesel_async::pooled_connection::bb8::Pool;
/// use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
/// use std::time::Duration;
///
/// async fn run(pool: Pool<AsyncPgConnection>) -> Result<std::convert::Infallible, Error> {
///     lease::lead(&pool, Request::text("cleanup").ttl(Duration::from_secs(15)), async |term| {
///         let mut minute = tokio::time::interval(Duration::from_secs(60));
///         loop {
///             minute.tick().await;
///             let mut conn = pool.connection().await?;
///             conn.transaction(async |conn| {
///                 term.fence(conn).await?; // refused when another process leads by now
///                 diesel::sql_query("DELETE FROM session WHERE expires < now()").execute(conn).await?;
///                 Ok::<_, Error>(())
///             })
///             .await?;
///         }
///     })
///     .await
/// }
/// ```
pub async fn lead<E, F>(
    source: &impl Source,
    request: impl Into<Request>,
    body: impl FnMut(Lease) -> F,
) -> Result<Infallible, E>
where
    E: From<Error>,
    F: Future<Output = Result<(), E>>,
{
    lead_until(source, request, pending(), body).await?;
    pending().await
}

/// As [`lead`], until `shutdown` resolves: then the body is dropped, the leadership is given up at once, and `Ok` is returned when the
/// server has been told.
///
/// # Locking
///
/// As [`lead`].
///
/// # Errors
///
/// As [`lead`].
///
/// # Cancel safety
///
/// As [`lead`].
pub async fn lead_until<E, F>(
    source: &impl Source,
    request: impl Into<Request>,
    shutdown: impl Future<Output = ()>,
    mut body: impl FnMut(Lease) -> F,
) -> Result<(), E>
where
    E: From<Error>,
    F: Future<Output = Result<(), E>>,
{
    let mut shutdown = pin!(shutdown);
    let mut request = request.into().wait(Wait::Forever);
    request.keep = None;
    let campaign = Campaign {
        leases: source.leases(),
        request,
    };
    while !campaign.term(shutdown.as_mut(), &mut body).await? {}
    Ok(())
}

struct Campaign<S> {
    leases: Leases<S>,
    request: Request,
}

impl<S: Store> Campaign<S> {
    /// Campaigns and leads once. Whether `shutdown` has ended it.
    async fn term<E: From<Error>, F: Future<Output = Result<(), E>>>(
        &self,
        shutdown: impl Future<Output = ()>,
        body: &mut impl FnMut(Lease) -> F,
    ) -> Result<bool, E> {
        let mut shutdown = pin!(shutdown);
        // Boxed, as what follows: a campaign lasts for long, and should not be large in its caller.
        let acquired = Box::pin(self.leases.acquire(self.request.clone()));
        let Some(acquired) = unless(shutdown.as_mut(), acquired).await else {
            return Ok(true);
        };
        let mut held = match acquired {
            Ok(held) => held,
            Err(error) => {
                if error.is_busy()
                    || is_unreachable(&error)
                    || matches!(error, Error::Standby { .. })
                {
                    return Ok(self.pause(shutdown).await);
                }
                return Err(error.into());
            }
        };
        let term = body(held.lease().clone());
        let Some(led) = unless(shutdown.as_mut(), Box::pin(held.run(term))).await else {
            drop(Box::pin(held.finish(Ok::<_, Error>(()))).await);
            return Ok(true);
        };
        match led {
            Ok(result) => {
                // Lost or not: there is nothing to keep.
                drop(Box::pin(held.finish(Ok::<_, Error>(()))).await);
                result?;
            }
            Err(Error::LockLost { .. } | Error::HoldExceeded { .. }) => drop(held),
            Err(error) => return Err(error.into()),
        }
        Ok(self.pause(shutdown).await)
    }

    /// Leaves the others a chance. Whether `shutdown` came.
    async fn pause(&self, shutdown: impl Future<Output = ()>) -> bool {
        let pause = self.request.every().min(Duration::from_secs(1));
        let until = Instant::now() + pause.mul_f64(0.5 + 0.5 * chance());
        unless(pin!(shutdown), sleep_until(until)).await.is_none()
    }
}

/// The future's output, or `None` when the shutdown comes first.
async fn unless<T>(
    mut shutdown: Pin<&mut impl Future<Output = ()>>,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| {
        if shutdown.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        future.as_mut().poll(context).map(Some)
    })
    .await
}
