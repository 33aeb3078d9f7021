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
    let mut unanswered = None;
    let lease = match acquire(&leases, &acquisition, &mut ready, &mut unanswered).await {
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
            if let Some(sent) = unanswered {
                // The server may have granted it, or may still do so.
                let (grant_id, token) = (acquisition.grant_id, FencingToken(0));
                let (table, request) = (&leases.table, &acquisition.request);
                let until = Expiry::after(sent, request.ttl);
                let lease = Lease::new(table, request, grant_id, token, until);
                end(&leases, &lease, false, None, None).await;
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
    end(&leases, &lease, true, keep.flatten(), reply).await;
}

/// `None` when the caller is gone. `unanswered` becomes the last try without an answer.
async fn acquire<S: Store>(
    leases: &Leases<S>,
    acquisition: &Acquisition,
    ready: &mut oneshot::Sender<Result<Lease, Error>>,
    unanswered: &mut Option<Sent>,
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
            Ok(Err(refusal)) => Ok(refusal),
            Err(error) if is_unreachable(&error) => {
                if is_sent() {
                    *unanswered = Some(Sent::now());
                }
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
///
/// If it `is_granted` is not known, a release that finds no row is tried again too: the grant can be under way, such as one whose commit
/// waits for a standby.
async fn end<S: Store>(
    leases: &Leases<S>,
    lease: &Lease,
    is_granted: bool,
    keep: Option<Duration>,
    mut reply: Option<oneshot::Sender<Result<bool, Error>>>,
) {
    let (expires, was_lost) = (lease.tenure.expires(), lease.tenure.is_lost());
    let step = keep.map_or(LeaseStep::Release, LeaseStep::Keep);
    let mut pause = Duration::from_millis(50);
    let longest = Duration::from_secs(5);
    let longest = if is_granted {
        longest
    } else {
        longest.max(expires.saturating_duration_since(Instant::now()) / 8)
    };
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
        let is_done = matches!(&outcome, Ok(is_found) if *is_found || is_granted);
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
        pause = (pause * 2).min(longest);
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
    if let (LeaseStep::Keep(_), End::Inside(since)) = (step, tenure.end()) {
        let is_kept = send(LeaseStep::IsKept).await?;
        tenure.settle(since, is_kept || !lease.would_be_kept());
    }
    match (step, tenure.end()) {
        (_, End::Done) => Ok(true),
        (LeaseStep::Keep(_), End::RolledBack) => send(LeaseStep::Release).await,
        _ => send(step).await,
    }
}

#[cfg(test)]
mod tests {
    use super::super::backoff::Refusal;
    use super::super::{Row, Table};
    use super::{
        Acquisition, Error, Event, FencingToken, Finish, Lease, LeaseStep, Leases, Request, Store,
        end, run,
    };
    use crate::renewal::{Expiry, Sent, Tenure};
    use crate::{PoolError, Wait};
    use std::sync::atomic::Ordering;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;
    use tokio::sync::oneshot;
    use tokio::time::Instant;

    const TTL: Duration = Duration::from_secs(1);

    /// What is sent, in milliseconds of the virtual clock.
    type Step = (u128, &'static str);

    /// A store whose answers are known.
    #[derive(Clone)]
    struct Known {
        started: Instant,
        sent: Arc<Mutex<Vec<Step>>>,
        /// Answers an acquisition; `true` if it has been sent.
        attempt: fn(usize) -> (bool, Result<Refusal, Error>),
        /// Answers each other step.
        step: fn() -> Result<bool, Error>,
    }

    fn unreachable() -> Error {
        PoolError::new("nobody there").into()
    }

    impl Known {
        fn new(
            attempt: fn(usize) -> (bool, Result<Refusal, Error>),
            step: fn() -> Result<bool, Error>,
        ) -> Leases<Self> {
            Leases::new(Self {
                started: Instant::now(),
                sent: Arc::default(),
                attempt,
                step,
            })
        }

        fn note(&self, what: &'static str) -> usize {
            let mut sent = self.sent.lock().unwrap();
            sent.push((self.started.elapsed().as_millis(), what));
            assert!(sent.len() < 100, "it never ends: {sent:?}");
            sent.len()
        }

        fn sent(&self) -> Vec<Step> {
            self.sent.lock().unwrap().clone()
        }
    }

    impl Store for Known {
        async fn attempt(
            &self,
            _: &Table,
            acquisition: &Acquisition,
            _: Option<Duration>,
        ) -> Result<Result<Lease, Refusal>, Error> {
            let (is_sent, answer) = (self.attempt)(self.note("grant"));
            acquisition.is_sent.store(is_sent, Ordering::Relaxed);
            answer.map(Err)
        }

        async fn step(
            &self,
            _: &Lease,
            step: LeaseStep,
            _: Duration,
            _: Duration,
        ) -> Result<bool, Error> {
            self.note(match step {
                LeaseStep::Renew(_) => "renew",
                LeaseStep::Release => "release",
                LeaseStep::Keep(_) => "keep",
                LeaseStep::IsKept => "is kept?",
            });
            (self.step)()
        }

        async fn holds(&self, _: &Table, _: &Lease) -> Result<bool, Error> {
            Ok(false)
        }

        async fn list(&self, _: &Table) -> Result<Vec<Row>, Error> {
            Ok(Vec::new())
        }

        async fn sweep(&self, _: &Table) -> Result<usize, Error> {
            Ok(0)
        }
    }

    /// Acquires, and returns the error and what was sent.
    async fn refused(
        request: Request,
        attempt: fn(usize) -> (bool, Result<Refusal, Error>),
    ) -> (Error, Vec<Step>) {
        let told = Arc::new(Mutex::new(Vec::new()));
        let note = Arc::clone(&told);
        let leases = Known::new(attempt, || Ok(true)).observed(move |event| {
            note.lock().unwrap().push(match event {
                Event::Busy { .. } => "busy",
                Event::Done { .. } => "done",
                _ => "other",
            });
        });
        let (ready, granted) = oneshot::channel();
        let (_finish, finished) = oneshot::channel();
        run(leases.clone(), request, ready, finished).await;
        let error = granted.await.unwrap().unwrap_err();
        let told = told.lock().unwrap().clone();
        assert_eq!(told.contains(&"busy"), matches!(error, Error::Held { .. }));
        assert_eq!(told.contains(&"done"), matches!(error, Error::Done { .. }));
        (error, leases.store.sent())
    }

    fn lease() -> Lease {
        let request = Request::text("k").ttl(TTL);
        let until = Expiry::after(Sent::now(), TTL);
        Lease::new(&Table::new(), &request, 1, FencingToken(1), until)
    }

    const fn held() -> Refusal {
        Refusal::Held {
            left: Duration::ZERO,
            lock_timeout: None,
        }
    }

    /// The caller is told `Err` and tries again later, so nobody else would release what was granted.
    #[tokio::test(start_paused = true)]
    async fn a_grant_whose_answer_was_lost_is_released() {
        let once = || Request::text("k").wait(Wait::Never);
        let (error, sent) = refused(once(), |_| (true, Err(unreachable()))).await;
        assert!(matches!(error, Error::Pool(_)), "{error:?}");
        assert_eq!(sent, [(0, "grant"), (0, "release")]);
        // It was not sent.
        let (_, sent) = refused(once(), |_| (false, Err(unreachable()))).await;
        assert_eq!(sent, [(0, "grant")]);
        // A later try was refused, also while the grant of an earlier one is under way.
        let (_, sent) = refused(Request::text("k").wait(TTL * 60), |nth| match nth {
            2 => (true, Err(unreachable())),
            1 | 3 => (true, Ok(held())),
            _ => (
                true,
                Ok(Refusal::Done {
                    remaining: Duration::ZERO,
                }),
            ),
        })
        .await;
        assert_eq!(sent.last().map(|(_, what)| *what), Some("release"));
        // The last one got no answer, and an earlier one did.
        let (_, sent) = refused(Request::text("k").wait(TTL), |nth| match nth {
            1 => (true, Ok(held())),
            2 => (true, Err(unreachable())),
            _ => (false, Err(unreachable())),
        })
        .await;
        assert_eq!(sent.last().map(|(_, what)| *what), Some("release"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_held_key_is_told_once() {
        let once = Request::text("k").wait(Wait::Never);
        let (error, sent) = refused(once, |_| (true, Ok(held()))).await;
        assert!(error.is_held(), "{error:?}");
        assert_eq!(sent, [(0, "grant")]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_an_unreachable_server_is_tried_again() {
        let waiting = Request::text("k").wait(Wait::Forever);
        let (error, sent) = refused(waiting, |nth| match nth {
            1 => (true, Ok(held())),
            2 => (true, Err(unreachable())),
            _ => (true, Err(Error::Database(super::DieselError::NotFound))),
        })
        .await;
        assert!(matches!(error, Error::Database(_)), "{error:?}");
        let sent: Vec<_> = sent.iter().map(|(_, what)| *what).collect();
        assert_eq!(sent, ["grant", "grant", "grant", "release"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_is_tried_at_doubled_pauses_until_the_expiry() {
        let leases = Known::new(|_| (false, Err(unreachable())), || Err(unreachable()));
        let (reply, answered) = oneshot::channel();
        end(&leases, &lease(), true, None, Some(reply)).await;
        let times = leases.store.sent().into_iter().map(|(at, _)| at);
        assert_eq!(times.collect::<Vec<_>>(), [0, 50, 150, 350, 750]);
        // After the first try.
        assert!(matches!(answered.await, Ok(Err(Error::Pool(_)))));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answered_release_is_sent_once() {
        for is_held in [|| Ok(true), || Ok::<_, Error>(false)] {
            let leases = Known::new(|_| (false, Err(unreachable())), is_held);
            end(&leases, &lease(), true, None, None).await;
            assert_eq!(leases.store.sent(), [(0, "release")]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_grant_that_may_be_under_way_is_released_when_it_appears() {
        let unanswered = |is_found| {
            let leases = Known::new(|_| (true, Err(unreachable())), is_found);
            async move {
                end(&leases, &lease(), false, None, None).await;
                let times = leases.store.sent().into_iter().map(|(at, _)| at);
                times.collect::<Vec<_>>()
            }
        };
        assert_eq!(unanswered(|| Ok(false)).await, [0, 50, 150, 350, 750]);
        assert_eq!(unanswered(|| Ok(true)).await, [0]);
    }

    fn settle(tenure: &Tenure, is_committed: bool) {
        tenure.settle(Instant::now(), is_committed);
    }

    /// Ends a lease that `complete` has ended in a transaction.
    async fn completed(
        settle: fn(&Tenure),
        step: fn() -> Result<bool, Error>,
    ) -> (Result<bool, Error>, Vec<&'static str>) {
        let leases = Known::new(|_| (false, Err(unreachable())), step);
        let mut lease = lease();
        lease.keep = Some(TTL * 60);
        lease.tenure.ending().done(true);
        settle(&lease.tenure);
        let (reply, answered) = oneshot::channel();
        let finish = Finish {
            keep: lease.keep,
            reply,
        };
        end(&leases, &lease, true, finish.keep, Some(finish.reply)).await;
        let sent = leases.store.sent().into_iter().map(|(_, what)| what);
        (answered.await.unwrap(), sent.collect())
    }

    #[tokio::test(start_paused = true)]
    async fn a_committed_complete_needs_no_further_statement() {
        let (ended, sent) = completed(|tenure| settle(tenure, true), || Ok(false)).await;
        assert!(matches!(ended, Ok(true)), "{ended:?}");
        assert_eq!(sent, [] as [&str; 0]);
        let (ended, sent) = completed(|_| {}, || Ok(true)).await;
        assert!(matches!(ended, Ok(true)), "{ended:?}");
        assert_eq!(sent, ["is kept?"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rolled_back_complete_releases() {
        for settle in [|_: &Tenure| {}, |tenure: &Tenure| settle(tenure, false)] {
            let (ended, sent) = completed(settle, || Ok(false)).await;
            assert!(matches!(ended, Ok(false)), "{ended:?}");
            assert_eq!(sent.last(), Some(&"release"));
        }
        let (ended, _) = completed(|tenure| settle(tenure, false), || Ok(true)).await;
        assert!(matches!(ended, Err(Error::RolledBack { .. })), "{ended:?}");
        let (ended, _) = completed(|tenure| settle(tenure, false), || Err(unreachable())).await;
        let Err(Error::RolledBack { lock, .. }) = ended else {
            panic!("{ended:?}")
        };
        assert_eq!(lock, Request::text("k").name());
    }

    /// For tasks that the body has spawned.
    #[tokio::test(start_paused = true)]
    async fn lost_resolves_when_complete_is_committed() {
        let (lease, started) = (lease(), Instant::now());
        lease.tenure.ending().done(true);
        let committed = async {
            tokio::task::yield_now().await;
            settle(&lease.tenure, true);
        };
        tokio::join!(lease.lost(), committed);
        assert_eq!(started.elapsed(), Duration::ZERO);
    }
}
