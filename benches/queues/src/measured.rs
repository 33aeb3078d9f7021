//! What one process measures of a queue, and how it tells the other one.

use rustix::time::{ClockId, clock_gettime};
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time, and this process's processor time, since the work has begun.
pub(crate) struct Work {
    since: Instant,
    processor: Duration,
}

impl Work {
    /// Says that this process is ready, and begins when it is told.
    pub(crate) fn begin() -> Self {
        println!("ready");
        drop(io::stdin().read(&mut [0]));
        Self {
            since: Instant::now(),
            processor: processor_time(),
        }
    }

    /// Prints both in seconds, and waits until standard input ends: the sessions on the server stay
    /// as they are until they have been looked at.
    pub(crate) fn end(self) {
        let time = self.since.elapsed();
        let processor = processor_time().saturating_sub(self.processor);
        println!("{} {}", time.as_secs_f64(), processor.as_secs_f64());
        drop(io::stdin().read(&mut [0]));
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::from_secs(seconds) + Duration::from_nanos(time.tv_nsec.unsigned_abs())
}

/// The time from the answer to the commit of an insert to the beginning of the job's body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies(Arc<Mutex<[Vec<Instant>; 2]>>);

impl Latencies {
    fn push(&self, which: usize, time: Instant) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        times[which].push(time);
    }

    pub(crate) fn inserted(&self, time: Instant) {
        self.push(0, time);
    }

    pub(crate) fn begin(&self) {
        self.push(1, Instant::now());
    }

    /// Prints each in microseconds. A body can begin before the answer to the commit has arrived.
    pub(crate) fn end(&self) {
        let times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let [inserted, begun] = &*times;
        for (inserted, begun) in inserted.iter().zip(begun) {
            println!("{}", begun.saturating_duration_since(*inserted).as_micros());
        }
    }
}

/// The pause before an insert, so that the queue is idle: not the same each time, so that inserts
/// do not fall in step with a timer.
pub(crate) fn pause(nth: u32) -> Duration {
    Duration::from_millis(20 + u64::from(nth * 7 % 20))
}
