//! The task that acquires a lease. It starts with the first try, so a grant whose caller is gone is
//! released like any other.

use super::grant::Granted;
use super::rows::{Alive, LeaseEnd, LeaseRenewal};
use super::store::{Acquisition, Store};
use super::tries::Tries;
use super::{Error, Event, FencingToken, Lease, Leases, Request};
use crate::PoolError;
use crate::random::random;
use crate::rows::{Failure, Moment, Name, RowError as _, unless};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use tokio::sync::oneshot;

/// A granted lease, and the value that keeps it.
type Acquired = (Lease, LeaseRenewal);

async fn run<S: Store>(
    leases: Leases<S>,
    request: Request,
    mut ready: oneshot::Sender<Result<Acquired, Error>>,
    alive: Alive,
) {
    let mut unanswered = Unanswered {
        acquisition: Acquisition {
            grant_id: random().cast_signed(),
            is_sent: AtomicBool::new(false),
            request,
        },
        leases,
        since: None,
        alive,
    };
    let acquired = acquire(&mut unanswered, &mut ready).await;
    let leases = &unanswered.leases;
    match acquired {
        Some(Ok(lease)) => {
            leases.notify(Event::Acquired(&lease));
            let renewal = leases.keep(&lease, &unanswered.acquisition.request, true);
            let acquired = renewal.map(|renewal| (lease, renewal)).map_err(Error::Pool);
            if let Err(Ok((_, renewal))) = ready.send(acquired) {
                renewal.end_later(LeaseEnd::RELEASE, unanswered.alive.take());
            }
        }
        Some(Err(error)) => {
            match error {
                Error::Held {
                    ref lock, waited, ..
                } => leases.notify(Event::Busy { lock, waited }),
                Error::Done {
                    ref lock,
                    remaining,
                } => leases.notify(Event::Done { lock, remaining }),
                _ => {}
            }
            drop(ready.send(Err(error)));
        }
        None => {}
    }
}

/// An acquisition. If it is dropped after a try without an answer, the keeper releases what the
/// server may have granted, or may still grant.
struct Unanswered<S: Store> {
    leases: Leases<S>,
    acquisition: Acquisition,
    /// The last try without an answer.
    since: Option<Moment>,
    /// Dropped when the lease has ended.
    alive: Alive,
}

impl<S: Store> Drop for Unanswered<S> {
    fn drop(&mut self) {
        let is_sent = self.acquisition.is_sent.load(Ordering::Relaxed);
        let Some(since) = self.since.or(is_sent.then(Moment::now)) else {
            return;
        };
        let request = &self.acquisition.request;
        let until = since.plus(request.ttl);
        let (grant_id, token) = (self.acquisition.grant_id, FencingToken(0));
        let table = &self.leases.table;
        let lease = Lease::new(table, request, grant_id, token, until);
        if let Ok(renewal) = self.leases.keep(&lease, request, false) {
            let end = LeaseEnd {
                is_granted: false,
                ..LeaseEnd::RELEASE
            };
            renewal.end_later(end, self.alive.take());
        }
    }
}

/// `None` when the caller is gone.
async fn acquire<S: Store>(
    unanswered: &mut Unanswered<S>,
    ready: &mut oneshot::Sender<Result<Acquired, Error>>,
) -> Option<Result<Lease, Error>> {
    let Unanswered {
        leases,
        acquisition,
        since,
        ..
    } = unanswered;
    let mut tries = Tries::new(&acquisition.request, &leases.table);
    let is_sent = || acquisition.is_sent.load(Ordering::Relaxed);
    loop {
        let store = &leases.store;
        let answer = store.attempt(&leases.table, acquisition, tries.left());
        // A statement that has been sent may be granted, so its answer is awaited.
        let closed = poll_fn(|context| {
            if is_sent() {
                return Poll::Pending;
            }
            ready.poll_closed(context)
        });
        let answer = unless(pin!(closed), pin!(answer)).await?;
        // `is_sent` is `false` between two tries.
        let was_sent = acquisition.is_sent.swap(false, Ordering::Relaxed);
        let refused = match answer {
            // Even if the caller is gone by now: then it is released.
            Ok(Ok(lease)) => {
                // This grant answers the earlier tries too, so `Unanswered` releases nothing.
                *since = None;
                let waited = tries.waited();
                return Some(Ok(Lease { waited, ..lease }));
            }
            Ok(Err(refusal)) => Ok(refusal),
            Err(error) => {
                if !matches!(error.failure(), Failure::Unreachable | Failure::Unanswered) {
                    return Some(Err(error));
                }
                if was_sent {
                    *since = Some(Moment::now());
                }
                Err(error)
            }
        };
        let pause = tries.pause(refused);
        if let Err(error) = unless(pin!(ready.closed()), pause).await? {
            return Some(Err(error));
        }
    }
}

impl<S: Store> Leases<S> {
    pub(super) async fn acquire_in_a_task(
        &self,
        request: Request,
        alive: Alive,
    ) -> Result<Acquired, Error> {
        let (ready, granted) = oneshot::channel();
        let lock = request.name();
        let no_runtime = |reason| Error::NoRuntime { lock, reason };
        // Boxed, since a task moves its future several times.
        let task = Box::pin(run(self.clone(), request, ready, alive));
        if let Err(reason) = S::spawn(task) {
            return Err(no_runtime(reason));
        }
        match granted.await {
            Ok(granted) => granted,
            Err(_) => Err(no_runtime("the runtime is shutting down")),
        }
    }

    /// Has the keeper renew a lease, together with the others of its pool and table.
    pub(super) fn keep(
        &self,
        lease: &Lease,
        request: &Request,
        renews: bool,
    ) -> Result<LeaseRenewal, PoolError> {
        let row = Arc::new(Granted {
            lease: lease.clone(),
            every: request.every(),
            observer: self.observer.clone(),
        });
        let pool = self.store.identity().unwrap_or(self.id);
        let table = Arc::clone(&self.table.texts.full_name);
        let name = Name::new::<S>(pool, Some(table));
        let rows = &|| self.store.rows();
        self.store.keeper().keep(name, rows, row, renews)
    }
}
