//! A worker: claims rows, works on several at a time, ends each claim as its work ends, and stops gracefully.

mod feed;
mod job;
mod listen;

use super::on_err::OnErr;
use super::sql::{Changes, Wanted};
use super::table::{Claim, MaybeRunAt};
use super::take::Condition;
use super::{Claimed, Error};
use crate::Pool;
use diesel::pg::Pg;
use diesel::query_builder::QueryFragment;
use std::collections::VecDeque;
use std::fmt::Display;
use std::future::{pending, poll_fn};
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

/// How often a worker looks for rows by default.
const POLL: Duration = Duration::from_secs(1);

/// Claims rows and works on them until it is told to stop.
///
/// ```no_run
/// # #[cfg(feature = "bb8")]
/// # mod jobs {
/// # use advisory_runtime::claim::{self, Claim, Claimed, Error};
/// # use diesel_async::{AsyncPgConnection, pooled_connection::bb8::Pool};
/// # diesel::table! {
/// #     mail (id) {
/// #         id -> BigInt, locked_until -> Nullable<Timestamptz>, locked_by -> Nullable<Text>,
/// #         completed_at -> Nullable<Timestamptz>, failed_at -> Nullable<Timestamptz>, error_message -> Nullable<Text>
/// #     }
/// # }
/// # #[derive(diesel::Queryable, diesel::Selectable, Claim)]
/// # #[diesel(table_name = mail)]
/// # struct Mail { id: i64 }
/// # async fn terminated() {}
/// # async fn send(_: i64) -> Result<(), Error> { Ok(()) }
/// async fn deliver(pool: &Pool<AsyncPgConnection>) -> Result<(), Error> {
///     let worker = claim::Worker::new(pool, "worker-7").concurrency(4).until(terminated());
///     worker.run(async |job: Claimed<Mail>| send(job.id).await).await
/// }
/// # }
/// ```
///
/// It claims up to [`concurrency`](Self::concurrency) rows, in the order of `#[claim(order = …)]`, works on each under
/// [`claim::run`](super::run), which renews it, and claims the next ones as work ends. If it finds no row, it looks again when it is
/// notified, and at the latest after the time of [`poll`](Self::poll).
///
/// The works run at the same time in one task, not in parallel: for work that needs a processor for long, call
/// `tokio::task::spawn_blocking` in it, or run several workers in tasks of their own. The pool needs a connection for what each work
/// takes from it, and one for the worker.
#[must_use = "a worker does nothing until `run`"]
pub struct Worker<'w, T: Claim, P> {
    settings: Settings<'w, T, P>,
    stop: Pin<Box<dyn Future<Output = ()> + Send + 'w>>,
}

/// What the parts of a running worker share.
struct Settings<'w, T: Claim, P> {
    pool: &'w P,
    name: String,
    /// The table, as spans and metrics show it.
    table: &'static str,
    concurrency: usize,
    on_err: OnErr,
    poll: Duration,
    is_listening: bool,
    condition: Option<Box<dyn QueryFragment<Pg> + Send + Sync + 'w>>,
    row: PhantomData<fn() -> T>,
}

impl<'w, T: Claim, P: Pool + Clone + Send + 'static> Worker<'w, T, P> {
    /// A worker with this name, which `locked_by` begins with. Several workers can share a name.
    ///
    /// By default it works on one row at a time. A failed attempt is retried if the table has a `run_at`, fails the row for good if it
    /// has a `failed_at`, and otherwise releases it. A row of a table without `completed_at` is claimed again as soon as its work is
    /// done.
    pub fn new(pool: &'w P, name: impl Into<String>) -> Self {
        let on_err = match T::RunAt::COLUMN {
            Some(_) => OnErr::Retry { after: None },
            None => OnErr::Fail,
        };
        let settings = Settings {
            pool,
            name: name.into(),
            table: job::label(&super::index::table_name::<T>()),
            concurrency: 1,
            on_err,
            poll: POLL,
            is_listening: true,
            condition: None,
            row: PhantomData,
        };
        let stop = Box::pin(pending());
        Self { settings, stop }
    }

    /// Works on up to so many rows at a time; at least one, at most a thousand.
    pub fn concurrency(mut self, rows: usize) -> Self {
        self.settings.concurrency = rows.clamp(1, 1_000);
        self
    }

    /// What happens to a row whose work returns an error or panics. Before it releases one, the worker waits for the time of
    /// [`poll`](Self::poll), so that a row that always fails does not keep it busy.
    pub const fn on_err(mut self, on_err: OnErr) -> Self {
        self.settings.on_err = on_err;
        self
    }

    /// Looks for rows at the latest after this time, which is a second by default, even without a notification: rows that are scheduled,
    /// or that a dead worker has left, come without one. At least a millisecond.
    pub fn poll(mut self, time: Duration) -> Self {
        self.settings.poll = time.max(Duration::from_millis(1));
        self
    }

    /// Does not listen for notifications, and so needs no connection beside the pool's. It only polls.
    pub const fn poll_only(mut self) -> Self {
        self.settings.is_listening = false;
        self
    }

    /// Claims only rows of which a condition is true, as [`claim::next_where`](super::next_where).
    pub fn filter(mut self, condition: impl Condition<T::Table> + 'w) -> Self {
        self.settings.condition = Some(Box::new(condition));
        self
    }

    /// Stops when this future is ready, such as one that waits for a signal. Then it claims no more rows, releases the ones that it has
    /// not begun to work on, and [`run`](Self::run) returns when the works that have begun are over.
    pub fn until(mut self, stop: impl Future<Output = ()> + Send + 'w) -> Self {
        self.stop = Box::pin(stop);
        self
    }

    /// Claims rows and works on them until the future of [`until`](Self::until) is ready; without one, for ever.
    ///
    /// `work` is an async closure or an `async fn`. `Ok` completes the row, and `Err` ends it as [`on_err`](Self::on_err) says, with the
    /// error's text as the row's message. A panic ends it like an error, and the worker goes on. If the work has ended the claim itself,
    /// such as in the transaction that writes its results, it is left as it is. If the claim is lost, the work is dropped, and another
    /// worker has the row or will claim it.
    ///
    /// With the feature `tracing`, each work runs in a span `advisory_lock` with the table as its pattern and `claim` as its scope, and
    /// what goes wrong is a warning there. With `metrics` it counts as a lock does: `advisory_acquired_total`,
    /// `advisory_hold_seconds`, and `advisory_ended_total` by outcome, which is `done`, `failed`, `panicked` or `lost`.
    ///
    /// # Locking
    ///
    /// The statements of [`next_batch`](super::next_batch) and [`run`](super::run). A connection of the pool is used for each, and is
    /// free while the work runs. Beside the pool it opens one connection for `LISTEN advisory_claim`, unless
    /// [`poll_only`](Self::poll_only). If it cannot, or if a pooler in transaction mode is in front of the server, it warns once and
    /// polls.
    ///
    /// # Errors
    ///
    /// [`Error::Database`] if the server refuses the first claim, as where a column does not exist; after ten seconds of tries if the reason
    /// may pass, such as a `lock_timeout`, and missing rights look alike. Every other failed claim is tried again, after a pause of a tenth
    /// of a second that doubles up to ten seconds: a lost connection, an exhausted pool, a server that is read only, an error of the server
    /// later on.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime whose timer is enabled.
    ///
    /// # Cancel safety
    ///
    /// If this future is dropped, the works are dropped and their rows released in the background; a row that was being ended
    /// ends as it would have. A row whose claim was being sent may
    /// stay claimed until it expires. To stop without either, use [`until`](Self::until).
    pub async fn run<E, F>(self, work: impl Fn(Claimed<T>) -> F) -> Result<(), Error>
    where
        F: Future<Output = Result<(), E>>,
        E: Display,
    {
        let settings = &self.settings;
        let slots = Semaphore::new(settings.concurrency);
        let shared = Shared::default();
        let mut feed = pin!(feed::feed(settings, self.stop, &slots, &shared));
        let mut listen = pin!(async {
            if settings.is_listening {
                listen::listen(settings, &shared.wake).await;
            }
        });
        let (mut outcome, mut is_deaf) = (None, false);
        let mut jobs = Vec::new();
        poll_fn(|context| {
            is_deaf = is_deaf || listen.as_mut().poll(context).is_ready();
            loop {
                if outcome.is_none()
                    && let Poll::Ready(result) = feed.as_mut().poll(context)
                {
                    outcome = Some(result);
                    shared.stopping.close();
                }
                let claimed = std::mem::take(&mut *shared.claimed());
                let is_idle = claimed.is_empty();
                for (claimed, slot) in claimed {
                    jobs.push(Box::pin(job::job(settings, &shared, &work, claimed, slot)));
                }
                let before = jobs.len();
                // A work that is always ready uses up what tokio allows the task in one turn, so each turn begins with another one.
                if before > 0 {
                    jobs.rotate_left(1);
                }
                jobs.retain_mut(|job| job.as_mut().poll(context).is_pending());
                if jobs.len() < before {
                    shared.ended.notify_one();
                } else if is_idle {
                    break;
                }
            }
            if outcome.is_some() && jobs.is_empty() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        outcome.unwrap_or(Ok(()))
    }
}

impl<T: Claim, P> Settings<'_, T, P> {
    fn wanted(&self) -> Wanted<'_> {
        let condition = self.condition.as_deref();
        Wanted {
            condition: condition.map(|condition| condition as Changes<'_>),
            changes: None,
        }
    }
}

/// What the parts of a running worker tell each other.
struct Shared<'s, T> {
    /// Rows that are claimed, and not begun.
    claimed: Mutex<Claims<'s, T>>,
    /// There may be new rows.
    wake: Notify,
    /// A work has ended, so that another row of its value may be claimed.
    ended: Notify,
    /// Has no permit, and is closed when no more rows are claimed.
    stopping: Semaphore,
}

type Claims<'s, T> = VecDeque<(Claimed<T>, SemaphorePermit<'s>)>;

impl<T> Default for Shared<'_, T> {
    fn default() -> Self {
        Self {
            claimed: Mutex::default(),
            wake: Notify::new(),
            ended: Notify::new(),
            stopping: Semaphore::new(0),
        }
    }
}

impl<'s, T> Shared<'s, T> {
    fn claimed(&self) -> std::sync::MutexGuard<'_, Claims<'s, T>> {
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
