//! The task behind a lease: acquires it, renews it, and releases it.
//!
//! It starts with the first try, so a grant whose caller is gone is released like any other.

use super::backoff::Backoff;
use super::store::{Acquisition, LeaseStep, Store, is_unreachable};
use super::{Error, Event, FencingToken, Lease, Leases, Request};
use crate::random::random;
use crate::renewal::{End, Expiry, Renew, Sent, Tenure, UNANSWERED, renew_until_lost};
use diesel::result::Error as DieselError;
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
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
    let acquisition = Acquisition {
        grant_id: random().cast_signed(),
        is_sent: Arc::default(),
        request,
    };
    let mut is_unanswered = false;
    let lease = match acquire(&leases, &acquisition, &mut ready, &mut is_unanswered).await {
        Some(Ok(lease)) => lease,
        refused => {
            if let Some(Err(error)) = refused {
                match &error {
                    Error::Held { lock, waited, .. } => leases.notify(Event::Busy {
                        lock,
                        waited: *waited,
                    }),
                    Error::Done { lock, remaining } => leases.notify(Event::Done {
                        lock,
                        remaining: *remaining,
                    }),
                    _ => {}
                }
                drop(ready.send(Err(error)));
            }
            if is_unanswered {
                // The server may have granted it.
                let (grant_id, token) = (acquisition.grant_id, FencingToken(0));
                let (table, request) = (&leases.table, &acquisition.request);
                let until = Expiry::after(Sent::now(), request.ttl);
                let lease = Lease::new(table, request, grant_id, token, until);
                end(&leases, &lease, None, None).await;
            }
            return;
        }
    };
    leases.notify(Event::Acquired(&lease));
    let mut finish = None;
    if ready.send(Ok(lease.clone())).is_ok() {
        finish = renew(&leases, &lease, &acquisition.request, finished).await;
    }
    let (keep, reply) = finish.map(|finish| (finish.keep, finish.reply)).unzip();
    end(&leases, &lease, keep.flatten(), reply).await;
}

/// `None` when the caller is gone.
async fn acquire<S: Store>(
    leases: &Leases<S>,
    acquisition: &Acquisition,
    ready: &mut oneshot::Sender<Result<Lease, Error>>,
    is_unanswered: &mut bool,
) -> Option<Result<Lease, Error>> {
    let mut backoff = Backoff::new(&acquisition.request, &leases.table);
    let is_sent = || acquisition.is_sent.load(Ordering::Relaxed);
    loop {
        acquisition.is_sent.store(false, Ordering::Relaxed);
        let tried = leases
            .store
            .attempt(&leases.table, acquisition, backoff.left());
        // A statement that has been sent may be granted, so its answer is awaited.
        let closed = poll_fn(|context| {
            if is_sent() {
                return Poll::Pending;
            }
            ready.poll_closed(context)
        });
        let refused = match unless(pin!(closed), tried).await? {
            // Even if the caller is gone by now: then it is released.
            Ok(Ok(lease)) => return Some(Ok(lease.with_waited(backoff.waited()))),
            Ok(Err(refusal)) => {
                *is_unanswered = false;
                Ok(refusal)
            }
            Err(error) if is_unreachable(&error) => {
                *is_unanswered |= is_sent();
                Err(error)
            }
            Err(error) => return Some(Err(error)),
        };
        let pause = async {
            match refused {
                Ok(refusal) => backoff.pause(refusal).await,
                Err(error) => backoff.pause_after(error).await,
            }
        };
        if let Err(error) = unless(pin!(ready.closed()), pause).await? {
            return Some(Err(error));
        }
    }
}

/// The future's output, or `None` if `stop` resolves first.
pub(super) async fn unless<T>(
    mut stop: Pin<&mut impl Future<Output = ()>>,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| {
        if stop.as_mut().poll(context).is_ready() {
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
    finished: oneshot::Receiver<Finish>,
) -> Option<Finish> {
    let renewal = Renewal {
        leases,
        lease,
        request,
    };
    let renewed = async {
        renew_until_lost(&renewal, request.every()).await;
        if lease.tenure.is_lost() {
            leases.notify(Event::Lost(lease));
        }
        pending::<()>().await;
    };
    let mut finish = None;
    let ended = async { finish = finished.await.ok() };
    let _: Option<()> = unless(pin!(ended), renewed).await;
    finish
}

struct Renewal<'r, S> {
    leases: &'r Leases<S>,
    lease: &'r Lease,
    request: &'r Request,
}

impl<S: Store> Renew for Renewal<'_, S> {
    type Error = Error;

    fn tenure(&self) -> &Tenure {
        &self.lease.tenure
    }

    async fn renew(&self, left: Duration) -> Result<bool, Error> {
        let step = LeaseStep::Renew(self.request.ttl);
        let store = &self.leases.store;
        let renewed = store.step(self.lease, step, self.request.every(), left);
        let is_held = renewed.await?;
        if is_held {
            self.leases.notify(Event::Renewed(self.lease));
        }
        Ok(is_held)
    }

    async fn is_ended(&self, left: Duration) -> Result<bool, Error> {
        let store = &self.leases.store;
        let is_kept = store.step(self.lease, LeaseStep::IsKept, self.request.every(), left);
        Ok(is_kept.await? || !self.lease.would_be_kept())
    }

    fn failed(&self, error: &Error) {
        self.leases.notify(Event::RenewalFailed(self.lease, error));
    }
}

/// Releases or keeps the lease, and tries again until it has expired. The caller is answered after the first try.
async fn end<S: Store>(
    leases: &Leases<S>,
    lease: &Lease,
    keep: Option<Duration>,
    mut reply: Option<oneshot::Sender<Result<bool, Error>>>,
) {
    let (expires, was_lost) = (lease.tenure.expires(), lease.tenure.is_lost());
    let step = keep.map_or(LeaseStep::Release, LeaseStep::Keep);
    let mut pause = Duration::from_millis(50);
    loop {
        let mut left = expires.saturating_duration_since(Instant::now());
        if lease.would_be_kept() {
            // Whether the transaction of `complete` was committed matters after the expiry too.
            left = left.max(UNANSWERED);
        }
        let outcome = last_step(leases, lease, step, left).await;
        match &outcome {
            Ok(true) if !was_lost => leases.notify(Event::Released(lease)),
            Ok(_) => {}
            Err(error) => leases.notify(Event::ReleaseFailed(lease, error)),
        }
        let is_done = outcome.is_ok();
        if let Some(reply) = reply.take() {
            let is_undone = keep.is_some() && lease.tenure.end() == End::RolledBack;
            drop(reply.send(match outcome {
                Ok(true) | Err(_) if is_undone => Err(Error::RolledBack {
                    lock: lease.name(),
                    source: DieselError::RollbackTransaction,
                }),
                outcome => outcome,
            }));
        }
        let next = Instant::now() + pause;
        if is_done || next >= expires {
            return;
        }
        sleep_until(next).await;
        pause = (pause * 2).min(Duration::from_secs(5));
    }
}

/// Ends the lease, unless `complete` has done so. If its transaction was rolled back, the work is not done, and the key is not kept.
async fn last_step<S: Store>(
    leases: &Leases<S>,
    lease: &Lease,
    step: LeaseStep,
    left: Duration,
) -> Result<bool, Error> {
    let tenure = &lease.tenure;
    let send = |step| leases.store.step(lease, step, left, left);
    if matches!((step, tenure.end()), (LeaseStep::Keep(_), End::Inside(_))) {
        let is_kept = send(LeaseStep::IsKept).await?;
        tenure.settle(is_kept || !lease.would_be_kept());
    }
    match (step, tenure.end()) {
        (_, End::Done) => Ok(true),
        (LeaseStep::Keep(_), End::RolledBack) => send(LeaseStep::Release).await,
        _ => send(step).await,
    }
}
