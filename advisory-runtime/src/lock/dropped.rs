//! Locked calls that the `max_hold` of a call around them drops, on the same connection.
//!
//! Unlike calls that their caller drops, they leave the connection open: the call around them goes
//! on, and rolls back their changes.

#![cfg_attr(
    not(feature = "diesel-async"),
    allow(dead_code, reason = "no blocking body is dropped")
)]

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

thread_local! {
    static DROPPING: RefCell<Vec<(usize, Dropped)>> = const { RefCell::new(Vec::new()) };
}

/// The messages that release the session-level locks of the dropped calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Dropped(Option<Arc<Mutex<Vec<String>>>>);

impl Dropped {
    pub(super) fn new() -> Self {
        Self(Some(Arc::default()))
    }

    pub(super) fn take(&self) -> Vec<String> {
        let Some(releases) = &self.0 else {
            return Vec::new();
        };
        std::mem::take(&mut releases.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn push(&self, release: String) {
        if let Some(releases) = &self.0 {
            let mut releases = releases.lock().unwrap_or_else(PoisonError::into_inner);
            releases.push(release);
        }
    }

    /// Drops the body of a call on the connection at this address, with the calls inside it.
    pub(super) fn drop_body(&self, address: usize, drop_it: impl FnOnce()) {
        struct Until;
        impl Drop for Until {
            fn drop(&mut self) {
                let _ended = DROPPING.try_with(|dropping| dropping.borrow_mut().pop());
            }
        }
        // Without the thread-local, which is gone while the thread ends, the calls close their
        // connection.
        let _ended =
            DROPPING.try_with(|dropping| dropping.borrow_mut().push((address, self.clone())));
        let _until = Until;
        drop_it();
    }

    /// The calls of the body that is being dropped on the connection at this address.
    pub(super) fn around(address: usize) -> Option<Self> {
        let around = DROPPING.try_with(|dropping| {
            let dropping = dropping.borrow();
            let around = dropping.iter().rev().find(|(of, _)| *of == address);
            around.map(|(_, dropped)| dropped.clone())
        });
        around.ok().flatten()
    }
}
