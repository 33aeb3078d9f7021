//! Blocks a thread until a future is ready: at once if its steps are all blocking calls, or when
//! another thread has resolved it.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, current, park_timeout};
use std::time::{Duration, Instant};

/// Blocks until the future is ready. It needs no runtime, and can run inside one.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Some(value) = wait_at_most(Duration::MAX, future.as_mut()) {
            return value;
        }
    }
}

pub(crate) fn wait_at_most<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    // A future whose steps are all blocking calls is ready at once, and needs no waker.
    let mut context = Context::from_waker(Waker::noop());
    if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
        return Some(value);
    }
    let waker = Waker::from(Arc::new(Parked(current())));
    let since = Instant::now();
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(value);
        }
        let left = limit.saturating_sub(since.elapsed());
        if left.is_zero() {
            return None;
        }
        park_timeout(left);
    }
}

struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::{block_on, wait_at_most};
    use std::future::pending;
    use std::thread;
    use std::time::Duration;
    use tokio::sync::oneshot;

    #[test]
    fn a_thread_waits_for_another_and_not_longer_than_its_limit() {
        let (sender, receiver) = oneshot::channel();
        let other = thread::spawn(move || sender.send(7));
        assert_eq!(block_on(receiver), Ok(7));
        assert_eq!(other.join().ok(), Some(Ok(())));
        assert_eq!(wait_at_most(Duration::MAX, async { 7 }), Some(7));
        let short = Duration::from_millis(10);
        assert_eq!(wait_at_most(short, pending::<u8>()), None);
    }
}
