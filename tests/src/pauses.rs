//! The pause between two looks at a state that nothing announces, so that a waiting test leaves the
//! processors to the others.

use std::future::pending;
use std::time::Duration;

use tokio::time::timeout;

const PAUSE: Duration = Duration::from_millis(3);

/// Ends after a few milliseconds.
pub async fn pause() {
    drop(timeout(PAUSE, pending::<()>()).await);
}

/// Like [`pause`], for a thread.
pub fn pause_thread() {
    std::thread::park_timeout(PAUSE);
}
