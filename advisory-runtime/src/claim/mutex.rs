//! Locks a mutex, even if a thread has panicked while it held the lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) fn locked<V>(value: &Mutex<V>) -> MutexGuard<'_, V> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
