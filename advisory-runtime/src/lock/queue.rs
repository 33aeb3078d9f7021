//! Queues the calls of this process for a key before they take a connection, so that a hot key
//! occupies one connection of the pool.
//!
//! The database is not known before there is a connection, so keys with the same number share a
//! queue.

use crate::debug::self_deadlock::has_turn;
use crate::debug::wait_graph;
use crate::error::{BusyLock, LockName};
use crate::{Error, Key, Request, Wait};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::OwnedMutexGuard;

/// The queue of one key.
#[derive(Default)]
struct Line {
    turn: Arc<tokio::sync::Mutex<()>>,
    waiting: AtomicUsize,
}

static LINES: LazyLock<Mutex<HashMap<Key, Weak<Line>>>> = LazyLock::new(Mutex::default);

/// The right to ask the server for the keys. When it is dropped, the next call in the queue gets
/// it.
#[doc(hidden)]
#[must_use]
#[derive(Debug)]
pub struct Turn(#[expect(dead_code, reason = "held, not read")] Vec<One>);

#[derive(Debug)]
struct One {
    /// Dropped before `line`: the next call gets its turn before this one leaves the queue.
    _turn: OwnedMutexGuard<()>,
    line: QueueSlot,
}

/// A place in the queue. The queue ends with its last place.
struct QueueSlot {
    key: Key,
    line: Option<Arc<Line>>,
}

impl std::fmt::Debug for QueueSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line of {}", self.key)
    }
}

impl QueueSlot {
    fn new(key: Key) -> (Self, Arc<Line>) {
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        let line = lines.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let line = Arc::new(Line::default());
            lines.insert(key, Arc::downgrade(&line));
            line
        });
        let place = Self {
            key,
            line: Some(Arc::clone(&line)),
        };
        (place, line)
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.line.take());
        if lines
            .get(&self.key)
            .is_some_and(|line| line.strong_count() == 0)
        {
            lines.remove(&self.key);
        }
    }
}

/// Counts as a waiting call until dropped.
struct InLine<'l>(&'l AtomicUsize);

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Waits until no other call of this process holds the keys or asks for them. First come, first
/// served.
#[cfg(feature = "diesel-async")]
pub(crate) async fn queue(request: &mut Request, limit: usize) -> Result<Turn, Error> {
    let started = Instant::now();
    let turn = match budget(request) {
        Some(budget) => match crate::driver::timeout(budget, enter(request, limit)).await {
            Some(turn) => turn,
            None => Err(given_up(request, started)),
        },
        None => enter(request, limit).await,
    };
    request.queued = started.elapsed();
    if turn.is_ok() {
        request.origin.note_turn();
    }
    refused(request, turn)
}

/// [`queue`] for a thread.
#[cfg(feature = "postgres")]
pub(crate) fn queue_on_thread(request: &mut Request, limit: usize) -> Result<Turn, Error> {
    let started = Instant::now();
    let end = budget(request).and_then(|budget| started.checked_add(budget));
    let turn =
        block_on(enter(request, limit), end).unwrap_or_else(|| Err(given_up(request, started)));
    request.queued = started.elapsed();
    if turn.is_ok() {
        request.origin.note_turn();
    }
    refused(request, turn)
}

fn refused(request: &Request, turn: Result<Turn, Error>) -> Result<Turn, Error> {
    if let Err(error) = &turn {
        request.telemetry("queue").record_refusal(error);
    }
    turn
}

/// The time that the request may wait in the queue; `None` is forever.
fn budget(request: &Request) -> Option<Duration> {
    match request.budget() {
        Wait::Never => Some(Duration::ZERO),
        Wait::For(wait) => Some(wait),
        Wait::Session | Wait::Forever => None,
    }
}

async fn enter(request: &Request, limit: usize) -> Result<Turn, Error> {
    let mut turns = Vec::with_capacity(request.keys.len());
    for key in &*request.keys {
        let (place, line) = QueueSlot::new(*key);
        if let Ok(turn) = Arc::clone(&line.turn).try_lock_owned() {
            turns.push(One {
                _turn: turn,
                line: place,
            });
            continue;
        }
        // A bounded wait must end as it does in a release build.
        if budget(request).is_none() && has_turn(request) {
            let lock = LockName::new(request.pattern, &request.keys).text();
            return Err(Error::SelfDeadlock { lock });
        }
        let waiting = if budget(request).is_none() {
            let before = turns.iter().map(|one| one.line.key);
            let waiting = wait_graph::wait_for_turn(request, before, *key);
            waiting.map_err(|cycle| Error::TaskDeadlock {
                lock: LockName::new(request.pattern, &request.keys).text(),
                cycle,
            })?
        } else {
            None
        };
        let before = line.waiting.fetch_add(1, Ordering::AcqRel);
        let in_line = InLine(&line.waiting);
        if before >= limit {
            return Err(Error::QueueFull {
                lock: LockName::new(request.pattern, &request.keys).text(),
                limit,
            });
        }
        let turn = Arc::clone(&line.turn).lock_owned().await;
        drop((in_line, waiting));
        turns.push(One {
            _turn: turn,
            line: place,
        });
    }
    Ok(Turn(turns))
}

fn given_up(request: &Request, started: Instant) -> Error {
    let lock = LockName::new(request.pattern, &request.keys).text();
    let busy = BusyLock::new(&request.keys);
    match request.budget() {
        Wait::Never => Error::NotAvailable { lock, busy },
        _ => Error::TimedOut {
            lock,
            busy,
            waited: started.elapsed(),
            source: None,
        },
    }
}

/// Runs a future on this thread, until `end`.
#[cfg(feature = "postgres")]
fn block_on<F: Future>(future: F, end: Option<Instant>) -> Option<F::Output> {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Some(value);
        }
        match end.map(|end| end.saturating_duration_since(Instant::now())) {
            None => std::thread::park(),
            Some(Duration::ZERO) => return None,
            Some(left) => std::thread::park_timeout(left),
        }
    }
}
