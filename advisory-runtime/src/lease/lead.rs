//! Leader election: campaigns for a lease without end.

use super::{Error, Event, Lease, Request, Source};
use crate::Wait;
use crate::random::jitter;
use crate::rows::unless;
use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};

/// How long a campaign waits for the end of its lease. After that the keeper goes on without it.
const LAST_END: Duration = Duration::from_secs(5);

/// Campaigns without end: waits until the key is free, runs the body while this process leads, and
/// campaigns again.
///
/// The body gets the lease of its term, whose token is larger than that of every earlier term. The
/// body is dropped before the lease expires; tasks that it has spawned are not, and wait for
/// [`Lease::lost`]. When the body returns `Ok`, the leadership is given up, and this process
/// campaigns again after a pause. When the body returns `Err`, the campaign ends: handle in the
/// body what the next term can survive, such as a lost connection, and return `Ok`. To give up the
/// leadership at shutdown use [`lead_until`]: if this future is dropped, the release runs in the
/// background, and a runtime that is shutting down may not carry it out.
///
/// An async closure cannot change a variable of its own: keep the value in an atomic, or in an
/// `Arc<Mutex<_>>` that each term clones. (An `AsyncFnMut` could lend it, but then the returned
/// future would not be `Send`, which a spawned campaign must be.)
///
/// A failed acquisition is tried again, at least once a second, unless no later try could succeed.
/// The feature `tracing` or `metrics` shows it.
///
/// # Locking
///
/// As [`Leases::acquire`](super::Leases::acquire). The request's `wait` and `keep` are ignored. A
/// key that another request has kept is tried again until it is free.
///
/// # Errors
///
/// The body's own. [`Error::Invalid`], [`Error::KeyTooLong`], [`Error::MissingTable`],
/// [`Error::MissingRights`], [`Error::NoRuntime`], and in debug builds [`Error::SelfDeadlock`].
/// Every other error of an acquisition is tried again.
///
/// # Cancel safety
///
/// Cancel safe: the body is dropped, and the lease is released in the background.
///
/// # Examples
///
/// See [leader election](crate::guide::leadership).
///
/// ```no_run
/// use advisory_runtime::lease::{self, Error, Request, Source};
/// use std::convert::Infallible;
///
/// async fn serve(pool: &impl Source) -> Result<Infallible, Error> {
///     lease::lead(pool, Request::text("scheduler"), async |term| {
///         while term.is_held() {
///             // … one round of the leader's work …
/// #           tokio::task::yield_now().await;
///         }
///         Ok(()) // and campaigns again
///     })
///     .await
/// }
/// ```
pub async fn lead<E: From<Error>, F: Future<Output = Result<(), E>>>(
    source: &impl Source,
    request: impl Into<Request>,
    body: impl FnMut(Lease) -> F,
) -> Result<Infallible, E> {
    lead_until(source, request, pending(), body).await?;
    pending().await
}

/// Campaigns as [`lead`] does until `shutdown` resolves. Then it drops the body, gives up the
/// leadership, also one that is just being granted, and returns `Ok` when the server has answered,
/// after 5 seconds at most.
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::lease::{self, Error, Request, Source};
///
/// async fn serve(pool: &impl Source, stop: impl Future<Output = ()>) -> Result<(), Error> {
///     lease::lead_until(pool, Request::text("scheduler"), stop, async |term| {
///         // Dropped when the lease is lost, or `stop` is ready.
///         println!("this process leads with the token {:?}", term.token());
///         std::future::pending().await
///     })
///     .await
/// }
/// ```
pub async fn lead_until<E: From<Error>, F: Future<Output = Result<(), E>>>(
    source: &impl Source,
    request: impl Into<Request>,
    shutdown: impl Future<Output = ()>,
    mut body: impl FnMut(Lease) -> F,
) -> Result<(), E> {
    let mut shutdown = pin!(shutdown);
    let mut request = request.into().with_origin().wait(Wait::Forever);
    request.keep = None;
    let leases = source.leases();
    let mut is_reached = true;
    loop {
        // A campaign is long, so its large futures are boxed.
        let (alive, ended) = oneshot::channel();
        let acquired = Box::pin(leases.acquire_recorded(request.clone(), Some(alive)));
        match unless(shutdown.as_mut(), acquired).await {
            None => {
                // A try on its way may be granted, and is released then.
                drop(timeout(LAST_END, ended).await);
                return Ok(());
            }
            Some(Ok(mut held)) => {
                if !std::mem::replace(&mut is_reached, true) {
                    leases.notify(Event::Reconnected);
                }
                let term = body(held.lease().clone());
                let led = unless(shutdown.as_mut(), Box::pin(held.run(term))).await;
                match led {
                    None | Some(Ok(_)) => {
                        // The term is over, also if the lease was lost.
                        let finished = Box::pin(held.finish(Ok::<_, Error>(())));
                        drop(timeout(LAST_END, finished).await);
                        let Some(led) = led else { return Ok(()) };
                        led??;
                    }
                    // The term was lost.
                    Some(Err(_)) => drop(held),
                }
            }
            Some(Err(error)) if is_permanent(&error) => return Err(error.into()),
            // Such as an unreachable server, a locked table, or a server that is out of memory or
            // read only for a while.
            Some(Err(error)) => {
                leases.notify(match error {
                    Error::Pool(_) | Error::BrokenConnection { .. } => Event::NoConnection(&error),
                    _ => Event::Refused(&error),
                });
                is_reached = false;
            }
        }
        // Gives other processes a chance.
        let pause = request.every().min(Duration::from_secs(1));
        let pause = sleep_until(Instant::now() + jitter(pause));
        if unless(shutdown.as_mut(), pause).await.is_none() {
            return Ok(());
        }
    }
}

/// Returns `true` if every later try would fail too, unless somebody changes the program or the
/// database.
const fn is_permanent(error: &Error) -> bool {
    matches!(
        error,
        Error::Invalid { .. }
            | Error::KeyTooLong { .. }
            | Error::MissingTable { .. }
            | Error::MissingRights { .. }
            | Error::NoRuntime { .. }
            | Error::SelfDeadlock { .. }
    )
}
