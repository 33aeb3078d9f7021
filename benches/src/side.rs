//! One side of a comparison: many operations, one after the other, on each of several connections.

use crate::setting::Keys;
use std::time::{Duration, Instant};
use tokio::task::LocalSet;

/// One half of a pair.
pub(crate) trait Side {
    /// Runs for this long, and returns the operations a second.
    async fn run(&mut self, length: Duration) -> f64;
}

/// One operation of an async program.
pub(crate) trait Operation {
    async fn operate(&mut self);
}

/// An operation that needs only an address and a number to lock.
pub(crate) trait Open: Sized {
    async fn open(url: &str, key: i64) -> Self;
}

/// One operation of a blocking program.
pub(crate) trait Blocking: Sized + Send {
    fn open(url: &str, key: i64) -> Self;

    fn operate(&mut self);
}

/// Several that run at the same time, each on its own connection.
pub(crate) struct Beside<O> {
    pub(crate) each: Vec<O>,
    pub(crate) keys: Keys,
}

/// The same, each on its own thread.
pub(crate) struct Threads<O> {
    pub(crate) each: Vec<O>,
    pub(crate) keys: Keys,
}

impl<O: Open> Beside<O> {
    pub(crate) async fn open(url: &str, connections: usize, keys: Keys) -> Self {
        let mut each = Vec::with_capacity(connections);
        for key in keys.numbers(connections) {
            each.push(O::open(url, key).await);
        }
        Self { each, keys }
    }
}

impl<O: Blocking> Threads<O> {
    pub(crate) fn open(url: &str, connections: usize, keys: Keys) -> Self {
        let each = keys.numbers(connections).map(|key| O::open(url, key));
        let each = each.collect();
        Self { each, keys }
    }
}

impl<O: Operation + 'static> Side for Beside<O> {
    async fn run(&mut self, length: Duration) -> f64 {
        let local = LocalSet::new();
        let start = Instant::now();
        let running: Vec<_> = std::mem::take(&mut self.each)
            .into_iter()
            .map(|mut one| {
                local.spawn_local(async move {
                    let mut operations = 0;
                    while start.elapsed() < length {
                        one.operate().await;
                        operations += 1;
                    }
                    (one, Lap::since(start, operations))
                })
            })
            .collect();
        local.await;
        let mut laps = Vec::with_capacity(running.len());
        for one in running {
            let (one, lap) = one.await.expect("an operation succeeds");
            self.each.push(one);
            laps.push(lap);
        }
        Lap::speed(&laps, self.keys)
    }
}

impl<O: Blocking> Side for Threads<O> {
    async fn run(&mut self, length: Duration) -> f64 {
        let start = Instant::now();
        // Nothing else uses the runtime meanwhile.
        let laps = std::thread::scope(|scope| {
            let each = self.each.iter_mut();
            let running: Vec<_> = each
                .map(|one| {
                    scope.spawn(move || {
                        let mut operations = 0;
                        while start.elapsed() < length {
                            one.operate();
                            operations += 1;
                        }
                        Lap::since(start, operations)
                    })
                })
                .collect();
            let laps = running.into_iter().map(std::thread::ScopedJoinHandle::join);
            laps.map(|lap| lap.expect("an operation succeeds"))
                .collect::<Vec<_>>()
        });
        Lap::speed(&laps, self.keys)
    }
}

/// The results of one connection.
struct Lap {
    operations: u32,
    seconds: f64,
}

impl Lap {
    fn since(start: Instant, operations: u32) -> Self {
        let seconds = start.elapsed().as_secs_f64();
        Self {
            operations,
            seconds,
        }
    }

    /// Each connection ends with its last operation, so some end a little before the others. With
    /// keys of their own the speeds add up. With one key the lock is never free until the last one
    /// ends, which is then the end of the time.
    fn speed(laps: &[Self], keys: Keys) -> f64 {
        match keys {
            Keys::Distinct => laps
                .iter()
                .map(|lap| f64::from(lap.operations) / lap.seconds)
                .sum(),
            Keys::Hot => {
                let operations: u32 = laps.iter().map(|lap| lap.operations).sum();
                let seconds = laps.iter().map(|lap| lap.seconds).fold(0.0, f64::max);
                f64::from(operations) / seconds
            }
        }
    }
}
