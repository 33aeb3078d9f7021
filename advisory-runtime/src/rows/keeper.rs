//! The thread that renews rows, and ends those whose holder is gone.
//!
//! It has a runtime of its own, so no body can stop it, however long it blocks the program's
//! threads. It starts with the first row, and ends some seconds after the last one. All rows of one
//! table that are due are renewed by one statement.

mod ends;

use super::end::{End, Ended, Renewed, Settled, Tries};
use super::event::{Event, Observer, tell};
use super::expiry::Sent;
use super::failure::{Failure, RowError};
use super::hold::{Hold, Phase};
use super::pause;
use super::reach::Times;
use crate::PoolError;
use diesel::result::Error as DieselError;
use ends::{EndRequest, Ends, Place, call};
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};

/// How long the thread waits for another row before it ends.
const LINGER: Duration = Duration::from_secs(10);
/// How many rows one statement renews at most.
const MOST: usize = 1_000;

/// The statements on rows of one table, which are reached in one way.
pub(crate) trait Rows: Send + Sync + Sized + 'static {
    /// A held row; a clone is the same one.
    type Row: Clone + Send + Sync + 'static;
    /// How a row ends, with what belongs to it.
    type End: Clone + Send + Sync + 'static;
    /// The product's error.
    type Error: RowError;

    fn hold(row: &Self::Row) -> &Hold;

    /// The time between two renewals.
    fn every(row: &Self::Row) -> Duration;

    /// Renews the rows in one round trip, without waiting for locked ones. One answer for each row,
    /// in their order.
    fn renew(
        &self,
        rows: Vec<Self::Row>,
        times: Times,
    ) -> impl Future<Output = Result<Vec<Renewed>, Self::Error>> + Send;

    /// How the transactions have ended in which these rows were ended, without waiting for them.
    fn settled(
        &self,
        rows: Vec<Self::Row>,
        times: Times,
    ) -> impl Future<Output = Result<Vec<Settled>, Self::Error>> + Send;

    /// Ends a row; `false` if it was not held any more. `is_here` on the caller's runtime, where it
    /// is tried once.
    fn end(
        &self,
        row: Self::Row,
        end: Self::End,
        times: Times,
        is_here: bool,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Whether rows that end at the same time are ended together, by [`end_all`](Self::end_all).
    const GATHERS: bool = false;

    /// Ends rows by one statement without waiting for locked ones. One answer for each, in their
    /// order: whether it was ended. Each of the others must be ended alone.
    fn end_all(
        &self,
        ends: Vec<(Self::Row, Self::End)>,
        _: Times,
        _is_here: bool,
    ) -> impl Future<Output = Result<Vec<bool>, Self::Error>> + Send {
        std::future::ready(Ok(vec![false; ends.len()]))
    }

    /// For how long the caller waits for tries that follow the first ones; `None` until the row
    /// expires.
    fn caller_waits(end: &Self::End) -> Option<Duration>;

    /// What an observer sees of a row.
    type Shown;

    fn shown(row: &Self::Row) -> &Self::Shown;

    fn observer(row: &Self::Row) -> Option<&Observer<Self::Shown, Self::Error>>;

    /// What an observer sees of an end.
    fn shown_end(end: &Self::End) -> End;
}

/// What tells groups of rows apart: the statements, the pool and the table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    rows: TypeId,
    pool: usize,
    table: String,
}

impl Name {
    pub(crate) fn new<R: Rows>(pool: usize, table: String) -> Self {
        let rows = TypeId::of::<R>();
        Self { rows, pool, table }
    }
}

/// The keeper of this process.
static KEEPER: LazyLock<Arc<Keeper>> = LazyLock::new(|| Arc::new(Keeper::new(Home::Thread)));

/// Where a keeper runs.
#[derive(Clone, Copy, Debug)]
enum Home {
    /// A thread of its own.
    Thread,
    /// The runtime of whoever holds the first row, for rows in memory, whose time is that
    /// runtime's.
    #[cfg_attr(
        not(feature = "testing"),
        allow(dead_code, reason = "for leases in memory")
    )]
    Runtime,
}

/// Renews rows and ends them.
pub struct Keeper {
    home: Home,
    state: Mutex<State>,
    /// Wakes the loop before the time that it has planned.
    wake: Notify,
}

#[derive(Default)]
struct State {
    groups: HashMap<Name, Arc<dyn Due>>,
    /// Where the loop runs, if it does.
    runtime: Option<Handle>,
    /// When the loop looks at its rows again.
    planned: Option<Instant>,
    /// Tasks that need the runtime.
    tasks: usize,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Keeper");
        debug.field("home", &self.home).finish_non_exhaustive()
    }
}

impl Keeper {
    fn new(home: Home) -> Self {
        Self {
            home,
            state: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// The keeper of this process.
    pub(crate) fn of_process() -> &'static Arc<Self> {
        &KEEPER
    }

    /// A keeper on the runtime of whoever holds its first row.
    #[cfg(feature = "testing")]
    pub(crate) fn on_runtime() -> Arc<Self> {
        Arc::new(Self::new(Home::Runtime))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a row until the returned value is dropped. Rows of one name share a statement; the
    /// first of them makes the group.
    ///
    /// Fails if the keeper's thread cannot be started.
    pub(crate) fn keep<R: Rows>(
        self: &Arc<Self>,
        name: Name,
        rows: impl FnOnce() -> R,
        row: R::Row,
        renews: bool,
    ) -> Result<Kept<R>, PoolError> {
        let mut kept = self.keep_all(name, rows, vec![row], renews)?;
        kept.pop().ok_or_else(|| PoolError::new("no row is kept"))
    }

    /// Keeps rows like [`keep`](Self::keep), in their order.
    pub(crate) fn keep_all<R: Rows>(
        self: &Arc<Self>,
        name: Name,
        rows: impl FnOnce() -> R,
        kept: Vec<R::Row>,
        renews: bool,
    ) -> Result<Vec<Kept<R>>, PoolError> {
        let mut state = self.state();
        self.start(&mut state)?;
        let group = state.groups.entry(name.clone());
        let group = group.or_insert_with(|| Arc::new(Group::new(rows(), name)));
        let Ok(group) = Arc::clone(group).into_any().downcast::<Group<R>>() else {
            return Err(PoolError::new("two kinds of rows have one name"));
        };
        let now = Instant::now();
        let next_of = |row: &R::Row| {
            // Of a grant whose answer was lost, and of a row that was claimed long ago, less than a
            // whole ttl is left.
            let left = R::hold(row).deadline().saturating_duration_since(now);
            renews.then(|| now + R::every(row).min(left / 2))
        };
        let first = kept.iter().filter_map(next_of).min();
        let ids = group.insert(kept.iter().map(|row| (row.clone(), next_of(row))));
        if let Some(first) = first
            && state.planned.is_none_or(|planned| first < planned)
        {
            state.planned = Some(first);
            self.wake.notify_one();
        }
        drop(state);
        let kept = ids.zip(kept).map(|(id, row)| Kept {
            keeper: Arc::clone(self),
            group: Arc::clone(&group),
            id,
            row,
        });
        Ok(kept.collect())
    }

    /// Runs a task on the keeper's runtime. Without a runtime it is dropped.
    pub(crate) fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) -> bool {
        let mut state = self.state();
        if self.start(&mut state).is_err() {
            return false;
        }
        let Some(runtime) = state.runtime.clone() else {
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

    /// Starts the loop, unless it runs.
    fn start(self: &Arc<Self>, state: &mut State) -> Result<(), PoolError> {
        if state.runtime.is_some() {
            return Ok(());
        }
        let keeper = Arc::clone(self);
        let runtime = match self.home {
            Home::Runtime => {
                let runtime = Handle::try_current().map_err(PoolError::new)?;
                drop(runtime.spawn(keeper.run()));
                runtime
            }
            Home::Thread => {
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
            }
        };
        state.runtime = Some(runtime);
        Ok(())
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
                group.renew_due(&self, now);
            }
            let next = {
                let mut state = self.state();
                let is_idle = state.groups.is_empty() && state.tasks == 0;
                let linger = match self.home {
                    Home::Thread => LINGER,
                    Home::Runtime => Duration::ZERO,
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
            if state.groups.is_empty() && matches!(self.home, Home::Runtime) {
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
trait Due: Send + Sync {
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;

    fn is_empty(&self) -> bool;

    /// When the first row is due.
    fn next_due(&self) -> Option<Instant>;

    /// Starts the renewal of the rows that are due.
    fn renew_due(self: Arc<Self>, keeper: &Arc<Keeper>, now: Instant);
}

/// The rows of one name.
struct Group<R: Rows> {
    name: Name,
    rows: R,
    slots: Mutex<Slots<R::Row>>,
    ends: Ends<R>,
}

struct Slots<Row> {
    by_id: HashMap<u64, Slot<Row>>,
    last_id: u64,
}

struct Slot<Row> {
    row: Row,
    /// When it is renewed; `None` while it is being renewed, and for a row that is not.
    next: Option<Instant>,
}

impl<R: Rows> Group<R> {
    fn new(rows: R, name: Name) -> Self {
        let slots = Mutex::new(Slots {
            by_id: HashMap::new(),
            last_id: 0,
        });
        let ends = Ends::default();
        Self {
            name,
            rows,
            slots,
            ends,
        }
    }

    fn slots(&self) -> MutexGuard<'_, Slots<R::Row>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ids of the rows, in their order.
    fn insert(
        &self,
        rows: impl Iterator<Item = (R::Row, Option<Instant>)>,
    ) -> std::ops::RangeInclusive<u64> {
        let mut slots = self.slots();
        let first = slots.last_id + 1;
        for (row, next) in rows {
            slots.last_id += 1;
            let id = slots.last_id;
            slots.by_id.insert(id, Slot { row, next });
        }
        first..=slots.last_id
    }

    /// Returns whether no row is left.
    fn remove(&self, id: u64) -> bool {
        let mut slots = self.slots();
        let removed = slots.by_id.remove(&id);
        let is_empty = slots.by_id.is_empty();
        drop(slots);
        // It may be the last clone of the row, whose drop is the user's code.
        drop(removed);
        is_empty
    }

    fn set_next(&self, id: u64, next: Option<Instant>) {
        if let Some(slot) = self.slots().by_id.get_mut(&id) {
            slot.next = next;
        }
    }

    /// Takes the rows that are due, or nearly so, out of the queue: those to renew, and those that
    /// were ended in a transaction.
    fn take_due(&self, now: Instant) -> [Vec<(u64, R::Row)>; 2] {
        let (mut renewed, mut in_transaction, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        let mut slots = self.slots();
        let is_due = slots
            .by_id
            .values()
            .any(|slot| slot.next.is_some_and(|next| next <= now));
        if is_due {
            for (id, slot) in &mut slots.by_id {
                let soon = now + R::every(&slot.row) / 4;
                if slot.next.is_none_or(|next| next > soon) {
                    continue;
                }
                slot.next = None;
                let hold = R::hold(&slot.row);
                match hold.phase() {
                    Phase::Ended => {}
                    // The answer to its commit may never come.
                    Phase::InTransaction(_) if hold.return_by().is_some_and(|by| now >= by) => {
                        hold.lose();
                        lost.push(slot.row.clone());
                    }
                    Phase::InTransaction(_) => in_transaction.push((*id, slot.row.clone())),
                    _ if hold.is_lost() => {}
                    _ if hold.is_expired() => {
                        hold.lose();
                        lost.push(slot.row.clone());
                    }
                    _ => renewed.push((*id, slot.row.clone())),
                }
            }
        }
        drop(slots);
        for row in lost {
            observe::<R>(&row, Event::Lost);
        }
        [renewed, in_transaction]
    }

    fn times(rows: &[(u64, R::Row)]) -> Times {
        let now = Instant::now();
        let every = rows.iter().map(|(_, row)| R::every(row)).min();
        let left = rows.iter().map(|(_, row)| R::hold(row).expires());
        let left = left
            .min()
            .map(|expires| expires.saturating_duration_since(now));
        Times::new(every.unwrap_or_default(), left.unwrap_or_default())
    }

    /// Renews rows by one statement, or by several if the server refuses one because of a row.
    async fn renew(&self, rows: Vec<(u64, R::Row)>) {
        let mut batches = vec![rows];
        while let Some(mut batch) = batches.pop() {
            let sent = Sent::now();
            let renewed = self.rows.renew(rows_of(&batch), Self::times(&batch)).await;
            let error = match renewed {
                Ok(answers) if answers.len() == batch.len() => {
                    for ((id, row), answer) in batch.into_iter().zip(answers) {
                        self.renewed(id, &row, sent, answer);
                    }
                    continue;
                }
                Ok(_) => R::Error::from(PoolError::new("an answer has another number of rows")),
                Err(error) => error,
            };
            let is_refused = matches!(error.failure(), Failure::Refused | Failure::Final);
            if batch.len() > 1 && is_refused {
                let other = batch.split_off(batch.len() / 2);
                batches.extend([batch, other]);
                continue;
            }
            for (id, row) in &batch {
                observe::<R>(row, |row| Event::RenewalFailed(row, &error));
                self.set_next(*id, Some(Instant::now() + pause(R::every(row))));
            }
            // Diesel's errors cannot be cloned: the first row gets this one, and the others its
            // text.
            let text = error.to_string();
            let mut reason = Some(error.into());
            for (_, row) in batch {
                let copy = || DieselError::QueryBuilderError(text.clone().into());
                R::hold(&row).blame(reason.take().unwrap_or_else(copy));
            }
        }
    }

    fn renewed(&self, id: u64, row: &R::Row, sent: Sent, answer: Renewed) {
        let (hold, every) = (R::hold(row), R::every(row));
        let next = match answer {
            Renewed::For(lasts) => {
                hold.renewed(sent, lasts);
                observe::<R>(row, Event::Renewed);
                Some(hold.next_renewal(sent.steady() + every, every))
            }
            Renewed::Busy => Some(Instant::now() + pause(every)),
            // A statement of the program's own may have ended it, whose answer comes later.
            Renewed::Gone if matches!(hold.phase(), Phase::InTransaction(_)) => {
                Some(Instant::now())
            }
            Renewed::Gone => {
                hold.lose();
                if hold.is_lost() {
                    observe::<R>(row, Event::Lost);
                }
                None
            }
        };
        self.set_next(id, next);
    }

    /// Asks how the transactions have ended in which rows were ended.
    async fn settle(&self, rows: Vec<(u64, R::Row)>) {
        let phases: Vec<_> = rows.iter().map(|(_, row)| R::hold(row).phase()).collect();
        let times = Self::times(&rows).of_settling();
        let settled = self.rows.settled(rows_of(&rows), times).await;
        let now = Instant::now();
        let answers = settled.unwrap_or_default().into_iter().map(Some);
        let answers = answers.chain(std::iter::repeat(None));
        for (((id, row), phase), answer) in rows.iter().zip(phases).zip(answers) {
            let next = match (answer, phase) {
                (Some(Settled::Committed), Phase::InTransaction(since)) => {
                    R::hold(row).settle(since, true);
                    None
                }
                (Some(Settled::RolledBack), Phase::InTransaction(since)) => {
                    R::hold(row).settle(since, false);
                    Some(now)
                }
                _ => Some(now + pause(R::every(row))),
            };
            self.set_next(*id, next);
        }
    }
}

fn rows_of<Row: Clone>(rows: &[(u64, Row)]) -> Vec<Row> {
    rows.iter().map(|(_, row)| row.clone()).collect()
}

/// Tells the program's observer.
fn observe<'e, R: Rows>(
    row: &'e R::Row,
    event: impl FnOnce(&'e R::Shown) -> Event<'e, R::Shown, R::Error>,
) {
    let observer = R::observer(row);
    if observer.is_some() {
        tell(observer, event(R::shown(row)));
    }
}

impl<R: Rows> Due for Group<R> {
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    fn is_empty(&self) -> bool {
        self.slots().by_id.is_empty()
    }

    fn next_due(&self) -> Option<Instant> {
        self.slots()
            .by_id
            .values()
            .filter_map(|slot| slot.next)
            .min()
    }

    fn renew_due(self: Arc<Self>, keeper: &Arc<Keeper>, now: Instant) {
        let [mut held, in_transaction] = self.take_due(now);
        while !held.is_empty() {
            let batch = held.split_off(held.len().saturating_sub(MOST));
            let (group, keeper) = (Arc::clone(&self), Arc::clone(keeper));
            drop(tokio::spawn(async move {
                group.renew(batch).await;
                keeper.wake.notify_one();
            }));
        }
        if !in_transaction.is_empty() {
            let (group, keeper) = (Arc::clone(&self), Arc::clone(keeper));
            drop(tokio::spawn(async move {
                group.settle(in_transaction).await;
                keeper.wake.notify_one();
            }));
        }
    }
}

/// A row that the keeper renews until this value is dropped.
pub(crate) struct Kept<R: Rows> {
    keeper: Arc<Keeper>,
    group: Arc<Group<R>>,
    id: u64,
    row: R::Row,
}

/// Is called with how a row was ended.
pub(crate) type Reply<R> = Box<dyn FnOnce(Result<Ended, <R as Rows>::Error>) + Send>;

impl<R: Rows> Kept<R> {
    /// Ends the row: by one statement on the caller's runtime, and if that fails, by tries of the
    /// keeper until the row expires.
    ///
    /// If this future is dropped, the row is ended in the background.
    pub(crate) async fn end(self, end: R::End) -> Result<Ended, R::Error> {
        if R::GATHERS {
            let (reply, ended) = oneshot::channel();
            self.end_then(end, Box::new(|ended| drop(reply.send(ended))));
            return ended
                .await
                .unwrap_or_else(|gone| Err(PoolError::new(gone).into()));
        }
        let mut tries = Tries::new(R::hold(&self.row));
        let mut here = EndOnDrop(Some((self, end)));
        if let EndOnDrop(Some((kept, end))) = &here {
            let hold = R::hold(&kept.row);
            if hold.phase() == Phase::Ended {
                here.0 = None;
                return Ok(Ended::Done);
            }
            if !matches!(hold.phase(), Phase::InTransaction(_)) {
                let was_lost = hold.is_lost();
                let times = kept.times_here(&tries);
                let row = kept.row.clone();
                let answer = kept.group.rows.end(row, end.clone(), times, true).await;
                kept.observe_end(was_lost, end, &answer);
                // The keeper has connections of its own, also for a row that has expired by now.
                let is_sent =
                    !matches!(&answer, Err(error) if error.failure() == Failure::Unreachable);
                if is_sent && let ControlFlow::Break(ended) = tries.after(answer) {
                    here.0 = None;
                    return ended;
                }
            }
        }
        let Some((kept, end)) = here.0.take() else {
            return Ok(Ended::Lost);
        };
        let (reply, ended) = oneshot::channel();
        let reply: Reply<R> = Box::new(|ended| drop(reply.send(ended)));
        let keeper = Arc::clone(&kept.keeper);
        keeper.spawn(async move { kept.end_with(end, tries, Some(reply)).await });
        ended
            .await
            .unwrap_or_else(|gone| Err(PoolError::new(gone).into()))
    }

    /// Ends the row together with others, on the caller's runtime at first, and calls `reply` with
    /// how it has ended.
    pub(crate) fn end_then(self, end: R::End, reply: Reply<R>) {
        EndRequest::new(self, end, Some(reply)).submit(Place::Here);
    }

    /// Ends the row on the keeper, and drops `alive` then.
    pub(crate) fn end_later(self, end: R::End, alive: impl Send + 'static) {
        if R::GATHERS {
            let reply: Reply<R> = Box::new(move |_| drop(alive));
            return EndRequest::new(self, end, Some(reply)).submit(Place::Keeper);
        }
        let keeper = Arc::clone(&self.keeper);
        keeper.spawn(async move {
            let _alive = alive;
            let tries = Tries::new(R::hold(&self.row));
            self.end_with(end, tries, None).await;
        });
    }

    /// How long the first try on the caller's runtime may take.
    fn times_here(&self, tries: &Tries<R::Error>) -> Times {
        Times::new(R::every(&self.row), tries.times().answer * 2)
    }

    async fn end_with(&self, end: R::End, mut tries: Tries<R::Error>, mut reply: Option<Reply<R>>) {
        let since = Instant::now();
        let ended = loop {
            let was_lost = R::hold(&self.row).is_lost();
            let answer = self.try_end(&end, tries.times()).await;
            self.observe_end(was_lost, &end, &answer);
            let again = match tries.after(answer) {
                ControlFlow::Continue(again) => again,
                ControlFlow::Break(ended) => break ended,
            };
            let is_over = R::caller_waits(&end).is_some_and(|limit| since.elapsed() >= limit);
            if is_over && let Some(reply) = reply.take() {
                let late = PoolError::new("the server was not reached, and is tried again");
                call::<R>(reply, Err(late.into()));
            }
            sleep_until(again).await;
        };
        if let Some(reply) = reply {
            call::<R>(reply, ended);
        }
    }

    fn observe_end(&self, was_lost: bool, end: &R::End, answer: &Result<bool, R::Error>) {
        match answer {
            Ok(true) if !was_lost => observe::<R>(&self.row, |row| Event::Ended {
                row,
                end: R::shown_end(end),
                held: R::hold(&self.row).age(),
            }),
            Ok(_) => {}
            Err(error) => observe::<R>(&self.row, |row| Event::EndFailed(row, error)),
        }
    }

    /// Ends the row, unless a transaction of the program's own has done so.
    async fn try_end(&self, end: &R::End, times: Times) -> Result<bool, R::Error> {
        let hold = R::hold(&self.row);
        if let Phase::InTransaction(since) = hold.phase() {
            let settled = self
                .group
                .rows
                .settled(vec![self.row.clone()], times.of_settling())
                .await?;
            match settled.first() {
                Some(Settled::Committed) => hold.settle(since, true),
                Some(Settled::RolledBack) => hold.settle(since, false),
                _ => {
                    return Err(PoolError::new("the transaction that ended the row is open").into());
                }
            }
        }
        if hold.phase() == Phase::Ended {
            return Ok(true);
        }
        let rows = &self.group.rows;
        rows.end(self.row.clone(), end.clone(), times, false).await
    }
}

impl<R: Rows> Drop for Kept<R> {
    fn drop(&mut self) {
        if self.group.remove(self.id) {
            self.keeper.forget(&self.group.name);
        }
    }
}

/// Has the row ended by the keeper if the caller's future is dropped meanwhile.
struct EndOnDrop<R: Rows>(Option<(Kept<R>, R::End)>);

impl<R: Rows> Drop for EndOnDrop<R> {
    fn drop(&mut self) {
        if let Some((kept, end)) = self.0.take() {
            kept.end_later(end, ());
        }
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    #![allow(
        unreachable_patterns,
        reason = "the errors of the products have more variants than this one"
    )]

    use super::{End, Event, Hold, Keeper, Kept, Name, Observer, Renewed, Rows, Settled, Times};
    use crate::PoolError;
    use crate::error::product_error;
    use crate::rows::{Ended, Expiry, Failure, RowError, Sent, failure_of};
    use diesel::result::{DatabaseErrorKind, Error as DieselError};
    use std::cell::RefCell;
    use std::sync::{Arc, LazyLock, Mutex};
    use std::time::Duration;
    use tokio::time::Instant;

    const TTL: Duration = Duration::from_secs(9);
    const EVERY: Duration = Duration::from_secs(3);

    /// The error of a product.
    #[derive(Debug)]
    enum Error {
        Pool(PoolError),
        Database(DieselError),
    }

    impl Error {
        const fn database(&self) -> Option<&DieselError> {
            match self {
                Self::Pool(_) => None,
                Self::Database(error) => Some(error),
            }
        }
    }

    product_error!(Error);

    impl std::fmt::Display for Error {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("it failed")
        }
    }

    impl RowError for Error {
        fn failure(&self) -> Failure {
            match self {
                Self::Pool(_) => Failure::Unreachable,
                Self::Database(error) => failure_of(error),
            }
        }
    }

    /// Rows whose answers are known. The clock is virtual, and goes on to the next timer whenever
    /// nothing else can run.
    #[derive(Clone)]
    struct Known {
        started: Instant,
        /// What was sent when, in milliseconds.
        sent: Arc<Mutex<Vec<(u128, String)>>>,
        renew: fn(&[u8]) -> Result<Vec<Renewed>, Error>,
        end: fn(usize) -> Result<bool, Error>,
    }

    #[derive(Clone)]
    struct Row(u8, Arc<Hold>);

    impl Known {
        fn new(
            renew: fn(&[u8]) -> Result<Vec<Renewed>, Error>,
            end: fn(usize) -> Result<bool, Error>,
        ) -> Self {
            Self {
                started: Instant::now(),
                sent: Arc::default(),
                renew,
                end,
            }
        }

        fn note(&self, what: String) -> usize {
            let mut sent = self.sent.lock().expect("no test panics with it");
            sent.push((self.started.elapsed().as_millis(), what));
            assert!(sent.len() < 100, "it never ends: {sent:?}");
            sent.len()
        }

        fn sent(&self) -> Vec<(u128, String)> {
            self.sent.lock().expect("no test panics with it").clone()
        }

        fn keep(&self, keeper: &Arc<Keeper>, id: u8) -> Kept<Self> {
            let row = Row(
                id,
                Arc::new(Hold::new(Expiry::after(Sent::now(), TTL), TTL)),
            );
            let name = Name::new::<Self>(0, String::new());
            let kept = keeper.keep(name, || self.clone(), row, true);
            kept.expect("there is a runtime")
        }
    }

    impl Rows for Known {
        type Row = Row;
        type End = ();
        type Error = Error;

        fn hold(row: &Row) -> &Hold {
            &row.1
        }

        fn every(_: &Row) -> Duration {
            EVERY
        }

        async fn renew(&self, rows: Vec<Row>, _: Times) -> Result<Vec<Renewed>, Error> {
            let mut ids: Vec<_> = rows.iter().map(|row| row.0).collect();
            ids.sort_unstable();
            self.note(format!("renew {ids:?}"));
            (self.renew)(&rows.iter().map(|row| row.0).collect::<Vec<_>>())
        }

        async fn settled(&self, rows: Vec<Row>, _: Times) -> Result<Vec<Settled>, Error> {
            self.note("settled?".to_owned());
            Ok(vec![Settled::Committed; rows.len()])
        }

        async fn end(&self, _: Row, (): (), _: Times, is_here: bool) -> Result<bool, Error> {
            let place = if is_here { "here" } else { "by the keeper" };
            let nth = self.note(format!("end {place}"));
            (self.end)(nth)
        }

        fn caller_waits((): &()) -> Option<Duration> {
            None
        }

        type Shown = Row;

        fn shown(row: &Row) -> &Row {
            row
        }

        fn observer(_: &Row) -> Option<&Observer<Row, Error>> {
            static OBSERVER: LazyLock<Observer<Row, Error>> = LazyLock::new(|| {
                Arc::new(|event| {
                    if matches!(event, Event::Lost(_)) {
                        ON_LOST.with_borrow(|on_lost| on_lost());
                    }
                })
            });
            Some(&OBSERVER)
        }

        fn shown_end((): &()) -> End {
            End::Release
        }
    }

    thread_local! {
        /// A program's observer.
        static ON_LOST: RefCell<Box<dyn Fn()>> = RefCell::new(Box::new(|| ()));
    }

    fn refusal() -> Error {
        let refused = Box::new("a trigger says no".to_owned());
        DieselError::DatabaseError(DatabaseErrorKind::CheckViolation, refused).into()
    }

    fn unreachable() -> Error {
        PoolError::new("nobody there").into()
    }

    async fn pass(time: Duration) {
        tokio::time::advance(time).await;
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn rows_that_are_due_at_nearly_the_same_time_are_renewed_together() {
        let rows = Known::new(|ids| Ok(vec![Renewed::For(TTL); ids.len()]), |_| Ok(true));
        let keeper = Keeper::on_runtime();
        let first = rows.keep(&keeper, 1);
        pass(EVERY / 5).await;
        let second = rows.keep(&keeper, 2);
        pass(EVERY * 4 / 5).await;
        pass(EVERY).await;
        let both = "renew [1, 2]".to_owned();
        assert_eq!(rows.sent(), [(3000, both.clone()), (6000, both)]);
        drop(first);
        pass(EVERY).await;
        assert_eq!(rows.sent().last(), Some(&(9000, "renew [2]".to_owned())));
        drop(second);
        pass(TTL).await;
        assert_eq!(rows.sent().len(), 3, "no row is left");
    }

    #[tokio::test(start_paused = true)]
    async fn one_row_that_cannot_be_renewed_does_not_take_its_neighbours_along() {
        let rows = Known::new(
            |ids| {
                if ids.contains(&2) {
                    Err(refusal())
                } else {
                    Ok(vec![Renewed::For(TTL); ids.len()])
                }
            },
            |_| Ok(true),
        );
        let keeper = Keeper::on_runtime();
        let kept = [1, 2, 3, 4].map(|id| rows.keep(&keeper, id));
        for _ in 0..12 {
            pass(Duration::from_secs(1)).await;
        }
        let lost = kept.each_ref().map(|kept| kept.row.1.is_lost());
        assert_eq!(lost, [false, true, false, false], "{:?}", rows.sent());
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_that_reaches_nobody_is_tried_again_by_the_keeper() {
        let end = |nth| {
            if nth < 4 {
                Err(unreachable())
            } else {
                Ok(true)
            }
        };
        let rows = Known::new(|_| unreachable!("it is not due"), end);
        let kept = rows.keep(&Keeper::on_runtime(), 1);
        let ended = kept.end(()).await.unwrap();
        assert!(matches!(ended, Ended::Done), "{ended:?}");
        let sent: Vec<_> = rows.sent().into_iter().map(|(_, what)| what).collect();
        let by_keeper = "end by the keeper";
        assert_eq!(sent, ["end here", by_keeper, by_keeper, by_keeper]);
    }

    /// Rows whose ends go together, and take a while.
    #[derive(Clone)]
    struct Gathered(Known);

    impl Rows for Gathered {
        type Row = Row;
        type End = ();
        type Error = Error;

        fn hold(row: &Row) -> &Hold {
            &row.1
        }

        fn every(_: &Row) -> Duration {
            EVERY
        }

        async fn renew(&self, rows: Vec<Row>, _: Times) -> Result<Vec<Renewed>, Error> {
            Ok(vec![Renewed::Busy; rows.len()])
        }

        async fn settled(&self, rows: Vec<Row>, _: Times) -> Result<Vec<Settled>, Error> {
            Ok(vec![Settled::Committed; rows.len()])
        }

        async fn end(&self, row: Row, (): (), _: Times, is_here: bool) -> Result<bool, Error> {
            let place = if is_here { "here" } else { "by the keeper" };
            self.0.note(format!("end {} {place}", row.0));
            // Somebody has locked this one.
            let millis = if row.0 == 9 { 1_000 } else { 10 };
            answer_after(Duration::from_millis(millis)).await;
            Ok(true)
        }

        const GATHERS: bool = true;

        async fn end_all(
            &self,
            ends: Vec<(Row, ())>,
            _: Times,
            _: bool,
        ) -> Result<Vec<bool>, Error> {
            let ids: Vec<_> = ends.iter().map(|(row, ())| row.0).collect();
            self.0.note(format!("end {ids:?}"));
            answer_after(Duration::from_millis(10)).await;
            if ids.contains(&8) {
                return Err(unreachable());
            }
            Ok(ids.iter().map(|id| *id != 9).collect())
        }

        fn caller_waits((): &()) -> Option<Duration> {
            None
        }

        type Shown = Row;

        fn shown(row: &Row) -> &Row {
            row
        }

        fn observer(_: &Row) -> Option<&Observer<Row, Error>> {
            None
        }

        fn shown_end((): &()) -> End {
            End::Release
        }
    }

    /// The time that a server takes.
    async fn answer_after(time: Duration) {
        tokio::time::sleep_until(Instant::now() + time).await;
    }

    impl Gathered {
        fn new() -> Self {
            Self(Known::new(|_| unreachable!("not asked"), |_| Ok(true)))
        }

        fn keep(&self, ids: &[u8]) -> Vec<Kept<Self>> {
            let hold = || Arc::new(Hold::new(Expiry::after(Sent::now(), TTL), TTL));
            let rows = ids.iter().map(|id| Row(*id, hold())).collect();
            let name = Name::new::<Self>(0, String::new());
            let kept = Keeper::on_runtime().keep_all(name, || self.clone(), rows, true);
            kept.expect("there is a runtime")
        }

        /// Ends the first one, and while it is on its way the others; what was sent.
        async fn end(&self, ids: &[u8]) -> Vec<String> {
            let mut ends = Vec::new();
            for kept in self.keep(ids) {
                ends.push(tokio::spawn(kept.end(())));
                tokio::task::yield_now().await;
                tokio::task::yield_now().await;
            }
            for end in ends {
                let ended = end.await.expect("it does not panic");
                let ended = ended.expect("it is tried until it is ended");
                assert!(matches!(ended, Ended::Done), "{ended:?}");
            }
            self.0.sent().into_iter().map(|(_, what)| what).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_while_an_end_is_on_its_way_goes_with_the_next_one() {
        let sent = Gathered::new().end(&[1, 2, 3, 4]).await;
        assert_eq!(sent, ["end 1 here", "end [2, 3, 4]"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_that_a_batch_has_not_ended_is_ended_alone() {
        let sent = Gathered::new().end(&[1, 2, 9]).await;
        assert_eq!(sent, ["end 1 here", "end [2, 9]", "end 9 by the keeper"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_that_is_late_holds_up_no_other() {
        let rows = Gathered::new();
        let sent = rows.end(&[9, 1, 2]).await;
        assert_eq!(sent, ["end 9 here", "end [1, 2]"]);
        let at: Vec<_> = rows.0.sent().into_iter().map(|(at, _)| at).collect();
        assert_eq!(at, [0, 50]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_keeper_tries_the_ends_of_a_batch_again() {
        let sent = Gathered::new().end(&[1, 2, 8]).await;
        assert_eq!(sent[..2], ["end 1 here", "end [2, 8]"]);
        assert!(sent.len() > 2, "{sent:?}");
    }

    /// Its statement goes on, and what has waited is sent.
    #[tokio::test(start_paused = true)]
    async fn ends_whose_callers_are_dropped_are_sent() {
        let rows = Gathered::new();
        for kept in rows.keep(&[1, 2, 3]) {
            let end = tokio::spawn(kept.end(()));
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            end.abort();
        }
        pass(Duration::from_millis(20)).await;
        let sent: Vec<_> = rows.0.sent().into_iter().map(|(_, what)| what).collect();
        assert_eq!(sent, ["end 1 here", "end [2, 3]"]);
    }

    /// Nothing may be locked while the program is told.
    #[tokio::test(start_paused = true)]
    async fn an_observer_may_hold_another_row() {
        let rows = Known::new(|_| Err(unreachable()), |_| Ok(true));
        let keeper = Keeper::on_runtime();
        let kept = rows.keep(&keeper, 1);
        let (other, told) = (rows.clone(), Arc::new(Mutex::new(0)));
        ON_LOST.set(Box::new({
            let told = Arc::clone(&told);
            move || {
                drop(other.keep(&keeper, 2));
                *told.lock().unwrap() += 1;
            }
        }));
        for _ in 0..12 {
            pass(Duration::from_secs(1)).await;
        }
        assert!(kept.row.1.is_lost());
        assert_eq!(*told.lock().unwrap(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_is_given_up_when_the_row_has_expired() {
        let rows = Known::new(
            |ids| Ok(vec![Renewed::For(TTL); ids.len()]),
            |_| Err(unreachable()),
        );
        let kept = rows.keep(&Keeper::on_runtime(), 1);
        let ended = kept.end(()).await;
        assert!(matches!(ended, Err(Error::Pool(_))), "{ended:?}");
        assert!(rows.started.elapsed() < TTL + EVERY);
    }
}
