//! Runs the claims and the bodies of a worker on one task.

use super::job::job;
use super::shared::{Shared, Waiting};
use super::{Settings, Source, Stop, feed};
use crate::claim::table::Claim;
use crate::claim::{Claimed, Error};
use futures_util::stream::{FuturesUnordered, Stream as _};
use std::fmt::Display;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// The number of bodies that can begin in one poll, if they are ready at once, and the time for
/// them. Then the worker yields to other tasks, some of which send the ends.
const TURN: (usize, Duration) = (64, Duration::from_millis(1));

/// Claims rows and runs their bodies until `stop` is ready.
///
/// The task is woken by what its futures wait for (the stop, a notification, the answer to a claim,
/// the end of a row, a body, a timer), and by itself after a full turn. It is not `select!`,
/// because each poll must go through all parts in this order: a body that returns frees a slot for
/// the next row, which then lets the feed claim more, and nothing wakes the feed for that.
pub(crate) async fn run<T, S, E, F>(
    source: &S,
    settings: &Settings<'_, T>,
    stop: Stop<'_>,
    body: impl Fn(Claimed<T>) -> F,
) -> Result<(), Error>
where
    T: Claim,
    S: Source<T>,
    F: Future<Output = Result<(), E>>,
    E: Display,
{
    let shared = Shared::new(S::IS_ASYNC);
    let feed = pin!(feed::feed(source, settings, stop, &shared));
    let mut listen = pin!(async {
        if settings.is_listening {
            source.listen(&shared.wake).await;
        }
    });
    let mut listen_ended = false;
    let mut give_back = pin!(feed::give_back(&shared));
    let mut scheduler = Scheduler {
        settings,
        shared: &shared,
        feed,
        outcome: None,
        is_stopping: false,
        grace: None,
        bodies: FuturesUnordered::new(),
    };
    poll_fn(|context| {
        listen_ended = listen_ended || listen.as_mut().poll(context).is_ready();
        scheduler.poll_bodies(context);
        scheduler.start_bodies(context, |row| job(settings, &shared, &body, row));
        let _: Poll<()> = give_back.as_mut().poll(context);
        if scheduler.is_done(context) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    shared.until_ended().await;
    scheduler.outcome.unwrap_or(Ok(()))
}

/// The feed and the bodies of a worker. `F` is the future of the feed, and `B` that of a body.
struct Scheduler<'r, 'w, T: Claim, F, B> {
    settings: &'r Settings<'w, T>,
    shared: &'r Shared<T>,
    feed: Pin<&'r mut F>,
    /// The output of the feed.
    outcome: Option<Result<(), Error>>,
    /// `true` once the worker is stopping, with or without a grace.
    is_stopping: bool,
    /// Ends when bodies may no longer run.
    grace: Option<Pin<Box<Sleep>>>,
    bodies: FuturesUnordered<B>,
}

impl<T, F, B> Scheduler<'_, '_, T, F, B>
where
    T: Claim,
    F: Future<Output = Result<(), Error>>,
    B: Future<Output = ()>,
{
    /// Polls the bodies that were woken, and drops those that have returned.
    fn poll_bodies(&mut self, context: &mut Context<'_>) {
        while let Poll::Ready(Some(())) = Pin::new(&mut self.bodies).poll_next(context) {}
    }

    /// Starts bodies until no slot is free, no row waits, or the turn has ended.
    fn start_bodies(&mut self, context: &mut Context<'_>, body: impl Fn(Waiting<T>) -> B) {
        let (mut started, turn) = (0, Instant::now());
        loop {
            let running = &self.shared.running;
            running.store(self.bodies.len(), Ordering::Relaxed);
            // One body starts for each poll of the feed, so that a stop is noticed before the next.
            self.poll_feed(context);
            let turn_ended = started >= TURN.0 || (started > 0 && turn.elapsed() >= TURN.1);
            if turn_ended {
                context.waker().wake_by_ref();
                return;
            }
            if self.bodies.len() >= self.settings.concurrency {
                return;
            }
            let Some(row) = self.shared.waiting().pop_front() else {
                return;
            };
            started += 1;
            self.bodies.push(body(row));
            self.poll_bodies(context);
        }
    }

    /// Polls the feed, which claims rows. After a stop no other body starts, and the grace of those
    /// that run begins, even if the feed still waits for the answer to a claim.
    fn poll_feed(&mut self, context: &mut Context<'_>) {
        if self.outcome.is_none()
            && let Poll::Ready(outcome) = self.feed.as_mut().poll(context)
        {
            self.outcome = Some(outcome);
            self.shared.stopping.close();
        }
        if !self.shared.stopping.is_closed() {
            return;
        }
        // Dropping the rows releases them, also those of a late answer.
        let waiting = std::mem::take(&mut *self.shared.waiting());
        drop(waiting);
        if !std::mem::replace(&mut self.is_stopping, true) {
            // A grace beyond the clock's range never ends.
            let grace = self.settings.grace;
            let grace_deadline = grace.and_then(|grace| Instant::now().checked_add(grace));
            self.grace = grace_deadline.map(|deadline| Box::pin(sleep_until(deadline)));
        }
    }

    /// Returns `true` if the feed has ended and no body runs. When the grace has ended, drops the
    /// bodies, which releases their rows.
    fn is_done(&mut self, context: &mut Context<'_>) -> bool {
        if let Some(grace) = &mut self.grace
            && grace.as_mut().poll(context).is_ready()
        {
            (self.grace, self.bodies) = (None, FuturesUnordered::new());
        }
        self.outcome.is_some() && self.bodies.is_empty()
    }
}
