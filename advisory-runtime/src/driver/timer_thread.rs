//! A thread for work that must not depend on the caller's runtime, which may be about to end, or
//! have no timer.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::timeout_at;

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
    running: Mutex<Option<Running>>,
    build: fn() -> io::Result<Runtime>,
}

#[derive(Clone)]
struct Running {
    runtime: Handle,
    alarms: Arc<Alarms>,
}

impl TimerThread {
    const fn new(build: fn() -> io::Result<Runtime>) -> Self {
        Self {
            running: Mutex::new(None),
            build,
        }
    }

    fn running(&self) -> Option<Running> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_none() {
            *running = start(self.build);
        }
        running.clone()
    }

    fn run(&self, job: Job) -> bool {
        let running = self.running();
        running.map(|running| running.runtime.spawn(job)).is_some()
    }

    /// A large future is best pinned by the caller: this one holds what it is given twice.
    async fn timeout<F: Future>(&self, time: Duration, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        if time == Duration::MAX {
            return Some(future.await);
        }
        let started = Instant::now();
        // Only once the future is pending: one that is ready at once needs no timer.
        let mut alarm = None;
        let ended = poll_fn(|context| {
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                return Poll::Ready(Some(value));
            }
            if started.elapsed() >= time {
                return Poll::Ready(None);
            }
            let Some(end) = started.checked_add(time) else {
                return Poll::Pending;
            };
            if alarm.is_none() {
                let running = self.running();
                alarm = running.map(|running| Alarm::new(running.alarms, end));
            }
            match &alarm {
                Some(alarm) => alarm.set(context.waker()),
                None => rest(context),
            }
            Poll::Pending
        });
        ended.await
    }
}

/// The wakers, and their times. Setting an alarm wakes the thread only if no earlier one is set:
/// among calls with the same limit that is one in the time of the limit.
#[derive(Default)]
struct Alarms {
    set: Mutex<AlarmsSet>,
    has_earlier: Notify,
}

#[derive(Default)]
struct AlarmsSet {
    wakers: BTreeMap<(Instant, u64), Waker>,
    count: u64,
    /// When the thread looks next; `None` if it waits for the first alarm.
    next: Option<Instant>,
}

impl Alarms {
    fn lock(&self) -> MutexGuard<'_, AlarmsSet> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ring(&self) {
        loop {
            let (due, next) = {
                let mut set = self.lock();
                let later = set.wakers.split_off(&(Instant::now(), u64::MAX));
                let due = std::mem::replace(&mut set.wakers, later);
                set.next = set.wakers.keys().next().map(|(at, _)| *at);
                (due, set.next)
            };
            due.into_values().for_each(Waker::wake);
            match next {
                Some(next) => drop(timeout_at(next.into(), self.has_earlier.notified()).await),
                None => self.has_earlier.notified().await,
            }
        }
    }
}

struct Alarm {
    alarms: Arc<Alarms>,
    at: (Instant, u64),
}

impl Alarm {
    fn new(alarms: Arc<Alarms>, end: Instant) -> Self {
        let mut set = alarms.lock();
        set.count += 1;
        let at = (end, set.count);
        drop(set);
        Self { alarms, at }
    }

    fn set(&self, waker: &Waker) {
        let mut set = self.alarms.lock();
        let known = set.wakers.insert(self.at, waker.clone());
        let is_earlier = set.next.is_none_or(|next| self.at.0 < next);
        if is_earlier {
            set.next = Some(self.at.0);
        }
        drop(set);
        // A waker can be the last reference to a task, whose drop drops this alarm.
        drop(known);
        if is_earlier {
            self.alarms.has_earlier.notify_one();
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let known = self.alarms.lock().wakers.remove(&self.at);
        drop(known);
    }
}

/// Starts the thread. The process may have no thread or no file left for it.
fn start(build: fn() -> io::Result<Runtime>) -> Option<Running> {
    let (started, running) = mpsc::channel();
    let thread = std::thread::Builder::new().name("advisory".to_owned());
    drop(thread.spawn(move || {
        if let Ok(runtime) = build() {
            let alarms = Arc::new(Alarms::default());
            let running = Running {
                runtime: runtime.handle().clone(),
                alarms: Arc::clone(&alarms),
            };
            drop(started.send(running));
            runtime.block_on(alarms.ring());
        }
    }));
    running.recv().ok()
}

/// Blocks the caller's thread for a moment before the next poll, so that polls without a timer do
/// not spin: the timer thread is not running, and the caller's runtime may have no timer enabled.
#[allow(
    clippy::disallowed_methods,
    reason = "not a test: there is no timer to wait for"
)]
fn rest(context: &mut Context<'_>) {
    std::thread::sleep(RESTING);
    // It wakes the task when it is polled.
    _ = pin!(yield_now()).poll(context);
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
    fn a_bound_ends_on_time_with_a_thread_with_a_late_one_and_with_none() {
        static STARTS: AtomicUsize = AtomicUsize::new(0);
        let fail_once = || match STARTS.fetch_add(1, Ordering::AcqRel) {
            0 => fail(),
            _ => build(),
        };
        for build in [build, fail, fail_once] {
            let timer_thread = TimerThread::new(build);
            let started = Instant::now();
            let bound = Duration::from_millis(30);
            assert_eq!(answer(timer_thread.timeout(bound, pending::<u8>())), None);
            assert!(started.elapsed() >= bound, "{:?}", started.elapsed());
            // Many polls do not start a running thread again.
            assert_eq!(answer(timer_thread.timeout(AN_HOUR, slow())), Some(7));
        }
        assert_eq!(STARTS.load(Ordering::Acquire), 2);
    }

    #[test]
    fn no_time_is_one_poll_and_a_future_that_is_ready_at_once_starts_no_thread() {
        let timer_thread = TimerThread::new(|| unreachable!("no thread is needed"));
        assert_eq!(answer(timer_thread.timeout(AN_HOUR, async { 7 })), Some(7));
        assert_eq!(
            answer(timer_thread.timeout(Duration::ZERO, async { 7 })),
            Some(7)
        );
        assert_eq!(answer(timer_thread.timeout(Duration::ZERO, slow())), None);
        assert!(timer_thread.running.lock().unwrap().is_none());
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
}
