//! A mail provider whose first letter takes as long as the example says.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use uuid::Uuid;

#[derive(Default)]
pub(crate) struct Mail {
    letters: AtomicUsize,
    /// The first letter is being sent.
    pub(crate) begun: Notify,
    /// It may leave.
    pub(crate) go: Notify,
}

impl Mail {
    pub(crate) async fn send(&self, _email: &str, _code: Uuid) {
        if self.letters.fetch_add(1, Ordering::Relaxed) == 0 {
            self.begun.notify_one();
            self.go.notified().await;
        }
    }
}
