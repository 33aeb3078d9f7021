//! What the parts of a running worker share: the rows that wait, the room that is left, and what
//! stops them.

use super::Settings;
use super::room::{self, Pace, Place, Room};
use crate::claim::Claimed;
use crate::claim::rows::ReleaseOnDrop;
use crate::claim::table::{Claim, MaybePer};
use crate::rows::{Reach, unless};
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Duration, Instant, sleep_until, timeout};

/// How long a worker that stops waits for the end of a row.
pub(super) const LAST_END: Duration = Duration::from_secs(5);

/// A row that is claimed, and not begun.
pub(super) struct Waiting<T: Claim, R: Reach> {
    pub(super) claimed: Claimed<T>,
    pub(super) kept: ReleaseOnDrop<T, R, Place>,
    pub(super) since: Instant,
}

/// What the parts of a running worker tell each other.
pub(super) struct Shared<T: Claim, R: Reach> {
    /// What tells its rows from those of other pools.
    pub(super) pool: usize,
    /// In the order of the claims.
    waiting: Mutex<VecDeque<Waiting<T, R>>>,
    /// Rows have come to those that wait.
    pub(super) has_come: Notify,
    pub(super) room: Arc<Room>,
    /// How many bodies run.
    pub(super) running: AtomicUsize,
    pace: Mutex<Pace>,
    /// There may be new rows.
    pub(super) wake: Arc<Notify>,
    /// Has no permit, and is closed when no more rows are claimed.
    pub(super) stopping: Semaphore,
}

impl<T: Claim, R: Reach> Shared<T, R> {
    pub(super) fn new(pool: usize) -> Self {
        Self {
            pool,
            waiting: Mutex::default(),
            has_come: Notify::new(),
            room: Arc::default(),
            running: AtomicUsize::new(0),
            pace: Mutex::default(),
            wake: Arc::default(),
            stopping: Semaphore::new(0),
        }
    }

    /// Waits until every row has ended, for some seconds at most: the keeper goes on without the
    /// worker.
    pub(super) async fn until_ended(&self) {
        let ended = async {
            while self.room.held() > 0 {
                self.room.ended.notified().await;
            }
        };
        drop(timeout(LAST_END, ended).await);
    }

    /// The future's output, unless the worker is being stopped for so long meanwhile.
    pub(super) async fn unless_stopped_for<F: Future>(
        &self,
        limit: Duration,
        future: F,
    ) -> Option<F::Output> {
        let stopped = pin!(async {
            drop(self.stopping.acquire().await);
            sleep_until(Instant::now() + limit).await;
        });
        unless(stopped, future).await
    }

    pub(super) fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiting<T, R>>> {
        locked(&self.waiting)
    }

    pub(super) fn pace(&self) -> MutexGuard<'_, Pace> {
        locked(&self.pace)
    }

    /// How many rows to claim now.
    pub(super) fn wanted(&self, settings: &Settings<'_, T>) -> usize {
        let pace = *self.pace();
        let ahead = match settings.prefetch {
            _ if pace.is_blocked || self.room.has_suspect() => 0,
            Some(rows) => rows,
            // They would use up the limits of their values.
            None if T::Per::COLUMN.is_some() => 0,
            None => pace.ahead(settings.concurrency),
        };
        room::wanted(
            settings.concurrency,
            ahead,
            self.room.held(),
            self.running.load(Ordering::Relaxed),
            self.waiting().len(),
        )
    }
}

pub(super) fn locked<V>(value: &Mutex<V>) -> MutexGuard<'_, V> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
