//! A thread for work that must not depend on the caller's runtime, which may be about to end, or
//! have no timer.

use std::future::{pending, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError, mpsc};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::yield_now;
use tokio::time::{Sleep, sleep_until};

pub(crate) type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

static TIMER_THREAD: TimerThread =
    TimerThread::new(|| Builder::new_current_thread().enable_all().build());

pub(crate) fn timeout<F: Future>(
    time: Duration,
    future: F,
) -> impl Future<Output = Option<F::Output>> {
    TIMER_THREAD.timeout(time, future)
}

/// Runs a job on the thread. If the thread cannot start, the job is dropped, and the result is
/// `false`.
pub(crate) fn run(job: Job) -> bool {
    TIMER_THREAD.run(job)
}

struct TimerThread {
    /// The thread, which the first job starts. A later job tries again if it could not start.
    running: Mutex<Option<Handle>>,
    build: fn() -> io::Result<Runtime>,
}

impl TimerThread {
    const fn new(build: fn() -> io::Result<Runtime>) -> Self {
        Self {
            running: Mutex::new(None),
            build,
        }
    }

    fn running(&self) -> Option<Handle> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_none() {
            *running = start(self.build);
        }
        running.clone()
    }

    fn run(&self, job: Job) -> bool {
        self.running().map(|runtime| runtime.spawn(job)).is_some()
    }

    /// A timer of the thread, which wakes a future on any runtime, or on none.
    fn timer(&self, end: Instant) -> Option<Pin<Box<Sleep>>> {
        let runtime = self.running()?;
        let _entered = runtime.enter();
        Some(Box::pin(sleep_until(end.into())))
    }

    /// A large future is best pinned by the caller: this one holds what it is given twice.
    async fn timeout<F: Future>(&self, time: Duration, future: F) -> Option<F::Output> {
        let started = Instant::now();
        let mut future = pin!(future);
        let mut timer = None;
        loop {
            // The outer `None` says that there is no thread.
            let ended = poll_fn(|context| {
                if let Poll::Ready(value) = future.as_mut().poll(context) {
                    return Poll::Ready(Some(Some(value)));
                }
                if started.elapsed() >= time {
                    return Poll::Ready(Some(None));
                }
                let Some(end) = started.checked_add(time) else {
                    return Poll::Pending;
                };
                // Only once the future is pending: one that is ready at once needs no timer.
                if timer.is_none() {
                    timer = self.timer(end);
                }
                match &mut timer {
                    Some(timer) => timer.as_mut().poll(context).map(|()| Some(None)),
                    None => Poll::Ready(None),
                }
            });
            match ended.await {
                Some(ended) => return ended,
                None => rest().await,
            }
        }
    }
}

/// Starts the thread. The process may have no thread or no file left for it.
fn start(build: fn() -> io::Result<Runtime>) -> Option<Handle> {
    let (started, running) = mpsc::channel();
    let thread = std::thread::Builder::new().name("advisory".to_owned());
    drop(thread.spawn(move || {
        if let Ok(runtime) = build() {
            drop(started.send(runtime.handle().clone()));
            runtime.block_on(pending::<()>());
        }
    }));
    running.recv().ok()
}

/// Blocks the caller's thread for a moment, so that a loop without a timer does not spin: the timer
/// thread is not running, and the caller's runtime may have no timer enabled.
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
        assert!(timer_thread.running.lock().unwrap().is_none());
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
