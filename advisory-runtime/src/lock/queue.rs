//! Queues the calls of this process for a key before they take a connection, so that a hot key
//! occupies one connection of the pool.
//!
//! The database is not known without a connection, so equal keys of several databases share a
//! queue.

use crate::debug::bodies::has_turn;
use crate::debug::wait_graph;
use crate::error::BusyLock;
use crate::{Error, Key, Request, Wait};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::OwnedMutexGuard;

#[derive(Debug, Default)]
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
#[derive(Debug)]
struct QueueSlot {
    key: Key,
    line: Option<Arc<Line>>,
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

struct InLine<'l>(&'l AtomicUsize);

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Waits until no other call of this process holds the keys or asks for them. First come, first
/// served.
#[cfg(feature = "diesel-async")]
#[doc(hidden)]
pub async fn queue(request: &mut Request, limit: usize) -> Result<Turn, Error> {
    let started = Instant::now();
    let budget = request.limit().unwrap_or(Duration::MAX);
    let turn = crate::driver::timeout(budget, enter(request, limit)).await;
    record(request, started, turn)
}

/// Like [`queue`], for a thread.
#[cfg(feature = "postgres")]
#[doc(hidden)]
pub fn queue_on_thread(request: &mut Request, limit: usize) -> Result<Turn, Error> {
    let started = Instant::now();
    let budget = request.limit().unwrap_or(Duration::MAX);
    let turn = crate::driver::wait_at_most(budget, enter(request, limit));
    record(request, started, turn)
}

fn record(
    request: &mut Request,
    started: Instant,
    turn: Option<Result<Turn, Error>>,
) -> Result<Turn, Error> {
    let waited = started.elapsed();
    let turn = turn.unwrap_or_else(|| {
        let (lock, busy) = (request.lock_name(), BusyLock::new(&request.keys));
        Err(match request.budget() {
            Wait::Never => Error::NotAvailable { lock, busy },
            _ => Error::TimedOut {
                lock,
                busy,
                waited,
                source: None,
            },
        })
    });
    request.queued = waited;
    match &turn {
        Ok(_) => request.origin.note_turn(),
        Err(error) => request.telemetry("queue").record_refusal(error),
    }
    turn
}

async fn enter(request: &Request, limit: usize) -> Result<Turn, Error> {
    let is_bounded = request.limit().is_some();
    let mut turns: Vec<One> = Vec::with_capacity(request.keys.len());
    for key in &*request.keys {
        let (slot, line) = QueueSlot::new(*key);
        let turn = if let Ok(turn) = Arc::clone(&line.turn).try_lock_owned() {
            turn
        } else {
            // A bounded wait ends as in a release build.
            let waiting = if is_bounded {
                None
            } else if has_turn(request) {
                let lock = request.lock_name();
                return Err(Error::SelfDeadlock { lock });
            } else {
                let before = turns.iter().map(|one| one.line.key);
                wait_graph::wait_for_turn(request, before, *key)?
            };
            let before = line.waiting.fetch_add(1, Ordering::AcqRel);
            let in_line = InLine(&line.waiting);
            if before >= limit {
                let lock = request.lock_name();
                return Err(Error::QueueFull { lock, limit });
            }
            let turn = Arc::clone(&line.turn).lock_owned().await;
            drop((in_line, waiting));
            turn
        };
        turns.push(One {
            _turn: turn,
            line: slot,
        });
    }
    Ok(Turn(turns))
}
