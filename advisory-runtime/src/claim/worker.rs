//! A worker: claims rows, runs several bodies at a time, ends each claim as its body ends, and
//! stops gracefully.

mod feed;
mod held_rows;
mod job;
#[cfg(feature = "diesel-async")]
mod listen;
mod position;
mod scheduler;
mod shared;
mod source;

use super::observers::observers;
use super::optional_column::MaybeRunAt;
use super::sql::{Fragment, Wanted, table_name};
use super::table::Claim;
use super::take::{Condition, position_of, take};
use super::{Claimed, Error, Event};
#[cfg(feature = "diesel-async")]
use crate::Pool;
use crate::driver::Queries;
use crate::rows::{End, Observer, may_stick, number_of_pool, tell};
use diesel::AsChangeset;
use diesel::pg::Pg;
use diesel::query_builder::QueryFragment;
use position::SLOW;
pub(crate) use position::{ClaimAnswer, ClaimArgs};
pub(crate) use scheduler::run;
#[cfg(feature = "diesel-async")]
use source::AsyncSource;
#[cfg(feature = "postgres")]
pub(crate) use source::ClaimFn;
pub(crate) use source::Source;
#[cfg(feature = "diesel-async")]
use std::fmt::Display;
use std::future::pending;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The default of [`Worker::poll`].
const POLL: Duration = Duration::from_secs(1);
/// The most rows that can be fetched ahead.
const MOST_PREFETCHED: u32 = 100_000;

/// Claims rows and runs a body for each, until it is stopped.
///
/// ```no_run
/// # #[cfg(feature = "bb8")]
/// # mod jobs {
#[doc = example_of_jobs!()]
/// # use advisory_runtime::claim;
/// # use diesel_async::{AsyncPgConnection, pooled_connection::bb8::Pool};
/// # async fn terminated() {}
/// # async fn send(_: i64) -> Result<(), Error> { Ok(()) }
/// async fn deliver(pool: &Pool<AsyncPgConnection>) -> Result<(), Error> {
///     let worker = claim::Worker::new(pool, "worker-7").concurrency(4).until(terminated());
///     worker.run(async |job: Claimed<Job>| send(job.id).await).await
/// }
/// # }
/// ```
///
/// It runs up to [`concurrency`](Self::concurrency) bodies at a time, in the order of
/// `#[claim(order = …)]`, and renews each row like [`claim::run`](super::run). The bodies share one
/// task: if they use a processor for long, call [`run_spawned`](Self::run_spawned). The pool needs
/// the connections that the bodies take from it, and one for the worker. The guide has [the
/// details](crate::guide::claims#a-worker).
#[must_use = "a worker does nothing until `run`"]
pub struct Worker<'w, T: Claim, P> {
    pub(crate) pool: P,
    pub(crate) settings: Settings<'w, T>,
    pub(crate) stop: Stop<'w>,
}

type Stop<'w> = Pin<Box<dyn Future<Output = ()> + Send + 'w>>;

pub(crate) struct Settings<'w, T: Claim> {
    name: String,
    /// The number that the keeper has for a pool without an identity.
    pub(crate) number: usize,
    pub(crate) concurrency: usize,
    /// The number of rows to fetch ahead; `None` to derive it from the time that bodies take.
    prefetch: Option<usize>,
    on_err: End,
    poll: Duration,
    is_listening: bool,
    /// The time that bodies may run after the stop.
    grace: Option<Duration>,
    is_until_empty: bool,
    conditions: Vec<Fragment<'w>>,
    changes: Vec<Fragment<'w>>,
    observer: Option<Observer<Claimed<T>, Error>>,
}

/// A handle of a pool of blocking or async connections, for `Worker::new`. A clone refers to the
/// same pool.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a pool",
    label = "expected a pool of bb8, deadpool or r2d2",
    note = "a worker takes the pool itself, because it needs more than one connection"
)]
pub trait PoolHandle: Clone {}

#[diagnostic::do_not_recommend]
impl<P: Clone> PoolHandle for P {}

impl<'w, T: Claim, P: PoolHandle> Worker<'w, T, P> {
    /// Creates a worker. `locked_by` begins with its name, which several workers can share.
    ///
    /// By default it runs one body at a time. After a failed attempt, it retries the row if the
    /// table has a `run_at`, otherwise fails it for good if the table has a `failed_at`, and
    /// otherwise releases it. A row of a table without `completed_at` is claimed again as soon as
    /// its body has returned.
    pub fn new(pool: &P, name: impl Into<String>) -> Self {
        let on_err = match T::RunAt::COLUMN {
            Some(_) => End::Retry { after: None },
            None => End::Fail,
        };
        let settings = Settings {
            name: name.into(),
            number: number_of_pool(),
            concurrency: 1,
            prefetch: None,
            on_err,
            poll: POLL,
            is_listening: true,
            grace: None,
            is_until_empty: false,
            conditions: Vec::new(),
            changes: Vec::new(),
            observer: observers(table_name::<T>(), None),
        };
        Self {
            pool: pool.clone(),
            settings,
            stop: Box::pin(pending()),
        }
    }

    /// Sets the number of bodies that can run at a time; at least one, at most a thousand.
    pub fn concurrency(mut self, rows: usize) -> Self {
        self.settings.concurrency = rows.clamp(1, 1_000);
        self
    }

    /// Sets the number of rows that are claimed beyond those that run, so that no body waits for a
    /// round trip. The guide describes [the default, and how long rows can
    /// wait](crate::guide::claims#a-worker).
    ///
    /// With 0, a row is claimed only when its body can begin, and a slot is free only when its row
    /// has ended. For the highest throughput, use 2,000.
    pub fn prefetch(mut self, rows: u32) -> Self {
        self.settings.prefetch = Some(rows.min(MOST_PREFETCHED) as usize);
        self
    }

    /// Sets how a claim ends if the body returns an error or panics. Before the worker releases
    /// such a row, it waits for the time of [`poll`](Self::poll), so that a row that always fails
    /// does not keep it busy.
    pub const fn on_err(mut self, on_err: End) -> Self {
        self.settings.on_err = on_err;
        self
    }

    /// Sets the time after which an idle worker looks for rows without a notification; by default a
    /// second, at least a millisecond. No notification arrives for rows that become due or that a
    /// dead worker has left.
    pub fn poll(mut self, time: Duration) -> Self {
        self.settings.poll = time.max(Duration::from_millis(1));
        self
    }

    /// Polls without listening for notifications, and so needs no connection outside the pool.
    pub const fn poll_only(mut self) -> Self {
        self.settings.is_listening = false;
        self
    }

    /// Claims only rows for which a condition is true, like [`Next::filter`](super::Next::filter).
    pub fn filter(mut self, condition: impl Condition<T::Table> + 'w) -> Self {
        self.settings.conditions.push(Box::new(condition));
        self
    }

    /// Sets columns of yours when a row is claimed, such as a status, like
    /// [`Next::set`](super::Next::set).
    pub fn set<S>(mut self, changes: S) -> Self
    where
        S: AsChangeset<Target = T::Table, Changeset: QueryFragment<Pg> + Send + Sync + 'w>,
    {
        let changes = changes.as_changeset();
        self.settings.changes.push(Box::new(changes));
        self
    }

    /// Calls a closure for each event, on the worker's task, on tasks that end rows, and on the
    /// thread that renews the rows of the process, so it must not block. A panic is caught and
    /// discarded. The features `tracing` and `metrics` observe the same events.
    pub fn observe(mut self, observer: impl Fn(Event<'_, T>) + Send + Sync + 'static) -> Self {
        let observer: Observer<Claimed<T>, Error> = Arc::new(observer);
        self.settings.observer = observers(table_name::<T>(), Some(observer));
        self
    }

    /// Stops the worker when a future is ready, such as one that waits for a signal. The worker
    /// then claims no more rows and releases those it has not begun. [`run`](Self::run) returns
    /// when all running bodies have returned, or after the time of [`grace`](Self::grace).
    ///
    /// If a claim has been sent, the worker waits at most 5 seconds for its answer; without one,
    /// its rows may stay claimed until they expire. After the last body it waits at most 5 seconds
    /// for its rows to end. The process continues to try for as long as it lives, and a row that it
    /// cannot end expires.
    pub fn until(mut self, stop: impl Future<Output = ()> + Send + 'w) -> Self {
        self.stop = Box::pin(stop);
        self
    }

    /// Sets the time that bodies may run after the stop. Then they are dropped, and their rows are
    /// released without counting the attempt.
    ///
    /// Choose less than the time between the platform's signal and the end of the process. If it is
    /// 30 seconds, the default of Kubernetes, a grace of 20 seconds leaves enough for the releases.
    pub const fn grace(mut self, time: Duration) -> Self {
        self.settings.grace = Some(time);
        self
    }

    /// Stops the worker when no row can be claimed and no body runs: for tests, and for processes
    /// that a timer starts.
    ///
    /// It does not wait for rows that are scheduled for later or that other workers have claimed.
    pub const fn until_empty(mut self) -> Self {
        self.settings.is_until_empty = true;
        self
    }

    /// Runs each body in its own task, so that bodies run in parallel on a multi-thread runtime;
    /// otherwise like [`run`](Self::run).
    ///
    /// The body must own what it uses. If its claim is lost, its task is aborted.
    #[cfg(feature = "diesel-async")]
    pub async fn run_spawned<E, F>(self, body: impl Fn(Claimed<T>) -> F) -> Result<(), Error>
    where
        P: Pool + Send + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        self.run(move |claimed| {
            let mut task = JoinSet::new();
            task.spawn(body(claimed));
            joined(task)
        })
        .await
    }

    /// Claims rows and runs their bodies until the future of [`until`](Self::until) is ready;
    /// without one, for ever.
    ///
    /// `body` is an async closure or an `async fn`. `Ok` completes the row, and `Err` or a panic
    /// ends it as [`on_err`](Self::on_err) says, with the text as the row's message. A claim that
    /// the body has ended itself, such as in the transaction that writes its results, stays as it
    /// is. If the claim is lost, the body is dropped.
    ///
    /// The features `tracing` and `metrics` observe each body [like a
    /// lock](crate::guide::watching#what-happened), with the table as its pattern and `claim` as
    /// its scope. Its outcome is `done`, `failed`, `panicked`, `lost` or `dropped`.
    ///
    /// # Locking
    ///
    /// The statements of [`next`](super::next) and [`run`](super::run), except that one `UPDATE`
    /// ends several rows; it skips locked rows, which are then ended one by one. Each statement
    /// takes a connection of the pool, and none is held while a body runs. The workers of a pool
    /// share one connection outside of it for `LISTEN advisory_claim`, unless
    /// [`poll_only`](Self::poll_only) is set. If it cannot be opened, or if a pooler in transaction
    /// mode is in front of the server, the worker reports that once to the observer, and polls.
    ///
    /// # Errors
    ///
    /// [`Error::Database`] if the server refuses the first claim, for example because a column does
    /// not exist. If the reason may be temporary, such as a `lock_timeout`, the worker first tries
    /// for ten seconds. It also does so for missing privileges, because the driver reports both
    /// alike.
    ///
    /// Every other failed claim is tried again: after a lost connection, an exhausted pool, a
    /// server that is read only, or an error of the server later on. The pause before it is a tenth
    /// of a second and doubles up to ten seconds, less a random part.
    ///
    /// # Panics
    ///
    /// Panics if called outside of a tokio runtime with an enabled timer.
    ///
    /// # Cancel safety
    ///
    /// If this future is dropped, the bodies are dropped and their rows are released in the
    /// background. A row that is being ended still ends. If a claim is being sent, its rows may
    /// stay claimed until they expire. To stop gracefully, use [`until`](Self::until).
    #[cfg(feature = "diesel-async")]
    pub async fn run<E, F>(self, body: impl Fn(Claimed<T>) -> F) -> Result<(), Error>
    where
        P: Pool + Send + 'static,
        F: Future<Output = Result<(), E>>,
        E: Display,
    {
        let (pool, settings) = (&self.pool, &self.settings);
        run(&AsyncSource { pool, settings }, settings, self.stop, body).await
    }
}

impl<T: Claim> Settings<'_, T> {
    pub(crate) async fn take<D: Queries>(
        &self,
        conn: &mut D,
        args: &ClaimArgs,
    ) -> Result<ClaimAnswer<T>, Error> {
        let wanted = Wanted {
            key: None,
            conditions: &self.conditions,
            changes: &self.changes,
            position: args.position.as_deref(),
            skips_expired: args.skips_expired,
        };
        let sent = Instant::now();
        let taken = take(conn, &self.name, args.limit, wanted).await;
        if let Err(Error::Database(error)) = &taken
            && may_stick(error)
        {
            conn.close(false);
        }
        let (claimed, may_be_more) = taken?;
        let is_slow = sent.elapsed() >= SLOW;
        let reads_position = args.reads_position && is_slow && may_be_more;
        let position = match claimed.last().filter(|_| reads_position) {
            Some(last) => position_of(conn, last).await.ok().flatten(),
            None => None,
        };
        Ok(ClaimAnswer {
            claimed,
            position,
            is_slow,
            may_be_more,
        })
    }

    fn tell(&self, event: Event<'_, T>) {
        tell(self.observer.as_ref(), event);
    }
}

/// Returns the output of the only task of a set, and resumes its panic here. The task is aborted
/// when the future is dropped.
pub(crate) async fn joined<R: 'static>(mut task: JoinSet<R>) -> R {
    match task.join_next().await {
        Some(Ok(output)) => return output,
        Some(Err(ended)) => {
            if let Ok(panic) = ended.try_into_panic() {
                resume_unwind(panic);
            }
        }
        None => {}
    }
    // The runtime is shutting down.
    pending().await
}
