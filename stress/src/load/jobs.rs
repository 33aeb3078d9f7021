//! Jobs: each process adds some, and works on them with a worker of ours, until all are done or
//! have failed.

use super::Load;
use crate::absence::TTL;
use crate::buggy::{self, HandClaim};
use crate::chance::Chance;
use crate::clock::pass;
use crate::critical_section::{connection, tick};
use crate::history::Claim;
use crate::job::{ABORTS, Job, LONG};
use crate::operation_kind::OperationKind;
use crate::outcome::{self, Outcome};
use advisory_runtime::claim::{self, Claimed, Error};
use diesel::dsl::sql;
use diesel::sql_types::BigInt;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::panic::resume_unwind;
use std::process::abort;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// How many rows a process works on at a time.
const CONCURRENCY: usize = 4;
const TENANTS: u32 = 8;
/// No more are added while so many wait.
const BACKLOG: u32 = 24;
/// How long a process goes on after the load has stopped, until all jobs are done or have failed.
const PATIENCE: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(4)];

impl Load {
    /// Adds jobs until the load ends, and works on them until none is left.
    pub(crate) async fn jobs(&self, mut chance: Chance) {
        if self.assignment.is_pooled || self.assignment.bug.is_some_and(|bug| !bug.is_of_jobs()) {
            return;
        }
        let works = Mutex::new(Chance(!chance.0));
        let mut added = std::pin::pin!(async {
            self.add_jobs(&mut chance).await;
            let patience = PATIENCE[usize::from(self.assignment.bug.is_some())];
            drop(timeout(patience, self.until_none_is_left()).await);
        });
        if self.assignment.bug.is_some() {
            let is_over = AtomicBool::new(false);
            let adding = async {
                added.as_mut().await;
                is_over.store(true, Ordering::Relaxed);
            };
            let hand = || self.work_by_hand(&works, &is_over);
            tokio::join!(adding, hand(), hand(), hand(), hand());
            return;
        }
        // Closed when the worker must stop, also one that is started after that.
        let open = Semaphore::new(0);
        let adding = async {
            added.as_mut().await;
            open.close();
        };
        let working = async {
            // An error means that the server has refused the first claim.
            while self.work_on_jobs(&works, &open).await.is_err() {
                pass(Duration::from_millis(50)).await;
            }
        };
        tokio::join!(adding, working);
    }

    async fn work_on_jobs(&self, works: &Mutex<Chance>, open: &Semaphore) -> Result<(), Error> {
        let worker = claim::Worker::new(&self.pool, format!("worker-{}", self.assignment.number));
        let worker = worker.concurrency(CONCURRENCY).poll(TTL / 4);
        let stopping = worker.until(async { drop(open.acquire().await) });
        let running = stopping
            .run(async |job: Claimed<Job>| self.work(&Held::Claimed(&job), next(works)).await);
        Box::pin(running).await
    }

    async fn add_jobs(&self, chance: &mut Chance) {
        while !self.is_over() {
            let mut rows = Vec::new();
            for _ in 0..4 {
                let fails = match chance.below(8) {
                    0..5 => 0,
                    5 => 1,
                    6 => 2,
                    _ => 9,
                };
                rows.push(format!("({}, {fails})", chance.below(TENANTS)));
            }
            let insert = format!(
                "INSERT INTO stress.job (tenant, fails) SELECT * FROM (VALUES {}) AS rows \
                 WHERE ({LEFT}) < {BACKLOG}",
                rows.join(", ")
            );
            if let Ok(mut conn) = connection(&self.pool).await {
                // A job that was not added is not missed.
                drop(conn.batch_execute(&insert).await);
            }
            pass(Duration::from_millis(20)).await;
        }
    }

    async fn until_none_is_left(&self) {
        while self.count_left().await.ok() != Some(0) {
            pass(Duration::from_millis(20)).await;
        }
    }

    async fn count_left(&self) -> Result<i64, Error> {
        let mut conn = connection(&self.pool).await?;
        Ok(sql::<BigInt>(LEFT).get_result(&mut conn).await?)
    }

    /// One attempt at a job.
    async fn work(&self, held: &Held<'_>, mut chance: Chance) -> Result<(), String> {
        let job = held.job();
        let kind = match chance.below(3) {
            _ if job.attempts <= job.fails => OperationKind::JobFails,
            0 => OperationKind::Job,
            _ => OperationKind::JobOnce,
        };
        let op = self.begin(kind, job.tenant);
        if job.fails == ABORTS {
            // Its neighbours have begun.
            pass(Duration::from_millis(10)).await;
            abort();
        }
        if let Some(absence) = self.job_absence.take() {
            absence.run(&self.log, op, || held.is_current()).await;
        }
        let mut work = Work {
            load: self,
            kind,
            op,
            has_ended: false,
            is_recorded: false,
        };
        let worked = work.run(held, &mut chance).await;
        let (outcome, why) = match &worked {
            Ok(()) if kind == OperationKind::JobOnce => (Outcome::Confirmed, "-".to_owned()),
            Ok(()) => (Outcome::Taken, "-".to_owned()),
            Err(error) => (
                work.outcome_unless_ended(Outcome::Failed),
                outcome::name(error, error.database()),
            ),
        };
        work.end(outcome, &why);
        worked.map_err(|error| error.to_string())?;
        if kind != OperationKind::JobFails {
            return Ok(());
        }
        if chance.below(2) == 0 && matches!(held, Held::Claimed(_)) {
            // Without the message of a panic, which is expected here.
            resume_unwind(Box::new("planned"));
        }
        Err("planned".to_owned())
    }

    /// Works on jobs with a bug instead of our claims.
    async fn work_by_hand(&self, works: &Mutex<Chance>, is_over: &AtomicBool) {
        let Some(bug) = self.assignment.bug else {
            return;
        };
        while !AtomicBool::load(is_over, Ordering::Relaxed) {
            let claimed = async {
                let mut conn = connection(&self.pool).await?;
                buggy::claim_by_hand(bug, &mut conn, &self.hand)
                    .await
                    .map_err(Error::from)
            };
            let claimed = claimed.await.unwrap_or_default();
            if claimed.is_empty() {
                pass(Duration::from_millis(5)).await;
            }
            for claimed in claimed {
                let worked = self.work(&Held::ByHand(&claimed), next(works)).await;
                if let Ok(mut conn) = connection(&self.pool).await {
                    // If it fails, the claim expires.
                    drop(claimed.end(&mut conn, worked.is_ok()).await);
                }
            }
        }
    }
}

fn next(works: &Mutex<Chance>) -> Chance {
    let mut works = works.lock().unwrap_or_else(PoisonError::into_inner);
    Chance(u64::from(works.below(u32::MAX)))
}

/// A claimed job.
enum Held<'c> {
    Claimed(&'c Claimed<Job>),
    ByHand(&'c HandClaim),
}

impl Held<'_> {
    fn job(&self) -> &Job {
        match self {
            Self::Claimed(claimed) => claimed,
            Self::ByHand(claimed) => &claimed.job,
        }
    }

    fn is_current(&self) -> bool {
        match self {
            Self::Claimed(claimed) => Instant::now() < claimed.deadline(),
            Self::ByHand(claimed) => claimed.is_current(),
        }
    }

    fn pause(&self, chance: &mut Chance) -> Duration {
        match (self, chance.below(40)) {
            (Self::Claimed(_), 0) => LONG,
            (Self::ByHand(claimed), 0..8) if claimed.outlives() => LONG,
            (Self::Claimed(_), 1..12) | (Self::ByHand(_), _) => Duration::from_millis(5),
            _ => Duration::ZERO,
        }
    }

    async fn complete(&self, conn: &mut AsyncPgConnection) -> Result<(), Error> {
        match self {
            Self::Claimed(claimed) => claim::complete(conn, claimed).await,
            Self::ByHand(claimed) => Ok(claimed.complete(conn).await?),
        }
    }
}

/// One attempt, which records its outcome when it is dropped, too.
struct Work<'l> {
    load: &'l Load,
    kind: OperationKind,
    op: i64,
    /// Whether the commit of its writes was sent.
    has_ended: bool,
    is_recorded: bool,
}

impl Work<'_> {
    async fn run(&mut self, held: &Held<'_>, chance: &mut Chance) -> Result<(), Error> {
        self.stay(held, held.pause(chance)).await?;
        if let Held::Claimed(claimed) = held
            && self.kind == OperationKind::Job
            && chance.below(8) == 0
        {
            let mut conn = connection(&self.load.pool).await?;
            return claim::release(&mut conn, claimed).await;
        }
        if self.kind != OperationKind::JobOnce {
            return Ok(());
        }
        let (job, op) = (held.job().id, self.op);
        let mut conn = connection(&self.load.pool).await?;
        let done = conn.transaction(async |conn| {
            let insert = format!("INSERT INTO stress.worked VALUES ({job}, {op})");
            conn.batch_execute(&insert).await?;
            held.complete(conn).await?;
            self.has_ended = true;
            Ok(())
        });
        done.await
    }

    /// Pauses between two ticks. If the claim is still held after the second tick, it was held up
    /// to that tick, even if the process was stopped in between.
    async fn stay(&self, held: &Held<'_>, pause: Duration) -> Result<(), Error> {
        let from = self.tick().await?;
        pass(pause).await;
        let to = self.tick().await?;
        if held.is_current() {
            let claim = Claim {
                lease: held.job().tenant,
                token: 0,
                from,
                to,
            };
            self.load.log.claimed(self.op, claim);
        }
        Ok(())
    }

    async fn tick(&self) -> Result<i64, Error> {
        let mut conn = connection(&self.load.pool).await?;
        Ok(diesel::select(tick()).get_result(&mut conn).await?)
    }

    /// The outcome without a result: unknown if the commit was sent.
    fn outcome_unless_ended(&self, outcome: Outcome) -> Outcome {
        if self.has_ended {
            Outcome::Unknown
        } else {
            outcome
        }
    }

    fn end(&mut self, outcome: Outcome, why: &str) {
        self.is_recorded = true;
        self.load.end(self.kind, self.op, outcome, 0, why);
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        if !self.is_recorded {
            self.end(self.outcome_unless_ended(Outcome::Dropped), "Dropped");
        }
    }
}

/// The jobs that are neither done nor failed.
const LEFT: &str =
    "SELECT count(*) FROM stress.job WHERE completed_at IS NULL AND failed_at IS NULL";
