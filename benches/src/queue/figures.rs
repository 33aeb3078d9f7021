//! The figures of a queue.

use super::Queue;
use crate::spread::{median, spread};
use serde_json::{Value, json};
use std::fmt;

/// What one run of a queue has to do, and under which conditions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) jobs: u32,
    pub(super) concurrency: u32,
    /// `fsync`.
    pub(super) is_durable: bool,
    /// Whether another session has a snapshot from before.
    pub(super) has_old_snapshot: bool,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fsync = if self.is_durable { "on" } else { "off" };
        let snapshot = if self.has_old_snapshot {
            ", old snapshot"
        } else {
            ""
        };
        let Self {
            jobs, concurrency, ..
        } = self;
        write!(
            f,
            "{jobs} jobs, {concurrency} at a time, fsync {fsync}{snapshot}"
        )
    }
}

/// One run of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    /// Jobs a second.
    pub(super) rate: f64,
    /// The processor time of 1,000 jobs, in milliseconds.
    pub(super) client: f64,
    pub(super) server: f64,
    /// The bytes of the write-ahead log for each job.
    pub(super) wal: f64,
    /// How many processors were busy with something else.
    pub(super) others: f64,
}

/// All runs of a queue under the same conditions.
pub(super) struct Throughput {
    pub(super) queue: Queue,
    run: Run,
    pub(super) rounds: Vec<Figures>,
    /// Its rate over that of `graphile_worker` in the same round, sorted.
    ratios: Vec<f64>,
}

impl Throughput {
    pub(super) const fn new(queue: Queue, run: Run) -> Self {
        Self {
            queue,
            run,
            rounds: Vec::new(),
            ratios: Vec::new(),
        }
    }

    /// Compares each round with the same one of another queue.
    pub(super) fn compare(&mut self, reference: &[Figures]) {
        let pairs = self.rounds.iter().zip(reference);
        self.ratios = pairs.map(|(own, other)| own.rate / other.rate).collect();
        self.ratios.sort_by(f64::total_cmp);
    }

    fn sorted(&self, of: impl Fn(&Figures) -> f64) -> Vec<f64> {
        let mut values: Vec<f64> = self.rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    fn median(&self, of: impl Fn(&Figures) -> f64) -> f64 {
        median(&self.sorted(of))
    }

    fn ratio(&self) -> Option<f64> {
        (!self.ratios.is_empty()).then(|| median(&self.ratios))
    }

    pub(super) fn json(&self) -> Value {
        let (rate, low, high) = spread(&self.sorted(|one| one.rate));
        json!({
            "queue": self.queue.to_string(),
            "settings": self.queue.settings(),
            "jobs": self.run.jobs,
            "concurrency": self.run.concurrency,
            "fsync": self.run.is_durable,
            "old_snapshot": self.run.has_old_snapshot,
            "jobs_a_second": rate,
            "low": low,
            "high": high,
            "over_graphile_worker": self.ratio(),
            "client_ms_for_1000": self.median(|one| one.client),
            "server_ms_for_1000": self.median(|one| one.server),
            "wal_bytes_a_job": self.median(|one| one.wal).round(),
            "others_busy": self.median(|one| one.others),
        })
    }
}

impl fmt::Display for Throughput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, low, high) = spread(&self.sorted(|one| one.rate));
        let (client, server) = (self.median(|one| one.client), self.median(|one| one.server));
        let (wal, others) = (self.median(|one| one.wal), self.median(|one| one.others));
        let (queue, run) = (self.queue.to_string(), self.run.to_string());
        write!(
            f,
            "{queue:<30} {run:<52} {rate:>7.0} jobs/s [{low:.0}, {high:.0}]"
        )?;
        if let Some(ratio) = self.ratio() {
            write!(f, " {ratio:.2}")?;
        }
        write!(
            f,
            "  1,000 jobs: client {client:>5.1} ms, server {server:>5.1} ms  WAL {wal:>5.0}  others {others:.2}"
        )
    }
}

/// The share of a processor's time that others used during the runs, in per cent.
pub(super) fn others_busy(all: &[Throughput]) -> u64 {
    let rounds = all.iter().flat_map(|one| &one.rounds);
    let mut busy: Vec<f64> = rounds.map(|one| 100.0 * one.others).collect();
    busy.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share"
    )]
    let median = if busy.is_empty() {
        0
    } else {
        median(&busy) as u64
    };
    median
}

/// The time from the commit of an insert to the beginning of the body, in microseconds.
pub(super) struct Latency {
    pub(super) queue: Queue,
    pub(super) median: u32,
    /// The 99th percentile.
    pub(super) slow: u32,
}

impl Latency {
    pub(super) fn json(&self) -> Value {
        json!({
            "queue": self.queue.to_string(),
            "median_us": self.median,
            "p99_us": self.slow,
        })
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            queue,
            median,
            slow,
        } = self;
        let queue = queue.to_string();
        write!(
            f,
            "{queue:<30} idle: begins after {median} µs, p99 {slow} µs"
        )
    }
}
