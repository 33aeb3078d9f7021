//! The state of a running worker: the rows that it holds, those that wait for a slot, and the stop.

use super::Settings;
use super::held_rows::{self, BodyTimes, CountGuard, HeldRows};
use crate::claim::Claimed;
use crate::claim::mutex::locked;
use crate::claim::optional_column::MaybePer;
use crate::claim::rows::ReleaseOnDrop;
use crate::claim::table::Claim;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Duration, Instant, timeout};

/// The time that a stopping worker waits for its rows to end.
const LAST_END: Duration = Duration::from_secs(5);

/// A claimed row that waits for a slot.
pub(super) struct Waiting<T: Claim> {
    pub(super) claimed: Claimed<T>,
    pub(super) renewal: ReleaseOnDrop<CountGuard>,
    pub(super) since: Instant,
}

/// The state that the parts of a running worker share.
pub(super) struct Shared<T: Claim> {
    /// `true` if bodies are futures, which can be dropped.
    pub(super) is_async: bool,
    /// In the order of the claims.
    waiting: Mutex<VecDeque<Waiting<T>>>,
    /// Rows were added to `waiting`.
    pub(super) rows_added: Notify,
    pub(super) held_rows: Arc<HeldRows>,
    pub(super) running: AtomicUsize,
    body_times: Mutex<BodyTimes>,
    /// There may be new rows.
    pub(super) wake: Arc<Notify>,
    /// Has no permits. It is closed when the worker is stopped.
    pub(super) stopping: Semaphore,
}

impl<T: Claim> Shared<T> {
    pub(super) fn new(is_async: bool) -> Self {
        Self {
            is_async,
            waiting: Mutex::default(),
            rows_added: Notify::new(),
            held_rows: Arc::default(),
            running: AtomicUsize::new(0),
            body_times: Mutex::default(),
            wake: Arc::default(),
            stopping: Semaphore::new(0),
        }
    }

    /// Waits until all rows have ended, for [`LAST_END`] at most. After that the keeper continues
    /// to end them without the worker.
    pub(super) async fn until_ended(&self) {
        let ended = async {
            while self.held_rows.count() > 0 {
                self.held_rows.ended.notified().await;
            }
        };
        drop(timeout(LAST_END, ended).await);
    }

    pub(super) fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiting<T>>> {
        locked(&self.waiting)
    }

    pub(super) fn body_times(&self) -> MutexGuard<'_, BodyTimes> {
        locked(&self.body_times)
    }

    /// Returns the number of rows to claim now.
    pub(super) fn wanted(&self, settings: &Settings<'_, T>) -> usize {
        let body_times = *self.body_times();
        let ahead = match settings.prefetch {
            _ if body_times.has_long_body || self.held_rows.has_expired() => 0,
            Some(rows) => rows,
            // Rows that wait would use up the limits of their values.
            None if T::Per::COLUMN.is_some() => 0,
            None => body_times.ahead(settings.concurrency),
        };
        held_rows::wanted(
            settings.concurrency,
            ahead,
            self.held_rows.count(),
            self.running.load(Ordering::Relaxed),
            self.waiting().len(),
        )
    }
}
