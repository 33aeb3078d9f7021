//! The thread that renews rows, and ends those whose holder is gone.
//!
//! It has a runtime of its own, so no body can stop it, however long it blocks the program's
//! threads. It starts with the first row, and ends some seconds after the last one. All rows of one
//! table that are due are renewed by one statement.

mod ends;
mod group;
mod tries;

use super::answer::{Renewed, RowError, Settled};
use super::end::End;
use super::event::RowEvent;
use super::hold::Hold;
use super::reach::{Answering, Times};
use crate::PoolError;
pub(crate) use group::Renewal;
use group::{Group, PendingEnd};
use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::future::ready;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// How long the thread waits for another row before it ends.
const LINGER: Duration = Duration::from_secs(10);

/// A row that this process holds; a clone is the same one.
pub trait HeldRow: Clone + Send + Sync + 'static {
    /// How it ends, with what belongs to it.
    type End: Clone + Send + Sync + 'static;
    /// The product's error.
    type Error: RowError;

    fn hold(&self) -> &Hold;

    /// The time between two renewals.
    fn every(&self) -> Duration;

    /// Tells the program's observer.
    fn tell(&self, event: RowEvent<'_, Self::Error>);

    /// Converts an end to the one that an observer sees.
    fn shown_end(end: &Self::End) -> End;

    /// For how long the caller waits for the keeper's tries; `None` until the row expires.
    fn caller_waits(_: &Self::End) -> Option<Duration> {
        None
    }
}

/// The statements on rows of one table, which are reached in one way. The future of each answer is
/// boxed, so that the keeper is not compiled for each type of row and pool.
pub trait Rows<R: HeldRow>: Send + Sync {
    /// Returns `true` if the caller's own runtime can send an end.
    fn sends_on_caller(&self) -> bool;

    /// Returns `true` if rows that end at the same time are ended together, by
    /// [`end_all`](Self::end_all).
    fn batches_ends(&self) -> bool {
        false
    }

    /// Renews the rows in one round trip, without waiting for locked ones. One answer for each row,
    /// in their order.
    fn renew(&self, rows: Vec<R>, times: Times) -> Answering<'_, Vec<Renewed>, R::Error>;

    /// How the transactions have ended in which these rows were ended, without waiting for them.
    fn settled(&self, rows: Vec<R>, times: Times) -> Answering<'_, Vec<Settled>, R::Error>;

    /// Ends a row; returns `false` if it was no longer held. `on_caller` is `true` on the caller's
    /// runtime, where it is tried once.
    fn end(
        &self,
        row: R,
        end: R::End,
        times: Times,
        on_caller: bool,
    ) -> Answering<'_, bool, R::Error>;

    /// Ends rows by one statement without waiting for locked ones. One answer for each, in their
    /// order: whether it was ended. Each of the others must be ended alone.
    fn end_all(
        &self,
        ends: Vec<(R, R::End)>,
        _: Times,
        _is_here: bool,
    ) -> Answering<'_, Vec<bool>, R::Error> {
        Box::pin(ready(Ok(vec![false; ends.len()])))
    }
}

/// The name of a group of rows: the types of its rows and its pool, the pool's number, and the
/// table. All rows of one name are sent by the statements and the pool of the first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    types: TypeId,
    pool: usize,
    table: Option<Arc<str>>,
}

/// A unique number for a pool without an identity.
pub(crate) fn number_of_pool() -> usize {
    // Odd, unlike the addresses that other pools have.
    static NUMBERS: AtomicUsize = AtomicUsize::new(1);
    NUMBERS.fetch_add(2, Ordering::Relaxed)
}

impl Name {
    /// `Types` are the types that the keeper does not know: of the rows, the pool, and how it is
    /// reached.
    pub(crate) fn new<Types: 'static>(pool: usize, table: Option<Arc<str>>) -> Self {
        let types = TypeId::of::<Types>();
        Self { types, pool, table }
    }
}

/// A task, boxed because tokio moves it several times. Since its type is erased, tokio's code for
/// tasks is compiled once.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Renews rows and ends them.
#[derive(Default)]
pub struct Keeper {
    /// `true` if the keeper has its own thread. A keeper of rows in memory runs on the runtime where
    /// the first row was acquired, and uses its clock, which a test can pause.
    has_thread: bool,
    state: Mutex<State>,
    /// Wakes the loop before the time that it has planned.
    wake: Notify,
}

#[derive(Default)]
struct State {
    /// Few, and short-lived: each ends with its last row.
    groups: BTreeMap<Name, Arc<dyn Due>>,
    /// Where the loop runs, if it does.
    runtime: Option<Handle>,
    /// When the loop looks at its rows again.
    planned: Option<Instant>,
    /// Tasks that need the runtime.
    tasks: usize,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").finish_non_exhaustive()
    }
}

impl Keeper {
    pub(crate) fn of_process() -> &'static Arc<Self> {
        static KEEPER: LazyLock<Arc<Keeper>> = LazyLock::new(|| {
            Arc::new(Keeper {
                has_thread: true,
                ..Keeper::default()
            })
        });
        &KEEPER
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a row until the returned value is dropped. Rows of one name share a statement; the
    /// first of them makes the group.
    ///
    /// Fails if the keeper's thread cannot be started.
    pub(crate) fn keep<R: HeldRow>(
        self: &Arc<Self>,
        name: Name,
        rows: &dyn Fn() -> Box<dyn Rows<R>>,
        row: R,
        renews: bool,
    ) -> Result<Renewal<R>, PoolError> {
        let mut renewals = self.keep_all(name, rows, vec![row], renews)?;
        renewals
            .pop()
            .ok_or_else(|| PoolError::new("no row is kept"))
    }

    /// Keeps rows like [`keep`](Self::keep), in their order.
    pub(crate) fn keep_all<R: HeldRow>(
        self: &Arc<Self>,
        name: Name,
        rows: &dyn Fn() -> Box<dyn Rows<R>>,
        held: Vec<R>,
        renews: bool,
    ) -> Result<Vec<Renewal<R>>, PoolError> {
        let mut state = self.state();
        self.start(&mut state)?;
        let group = state.groups.entry(name.clone());
        let group = group.or_insert_with(|| {
            let (keeper, submit) = (Arc::clone(self), PendingEnd::submit);
            Arc::new(Group::new(keeper, name, rows(), submit))
        });
        let group: Arc<dyn Any + Send + Sync> = Arc::<dyn Due>::clone(group);
        let Ok(group) = group.downcast::<Group<R>>() else {
            return Err(PoolError::new("two kinds of rows have one name"));
        };
        let now = Instant::now();
        let next_of = |row: &R| {
            // Less than a whole ttl is left if the answer to the grant was lost, or if the row was
            // claimed long ago.
            let left = row.hold().deadline().saturating_duration_since(now);
            renews.then(|| now + row.every().min(left / 2))
        };
        let first = held.iter().filter_map(next_of).min();
        let ids = group.insert(held.iter().map(|row| (row.clone(), next_of(row))));
        if let Some(first) = first
            && state.planned.is_none_or(|planned| first < planned)
        {
            state.planned = Some(first);
            self.wake.notify_one();
        }
        drop(state);
        let renewals = ids.zip(held).map(|(id, row)| Renewal {
            group: Arc::clone(&group),
            id,
            row,
        });
        Ok(renewals.collect())
    }

    /// Runs a task on the keeper's runtime. Returns `false`, and drops the task, if the runtime
    /// cannot be started.
    pub(crate) fn spawn(self: &Arc<Self>, task: Task) -> bool {
        let mut state = self.state();
        let Ok(runtime) = self.start(&mut state) else {
            return false;
        };
        state.tasks += 1;
        drop(state);
        let running = Running(Arc::clone(self));
        drop(runtime.spawn(async move {
            let _running = running;
            task.await;
        }));
        true
    }

    /// Starts the loop, unless it runs. Returns its runtime.
    fn start(self: &Arc<Self>, state: &mut State) -> Result<Handle, PoolError> {
        if let Some(runtime) = &state.runtime {
            return Ok(runtime.clone());
        }
        let keeper = Arc::clone(self);
        let runtime = if self.has_thread {
            let (started, runtime) = mpsc::channel();
            let thread = thread::Builder::new().name("advisory-rows".to_owned());
            let run = move || match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => {
                    drop(started.send(Ok(runtime.handle().clone())));
                    runtime.block_on(keeper.run());
                }
                Err(error) => drop(started.send(Err(error))),
            };
            drop(thread.spawn(run).map_err(PoolError::new)?);
            let runtime = runtime.recv().map_err(PoolError::new)?;
            runtime.map_err(PoolError::new)?
        } else {
            let runtime = Handle::try_current().map_err(PoolError::new)?;
            drop(runtime.spawn(keeper.run()));
            runtime
        };
        state.runtime = Some(runtime.clone());
        Ok(runtime)
    }

    /// Renews what is due, until there has been no row for some seconds.
    async fn run(self: Arc<Self>) {
        let stopped = Stopped(&self);
        let mut idle_since = None;
        loop {
            let now = Instant::now();
            let groups: Vec<_> = self.state().groups.values().map(Arc::clone).collect();
            // Without the lock, because a lost row is told to the program's observer.
            for group in groups {
                group.renew_due(now);
            }
            let next = {
                let mut state = self.state();
                let is_idle = state.groups.is_empty() && state.tasks == 0;
                let linger = if self.has_thread {
                    LINGER
                } else {
                    Duration::ZERO
                };
                let end = is_idle.then(|| *idle_since.get_or_insert(now) + linger);
                if end.is_some_and(|end| now >= end) {
                    // Under the lock: whoever comes next starts another loop.
                    (state.runtime, state.planned) = (None, None);
                    std::mem::forget(stopped);
                    return;
                }
                if !is_idle {
                    idle_since = None;
                }
                let due = state.groups.values().filter_map(|group| group.next_due());
                let next = due.chain(end).min();
                state.planned = next;
                next
            };
            match next {
                Some(next) => drop(timeout_at(next, self.wake.notified()).await),
                None => self.wake.notified().await,
            }
        }
    }

    fn forget(&self, name: &Name) {
        let mut state = self.state();
        if state.groups.get(name).is_some_and(|group| group.is_empty()) {
            state.groups.remove(name);
            if state.groups.is_empty() && !self.has_thread {
                self.wake.notify_one();
            }
        }
    }
}

/// A loop that was dropped with its runtime is started again by the next row.
struct Stopped<'k>(&'k Keeper);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        (state.runtime, state.planned, state.tasks) = (None, None, 0);
    }
}

/// A task on the keeper's runtime.
struct Running(Arc<Keeper>);

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.tasks = state.tasks.saturating_sub(1);
        if state.tasks == 0 && state.groups.is_empty() {
            self.0.wake.notify_one();
        }
    }
}

/// A group of rows, whatever they are.
trait Due: Any + Send + Sync {
    fn is_empty(&self) -> bool;

    /// When the first row is due.
    fn next_due(&self) -> Option<Instant>;

    /// Starts the renewal of the rows that are due.
    fn renew_due(self: Arc<Self>, now: Instant);
}

#[cfg(all(test, feature = "testing"))]
mod tests;
