//! Whole job queues: jobs a second, processor time, and the time until an idle worker begins. Ours
//! in several settings, other queues, and one by hand, in turns on one server, each in a process of
//! its own.
//!
//! It is a run of its own, `--only queue`, because client and server have a processor each. The
//! other queues are in `benches/queues`, a package that this compiles first.

mod by_hand;
mod figures;
#[path = "../queues/src/measured.rs"]
mod measured;
mod ours;
mod process;

use crate::flags::Flags;
use crate::spread::per_mille;
use advisory_tests::OwnServer;
use figures::{Figures, Latency, Run, Throughput};
pub(crate) use ours::run_here;
use process::{Program, Server};
use serde_json::{Value, json};
use std::error::Error;
use std::fmt;
use tokio_postgres::Client;

const JOBS: u32 = 20_000;
const CONCURRENCIES: [u32; 3] = [1, 10, 50];
/// The jobs that are worked off while an old snapshot is open, and how many at a time.
const OLD_SNAPSHOT: (u32, u32) = (200_000, 10);
/// How many jobs are inserted one at a time.
const ALONE: u32 = 300;

/// The prefetch that is the fastest for jobs that do nothing, as the guide names it.
const BEST: u32 = 2_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Default,
    Prefetch(u32),
    Deleting(u32),
    ByHand,
    Graphile,
    Apalis,
}

const QUEUES: [Queue; 6] = [
    Queue::Default,
    Queue::Prefetch(BEST),
    Queue::Deleting(BEST),
    Queue::ByHand,
    Queue::Graphile,
    Queue::Apalis,
];

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("worker"),
            Self::Prefetch(rows) => write!(f, "worker, prefetch {rows}"),
            Self::Deleting(rows) => write!(f, "worker, prefetch {rows}, deleted"),
            Self::ByHand => f.write_str("by hand"),
            Self::Graphile => f.write_str("graphile_worker"),
            Self::Apalis => f.write_str("apalis"),
        }
    }
}

impl Queue {
    /// What the figures depend on besides the library's version.
    const fn settings(self) -> &'static str {
        match self {
            Self::Default => "`Worker::new`, `RecyclingMethod::Fast`; done rows are kept",
            Self::Prefetch(_) => "`prefetch(2_000)`, `RecyclingMethod::Fast`; done rows are kept",
            Self::Deleting(_) => {
                "`prefetch(2_000)`, `RecyclingMethod::Fast`, `completed_at = \"delete\"`"
            }
            Self::ByHand => {
                "two sessions: claims 1,000 rows, ends all that have returned since its last statement; nothing is renewed or retried"
            }
            Self::Graphile => {
                "0.14.1, a local queue of 3,000, completion in batches of 1 ms, `test_before_acquire(false)`; done rows are deleted"
            }
            Self::Apalis => {
                "1.0 with `apalis-postgres`, 1,000 jobs a fetch, notified and polling each 100 ms, `lock_tasks(false)`, `parallelize(tokio::spawn)`, `test_before_acquire(false)`; done rows are kept"
            }
        }
    }

    /// Whether it tells a worker of a new job at once.
    const fn notifies(self) -> bool {
        !matches!(self, Self::ByHand | Self::Deleting(_) | Self::Prefetch(_))
    }

    const fn is_other(self) -> bool {
        matches!(self, Self::Graphile | Self::Apalis)
    }
}

/// Measures all, and returns the figures, and the share of a processor's time that others used, in
/// per cent.
pub(crate) async fn run(flags: &Flags) -> Result<(Value, u64), Box<dyn Error>> {
    let program = Program::build()?;
    // In memory `fsync` would cost nothing.
    advisory_tests::keep_data_on_disk();
    let server = OwnServer::start().await;
    let (client, connection) = tokio_postgres::connect(server.url(), tokio_postgres::NoTls).await?;
    let driven = tokio::spawn(connection);
    let bench = Bench {
        server: Server::of(&server)?,
        client,
        program,
    };
    let rounds = flags.rounds.unwrap_or(5);
    let mut all = Vec::new();
    for is_durable in [true, false] {
        bench.set_fsync(is_durable).await?;
        for concurrency in CONCURRENCIES {
            let run = Run {
                jobs: JOBS,
                concurrency,
                is_durable,
                has_old_snapshot: false,
            };
            all.extend(bench.throughput(run, &QUEUES, rounds, flags).await?);
        }
    }
    bench.set_fsync(true).await?;
    let (jobs, concurrency) = OLD_SNAPSHOT;
    let queues = [
        Queue::Default,
        Queue::Prefetch(BEST),
        Queue::ByHand,
        Queue::Graphile,
    ];
    for has_old_snapshot in [false, true] {
        let run = Run {
            jobs,
            concurrency,
            is_durable: true,
            has_old_snapshot,
        };
        all.extend(
            bench
                .throughput(run, &queues, rounds.div_ceil(2), flags)
                .await?,
        );
    }
    let mut latencies = Vec::new();
    for queue in QUEUES.into_iter().filter(|queue| queue.notifies()) {
        if flags.wants_queue(&format!("{queue} idle")) {
            let latency = bench.latency(queue, 10)?;
            println!("{latency}");
            latencies.push(latency);
        }
    }
    drop(bench);
    driven.await??;
    let busy = figures::others_busy(&all);
    let figures = json!({
        "queue": all.iter().map(Throughput::json).collect::<Vec<_>>(),
        "queue_idle": latencies.iter().map(Latency::json).collect::<Vec<_>>(),
    });
    Ok((figures, busy))
}

struct Bench {
    server: Server,
    client: Client,
    program: Program,
}

impl Bench {
    async fn set_fsync(&self, is_on: bool) -> Result<(), Box<dyn Error>> {
        let set = format!("ALTER SYSTEM SET fsync = {is_on}");
        self.client.batch_execute(&set).await?;
        self.client.batch_execute("SELECT pg_reload_conf()").await?;
        Ok(())
    }

    /// Each queue in each round, one after the other.
    async fn throughput(
        &self,
        run: Run,
        queues: &[Queue],
        rounds: usize,
        flags: &Flags,
    ) -> Result<Vec<Throughput>, Box<dyn Error>> {
        let wanted = queues
            .iter()
            .filter(|queue| flags.wants_queue(&format!("{queue} {run}")));
        let mut all: Vec<_> = wanted.map(|queue| Throughput::new(*queue, run)).collect();
        for _ in 0..rounds {
            for one in &mut all {
                one.rounds.push(self.once(one.queue, run).await?);
            }
        }
        let reference = all.iter().find(|one| one.queue == Queue::Graphile);
        let reference = reference.map(|one| one.rounds.clone());
        for one in &mut all {
            one.compare(reference.as_deref().unwrap_or_default());
            println!("{one}");
        }
        Ok(all)
    }

    async fn once(&self, queue: Queue, run: Run) -> Result<Figures, Box<dyn Error>> {
        let (jobs, concurrency) = (run.jobs.to_string(), run.concurrency.to_string());
        self.process(queue, &["fill", self.server.url(), &jobs])?
            .wait()?;
        self.client.batch_execute("VACUUM ANALYZE").await?;
        self.client.batch_execute("CHECKPOINT").await?;
        if run.has_old_snapshot {
            let snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pg_class LIMIT 1";
            self.client.batch_execute(snapshot).await?;
        }
        let work = self.process(queue, &["work", self.server.url(), &concurrency, &jobs])?;
        let work = work.until_ready()?;
        let wal = self.wal().await?;
        let mut figures = work.measure(&self.server, run.jobs)?;
        figures.wal = (self.wal().await? - wal) / f64::from(run.jobs);
        if run.has_old_snapshot {
            self.client.batch_execute("COMMIT").await?;
        }
        Ok(figures)
    }

    /// The bytes of the write-ahead log so far.
    async fn wal(&self) -> Result<f64, Box<dyn Error>> {
        let asked = "SELECT CAST(pg_current_wal_insert_lsn() - '0/0' AS float8)";
        Ok(self.client.query_one(asked, &[]).await?.get(0))
    }

    fn latency(&self, queue: Queue, concurrency: u32) -> Result<Latency, Box<dyn Error>> {
        let (alone, concurrency) = (ALONE.to_string(), concurrency.to_string());
        let wait = self.process(queue, &["wait", self.server.url(), &concurrency, &alone])?;
        let lines = wait.wait()?;
        let mut times: Vec<u32> = lines.lines().map(str::parse).collect::<Result<_, _>>()?;
        if times.is_empty() {
            return Err(format!("{queue} has begun no job").into());
        }
        times.sort_unstable();
        Ok(Latency {
            queue,
            median: per_mille(&times, 500),
            slow: per_mille(&times, 990),
        })
    }

    fn process(&self, queue: Queue, words: &[&str]) -> Result<process::Process, Box<dyn Error>> {
        let name = queue.to_string();
        if queue.is_other() {
            return self.program.start(&name, words);
        }
        Program::this()?.start(&name, words)
    }
}
