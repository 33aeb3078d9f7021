//! The task behind a lease: acquires it, renews it, and releases it, also when nobody waits for the answer any more.
//!
//! One task from the first try on, so that a grant whose caller is gone is released like any other.

use super::backoff::Backoff;
use super::steps::random;
use super::store::{Asked, Step, Store, is_unreachable};
use super::{Event, FencingToken, Lease, Leases, Request};
use crate::Error;
use crate::renewal::{Hold, Renew, renew_until_lost};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

/// How a lease ends.
#[derive(Debug)]
pub(super) struct Finish {
    /// How long the key stays taken.
    pub(super) keep: Option<Duration>,
    pub(super) reply: oneshot::Sender<Result<bool, Error>>,
}

pub(super) async fn run<S: Store>(
    leases: Leases<S>,
    request: Request,
    mut ready: oneshot::Sender<Result<Lease, Error>>,
    finished: oneshot::Receiver<Finish>,
) {
    let asked = Asked {
        grant_id: random(),
        is_sent: AtomicBool::new(false),
        request,
    };
    let mut is_unanswered = false;
    let lease = match acquire(&leases, &asked, &mut ready, &mut is_unanswered).await {
        Some(Ok(lease)) => lease,
        refused => {
            if let Some(Err(error)) = refused {
                tell_busy(&leases, &asked, &error);
                drop(ready.send(Err(error)));
            }
            if is_unanswered {
                // It may have been granted without an answer.
                let (request, token) = (&asked.request, FencingToken(0));
                let lease = Lease::new(
                    &leases.table,
                    request,
                    asked.grant_id,
                    token,
                    Instant::now(),
                );
                release(&leases, &lease).await;
            }
            return;
        }
    };
    leases.tell(Event::Acquired(&lease));
    if ready.send(Ok(lease.clone())).is_err() {
        return release(&leases, &lease).await;
    }
    match renew(&leases, &lease, &asked.request, finished).await {
        Some(finish) => end(&leases, &lease, finish.keep, Some(finish.reply)).await,
        None => release(&leases, &lease).await,
    }
}

fn tell_busy<S: Store>(leases: &Leases<S>, asked: &Asked, error: &Error) {
    let waited = match error {
        Error::TimedOut { waited, .. } => *waited,
        Error::NotAvailable { .. } => Duration::ZERO,
        _ => return,
    };
    let lock = &asked.request.name();
    leases.tell(Event::Busy { lock, waited });
}

/// `None` when nobody wants it any more.
async fn acquire<S: Store>(
    leases: &Leases<S>,
    asked: &Asked,
    ready: &mut oneshot::Sender<Result<Lease, Error>>,
    is_unanswered: &mut bool,
) -> Option<Result<Lease, Error>> {
    let mut backoff = Backoff::new(&asked.request, &leases.table);
    let is_sent = || asked.is_sent.load(Ordering::Relaxed);
    loop {
        asked.is_sent.store(false, Ordering::Relaxed);
        let tried = leases.store.attempt(&leases.table, asked, backoff.left());
        // What is on its way is waited for.
        let tried = unless_closed(ready, is_sent, tried).await?;
        *is_unanswered = match &tried {
            Err(error) => *is_unanswered || is_sent() && is_unreachable(error),
            Ok(_) => false,
        };
        let pause = async {
            match tried {
                Ok(Ok(lease)) => return Ok(Some(lease.after(backoff.waited()))),
                Ok(Err(refusal)) => backoff.pause(refusal).await?,
                Err(error) if is_unreachable(&error) => backoff.pause_after(error).await?,
                Err(error) => return Err(error),
            }
            Ok(None)
        };
        match unless_closed(ready, || false, pause).await? {
            Ok(None) => {}
            Ok(Some(lease)) => return Some(Ok(lease)),
            Err(error) => return Some(Err(error)),
        }
    }
}

/// The future's output, unless nobody waits for the lease any more and the future may be dropped.
async fn unless_closed<T>(
    ready: &mut oneshot::Sender<Result<Lease, Error>>,
    is_sent: impl Fn() -> bool,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| {
        if !is_sent() && ready.poll_closed(context).is_ready() {
            return Poll::Ready(None);
        }
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// Renews until the lease is to end; `None` when it was dropped.
async fn renew<S: Store>(
    leases: &Leases<S>,
    lease: &Lease,
    request: &Request,
    mut finished: oneshot::Receiver<Finish>,
) -> Option<Finish> {
    let renewal = Renewal {
        leases,
        lease,
        request,
    };
    let mut renewed = pin!(renew_until_lost(&renewal, request.every()));
    let mut is_over = false;
    poll_fn(|context| {
        if let Poll::Ready(finish) = pin!(&mut finished).poll(context) {
            return Poll::Ready(finish.ok());
        }
        if !is_over && renewed.as_mut().poll(context).is_ready() {
            is_over = true;
            if lease.hold.is_lost() {
                leases.tell(Event::Lost(lease));
            }
        }
        Poll::Pending
    })
    .await
}

struct Renewal<'r, S> {
    leases: &'r Leases<S>,
    lease: &'r Lease,
    request: &'r Request,
}

impl<S: Store> Renew for Renewal<'_, S> {
    fn hold(&self) -> &Hold {
        &self.lease.hold
    }

    async fn renew(&self, left: Duration) -> Result<bool, Error> {
        let step = Step::Renew(self.request.ttl);
        let store = &self.leases.store;
        let renewed = store.step(self.lease, step, self.request.every(), left);
        let is_held = renewed.await?;
        if is_held {
            self.leases.tell(Event::Renewed(self.lease));
        }
        Ok(is_held)
    }

    async fn is_ended(&self, left: Duration) -> Result<bool, Error> {
        let store = &self.leases.store;
        let is_kept = store.step(self.lease, Step::IsKept, self.request.every(), left);
        Ok(is_kept.await? || !self.lease.would_be_kept())
    }

    fn failed(&self, error: &Error) {
        self.leases.tell(Event::RenewalFailed(self.lease, error));
    }
}

async fn release<S: Store>(leases: &Leases<S>, lease: &Lease) {
    end(leases, lease, None, None).await;
}

/// Releases or keeps, for as long as it makes a difference. A caller is answered after the first try.
async fn end<S: Store>(
    leases: &Leases<S>,
    lease: &Lease,
    keep: Option<Duration>,
    mut reply: Option<oneshot::Sender<Result<bool, Error>>>,
) {
    let (expires, was_lost) = (lease.hold.expires(), lease.hold.is_lost());
    let step = keep.map_or(Step::Release, Step::Keep);
    let mut pause = Duration::from_millis(50);
    loop {
        let left = expires.saturating_duration_since(Instant::now());
        let outcome = leases.store.step(lease, step, left, left).await;
        match &outcome {
            Ok(true) if !was_lost => leases.tell(Event::Released(lease)),
            Ok(_) => {}
            Err(error) => leases.tell(Event::ReleaseFailed(lease, error)),
        }
        let is_done = outcome.is_ok();
        if let Some(reply) = reply.take() {
            drop(reply.send(outcome));
        }
        let next = Instant::now() + pause;
        if is_done || next >= expires {
            return;
        }
        sleep_until(next).await;
        pause = (pause * 2).min(Duration::from_secs(5));
    }
}
