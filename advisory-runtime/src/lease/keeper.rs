//! The task behind a lease: it waits for it, renews it, and releases it, also when nobody waits for the answer any more.
//!
//! One task from the first try on, so that a grant whose caller is gone meanwhile is released like any other.

use super::acquire::Grant;
use super::patience::{Patience, Refusal};
use super::{Event, Lease, Leases, Request};
use crate::driver::Driver;
use crate::pool::{self, BESIDE, Pool};
use crate::{Connection, Error};
use diesel_async::AsyncPgConnection;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};

/// How a lease ends.
#[derive(Debug)]
pub(super) struct Finish {
    /// How long the key stays taken.
    pub(super) keep: Option<Duration>,
    pub(super) reply: oneshot::Sender<Result<bool, Error>>,
}

/// What is done with a lease in one round trip.
#[derive(Clone, Copy, Debug)]
enum Step {
    Renew(Duration),
    Release,
    Keep(Duration),
}

/// A server that does not answer for so long is not reached.
const UNANSWERED: Duration = Duration::from_secs(10);

pub(super) async fn keep<P: Pool + Clone + Send + 'static>(
    leases: Leases<P>,
    request: Request,
    mut ready: oneshot::Sender<Result<Lease, Error>>,
    mut finished: oneshot::Receiver<Finish>,
) {
    let lease = match acquire(&leases, &request, &mut ready).await {
        Some(Ok(lease)) => lease,
        Some(Err(error)) => {
            if error.is_busy() {
                let (lock, waited) = (&request.name(), waited(&error));
                leases.tell(Event::Busy { lock, waited });
            }
            drop(ready.send(Err(error)));
            return;
        }
        None => return,
    };
    leases.tell(Event::Acquired(&lease));
    if ready.send(Ok(lease.clone())).is_err() {
        return end(&leases, &lease, None, None).await;
    }
    let finish = renew(&leases, &lease, &request, &mut finished).await;
    let (keep, reply) = finish.map_or((None, None), |finish| (finish.keep, Some(finish.reply)));
    end(&leases, &lease, keep, reply).await;
}

fn waited(error: &Error) -> Duration {
    match error {
        Error::TimedOut { waited, .. } => *waited,
        _ => Duration::ZERO,
    }
}

/// `None` when nobody wants it any more.
async fn acquire<P: Pool + Clone + Send + 'static>(
    leases: &Leases<P>,
    request: &Request,
    ready: &mut oneshot::Sender<Result<Lease, Error>>,
) -> Option<Result<Lease, Error>> {
    let mut patience = Patience::new(request);
    loop {
        match attempt(leases, &patience, request, ready).await? {
            Ok(Ok(grant)) => {
                return Some(Ok(grant.lease(&leases.table, request, patience.waited())));
            }
            Ok(Err(refusal)) => {
                let waited = unless_closed(ready, patience.wait(refusal)).await?;
                if let Err(error) = waited {
                    return Some(Err(error));
                }
            }
            Err(error) => return Some(Err(error)),
        }
    }
}

/// One try; `None` when nobody wants it any more.
async fn attempt<P: Pool + Clone + Send + 'static>(
    leases: &Leases<P>,
    patience: &Patience,
    request: &Request,
    ready: &mut oneshot::Sender<Result<Lease, Error>>,
) -> Option<Result<Result<Grant, Refusal>, Error>> {
    #[cfg(feature = "testing")]
    if let Some(memory) = leases.pool.memory() {
        return Some(Ok(memory.attempt(request, &leases.table.0.holder)));
    }
    // Borrowed for one try: who waits holds no connection.
    let borrowed = unless_closed(ready, connection(leases, patience, request)).await?;
    Some(match borrowed {
        Ok(mut conn) => leases.table.attempt(conn.pg(), request).await,
        Err(error) => Err(error),
    })
}

async fn connection<'p, P: Pool>(
    leases: &'p Leases<P>,
    patience: &Patience,
    request: &Request,
) -> Result<P::Lent<'p>, Error> {
    let Some(bound) = patience.left() else {
        return leases.pool.connection().await;
    };
    match timeout(bound, leases.pool.connection()).await {
        Ok(borrowed) => borrowed,
        Err(_) => Err(Error::TimedOut {
            lock: request.name(),
            waited: patience.waited(),
            source: None,
        }),
    }
}

/// What the future gives, unless nobody waits for the lease any more.
async fn unless_closed<T>(
    ready: &mut oneshot::Sender<Result<Lease, Error>>,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| {
        if ready.poll_closed(context).is_ready() {
            return Poll::Ready(None);
        }
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// Renews until the lease is to end; `None` when it was dropped.
async fn renew<P: Pool + Clone + Send + 'static>(
    leases: &Leases<P>,
    lease: &Lease,
    request: &Request,
    finished: &mut oneshot::Receiver<Finish>,
) -> Option<Finish> {
    let (every, standing) = (request.every(), &lease.standing);
    // So that there are several tries before the expiry.
    let again = (every / 4).clamp(Duration::from_millis(1), Duration::from_secs(1));
    let mut next = Instant::now() + every;
    loop {
        if let Ok(finish) = unless(sleep_until(next), &mut *finished).await {
            return finish;
        }
        if standing.is_over() {
            break;
        }
        let sent = Instant::now();
        let left = standing.deadline().saturating_duration_since(sent);
        match step(leases, lease, Step::Renew(request.ttl), every, left).await {
            Ok(true) => {
                leases.tell(Event::Renewed(lease));
                next = sent + every;
            }
            Ok(false) => break,
            Err(error) => {
                leases.tell(Event::RenewalFailed(lease, &error));
                standing.blame(error);
                next = Instant::now() + again;
            }
        }
    }
    standing.lose();
    leases.tell(Event::Lost(lease));
    finished.await.ok()
}

/// The finish, once it is there, or an error when the time has come.
async fn unless(
    time: impl Future<Output = ()>,
    finished: &mut oneshot::Receiver<Finish>,
) -> Result<Option<Finish>, ()> {
    let (mut time, mut finished) = (pin!(time), pin!(finished));
    poll_fn(|context| {
        if let Poll::Ready(finish) = finished.as_mut().poll(context) {
            return Poll::Ready(Ok(finish.ok()));
        }
        time.as_mut().poll(context).map(|()| Err(()))
    })
    .await
}

/// Releases, as long as it makes a difference. Who waits is told after the first try.
async fn end<P: Pool + Clone + Send + 'static>(
    leases: &Leases<P>,
    lease: &Lease,
    keep: Option<Duration>,
    mut reply: Option<oneshot::Sender<Result<bool, Error>>>,
) {
    let deadline = lease.standing.deadline();
    let mut pause = Duration::from_millis(50);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let outcome = match keep {
            Some(keep) => step(leases, lease, Step::Keep(keep), left, left).await,
            None => step(leases, lease, Step::Release, left, left).await,
        };
        let failed = match &outcome {
            Ok(true) => {
                leases.tell(Event::Released(lease));
                false
            }
            Ok(false) => false,
            Err(error) => {
                leases.tell(Event::ReleaseFailed(lease, error));
                true
            }
        };
        if let Some(reply) = reply.take() {
            drop(reply.send(outcome));
        }
        let next = Instant::now() + pause;
        if !failed || next >= deadline {
            return;
        }
        sleep_until(next).await;
        pause = (pause * 2).min(Duration::from_secs(5));
    }
}

/// One round trip: on a connection that the pool lends at once, else on one of its own.
async fn step<P: Pool + Clone + Send + 'static>(
    leases: &Leases<P>,
    lease: &Lease,
    step: Step,
    every: Duration,
    left: Duration,
) -> Result<bool, Error> {
    #[cfg(feature = "testing")]
    if let Some(memory) = leases.pool.memory() {
        return Ok(match step {
            Step::Renew(ttl) => memory.renew(lease, ttl),
            Step::Release => memory.release(lease),
            Step::Keep(keep) => memory.keep(lease, keep),
        });
    }
    let answer = UNANSWERED.min(left / 2).max(Duration::from_millis(5));
    let patience = if lease.is_test {
        answer
    } else {
        pool::patience(every)
    };
    let mut is_sent = false;
    if let Ok(Ok(mut conn)) = timeout(patience, leases.pool.connection()).await {
        is_sent = true;
        match timeout(answer, run(leases, lease, step, conn.pg())).await {
            Ok(Ok(done)) => return Ok(done),
            // Whoever borrows it next must not wait for what does not answer.
            _ => conn.pg().status().set_in_error(),
        }
    }
    if lease.is_test {
        let only =
            "a lease of a test transaction needs its connection, and the pool did not lend it";
        return Err(Error::Pool(only.into()));
    }
    let beside = async {
        let _one = BESIDE.acquire().await;
        let mut conn = leases.pool.dedicated().await?;
        run(leases, lease, step, &mut conn).await
    };
    match timeout(answer.max(Duration::from_millis(100)), beside).await {
        // The release that was not answered has happened.
        Ok(Ok(false)) if is_sent && matches!(step, Step::Release) => Ok(true),
        Ok(done) => done,
        Err(late) => Err(Error::Pool(Box::new(late))),
    }
}

async fn run<P>(
    leases: &Leases<P>,
    lease: &Lease,
    step: Step,
    conn: &mut AsyncPgConnection,
) -> Result<bool, Error> {
    let table = &leases.table;
    match step {
        Step::Renew(ttl) => table.renew(conn, lease, ttl).await,
        Step::Release => table.release(conn, lease).await,
        Step::Keep(keep) => table.keep(conn, lease, keep).await,
    }
}
