//! A thread for work that must not depend on the caller's runtime, which may be about to end, or have no timer.

use std::future::{pending, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError, mpsc};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::yield_now;

pub(crate) type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

static TIMER_THREAD: TimerThread =
    TimerThread::new(|| Builder::new_current_thread().enable_all().build());

/// Waits for a future, until a time has passed.
pub(crate) fn timeout<F: Future>(
    time: Duration,
    future: F,
) -> impl Future<Output = Option<F::Output>> {
    TIMER_THREAD.timeout(time, future)
}

/// Runs a job on the thread. If the thread cannot start, the job is dropped, and the result is `false`.
pub(crate) fn run(job: Job) -> bool {
    TIMER_THREAD.run(job)
}

struct TimerThread {
    /// Of the thread, which the first job starts. A later job tries again if it could not start.
    runtime: Mutex<Option<Handle>>,
    build: fn() -> io::Result<Runtime>,
}

impl TimerThread {
    const fn new(build: fn() -> io::Result<Runtime>) -> Self {
        Self {
            runtime: Mutex::new(None),
            build,
        }
    }

    fn run(&self, job: Job) -> bool {
        let runtime = {
            let mut runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
            if runtime.is_none() {
                *runtime = start(self.build);
            }
            runtime.clone()
        };
        runtime.map(|runtime| runtime.spawn(job)).is_some()
    }

    async fn timeout<F: Future>(&self, time: Duration, future: F) -> Option<F::Output> {
        let started = Instant::now();
        let mut future = pin!(future);
        loop {
            // Only once the future is pending: one that is ready at once needs no timer.
            let mut woken = None;
            let ended = poll_fn(|context| {
                if let Poll::Ready(value) = future.as_mut().poll(context) {
                    return Poll::Ready(Ok(value));
                }
                let woken = match &mut woken {
                    Some(woken) => woken,
                    none => {
                        let left = time.saturating_sub(started.elapsed());
                        if left.is_zero() {
                            return Poll::Ready(Err(Ok(())));
                        }
                        none.insert(self.wake_after(left))
                    }
                };
                Pin::new(woken).poll(context).map(Err)
            });
            match ended.await {
                Ok(value) => return Some(value),
                Err(Ok(())) => return None,
                Err(Err(_no_thread)) => rest().await,
            }
        }
    }

    /// Returns a receiver that resolves after `time`, or fails at once if the thread cannot be started.
    fn wake_after(&self, time: Duration) -> oneshot::Receiver<()> {
        let (mut wake, woken) = oneshot::channel();
        self.run(Box::pin(async move {
            // Until then, or until the receiver is dropped.
            if tokio::time::timeout(time, wake.closed()).await.is_err() {
                let _: Result<(), ()> = wake.send(());
            }
        }));
        woken
    }
}

/// Starts the thread. The process may have no thread or no file left for it.
fn start(build: fn() -> io::Result<Runtime>) -> Option<Handle> {
    let (started, runtime) = mpsc::channel();
    let thread = std::thread::Builder::new().name("advisory".to_owned());
    drop(thread.spawn(move || {
        if let Ok(runtime) = build() {
            drop(started.send(runtime.handle().clone()));
            runtime.block_on(pending::<()>());
        }
    }));
    runtime.recv().ok()
}

/// Blocks the caller's thread for a moment, so that a loop without a timer does not spin: the timer thread is not running, and the
/// caller's runtime may have no timer enabled.
#[allow(
    clippy::disallowed_methods,
    reason = "not a test: there is no timer to wait for"
)]
async fn rest() {
    std::thread::sleep(RESTING);
    yield_now().await;
}

const RESTING: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::{TimerThread, start};
    use std::future::pending;
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};
    use tokio::runtime::{Builder, Runtime};
    use tokio::task::yield_now;

    const AN_HOUR: Duration = Duration::from_secs(3600);

    fn build() -> io::Result<Runtime> {
        Builder::new_current_thread().enable_all().build()
    }

    /// As in a process that has no file left.
    fn fail() -> io::Result<Runtime> {
        Err(io::Error::other("too many open files"))
    }

    /// Runs a future without a timer, on this thread.
    fn answer<T>(future: impl Future<Output = T>) -> T {
        let runtime = Builder::new_current_thread().build();
        runtime.unwrap().block_on(future)
    }

    async fn slow() -> u8 {
        for _ in 0..10 {
            yield_now().await;
        }
        7
    }

    #[test]
    fn a_future_ends_before_its_bound_with_a_thread_and_without() {
        assert!(start(fail).is_none());
        for build in [build, fail] {
            let timer_thread = TimerThread::new(build);
            assert_eq!(answer(timer_thread.timeout(AN_HOUR, slow())), Some(7));
            assert_eq!(answer(timer_thread.timeout(Duration::MAX, slow())), Some(7));
        }
    }

    #[test]
    fn a_bound_ends_on_time_with_and_without_a_thread() {
        for build in [build, fail] {
            let timer_thread = TimerThread::new(build);
            let started = Instant::now();
            let bound = Duration::from_millis(30);
            assert_eq!(answer(timer_thread.timeout(bound, pending::<u8>())), None);
            assert!(started.elapsed() >= bound, "{:?}", started.elapsed());
        }
    }

    #[test]
    fn no_time_is_one_poll_and_no_thread() {
        let timer_thread = TimerThread::new(|| unreachable!("no thread is needed"));
        assert_eq!(
            answer(timer_thread.timeout(Duration::ZERO, async { 7 })),
            Some(7)
        );
        assert_eq!(answer(timer_thread.timeout(Duration::ZERO, slow())), None);
        assert!(timer_thread.runtime.lock().unwrap().is_none());
    }

    #[test]
    fn a_future_that_is_ready_at_once_starts_no_timer() {
        static STARTS: AtomicUsize = AtomicUsize::new(0);
        let timer_thread = TimerThread::new(|| {
            STARTS.fetch_add(1, Ordering::AcqRel);
            build()
        });
        assert_eq!(answer(timer_thread.timeout(AN_HOUR, async { 7 })), Some(7));
        assert_eq!(STARTS.load(Ordering::Acquire), 0);
        assert_eq!(answer(timer_thread.timeout(AN_HOUR, slow())), Some(7));
        assert_eq!(STARTS.load(Ordering::Acquire), 1);
    }

    #[test]
    fn a_thread_is_started_again_only_if_it_does_not_run() {
        static STARTS: AtomicUsize = AtomicUsize::new(0);
        let timer_thread = TimerThread::new(|| match STARTS.fetch_add(1, Ordering::AcqRel) {
            0 | 1 => fail(),
            _ => build(),
        });
        let ran = [(); 5].map(|()| {
            let (sender, receiver) = channel();
            timer_thread.run(Box::pin(async move { sender.send(()).unwrap() }));
            receiver.recv().is_ok()
        });
        assert_eq!(ran, [false, false, true, true, true]);
        assert_eq!(STARTS.load(Ordering::Acquire), 3);
    }

    #[test]
    fn a_bound_is_kept_by_a_thread_that_starts_later() {
        static STARTS: AtomicUsize = AtomicUsize::new(0);
        let timer_thread = TimerThread::new(|| match STARTS.fetch_add(1, Ordering::AcqRel) {
            0 => fail(),
            _ => build(),
        });
        let bound = Duration::from_millis(30);
        assert_eq!(answer(timer_thread.timeout(bound, pending::<u8>())), None);
        assert_eq!(answer(timer_thread.timeout(AN_HOUR, slow())), Some(7));
        assert_eq!(STARTS.load(Ordering::Acquire), 2);
    }
}
