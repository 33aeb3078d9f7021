//! One run: load on a database of its own, one kind of fault repeatedly, a quiet phase, and the
//! checker.

use crate::assignment::Assignment;
use crate::bug::Bug;
use crate::checker;
use crate::clock::{self, pass};
use crate::cluster::Cluster;
use crate::connection::Failure;
use crate::fault::{Between, Fault, Site};
use crate::figures::{Ended, Figures};
use crate::progress::Progress;
use crate::records::Records;
use crate::server::Server;
use crate::violation::{Rule, Violation};
use crate::worker_pool::WorkerPool;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// The settings of all runs.
pub(crate) struct Plan {
    /// The minimum of operations in a run.
    pub(crate) operations: i64,
    /// The time limit for a run to show enough.
    pub(crate) within: Duration,
    pub(crate) workers: usize,
    pub(crate) hold: Duration,
    pub(crate) seed: u64,
}

/// How long workers may take to start, to continue after a fault, and to end.
const fn patience(bug: Option<Bug>) -> Duration {
    // With a bug they may never do so, which shows soon enough.
    match bug {
        Some(_) => Duration::from_secs(10),
        None => Duration::from_secs(30),
    }
}

/// How often a fault must have an effect in each run.
const FAULTS: usize = 2;

/// The maximum of episodes in the search for a bug: the load stops after each, and the checker
/// runs. Each has some operations.
const EPISODES: usize = 30;
const EPISODE: i64 = 300;

pub(crate) async fn run(
    server: &Server,
    fault: Fault,
    bug: Option<Bug>,
    plan: &Plan,
    folder: &Path,
) -> Result<Figures, Failure> {
    // Its servers are of this run alone.
    let own;
    let server = if fault == Fault::Failover {
        let Some(cluster) = Cluster::start().await? else {
            return Ok(Figures::left_out(fault, bug, "no `pg_rewind`"));
        };
        own = Server::Cluster(cluster);
        &own
    } else {
        server
    };
    let bugs = bug.map_or("", Bug::name);
    let name = format!("stress_{}_{bugs}", fault.name()).replace('-', "_");
    let url = server.create(&name).await?;
    let (between, address) = match fault.between(&url, &name).await {
        Ok(between) => between,
        Err(why) => return Ok(Figures::left_out(fault, bug, why)),
    };
    let folder = folder.join(&name);
    fs::create_dir(&folder)?;
    let order = Assignment {
        number: 0,
        url: address,
        log: folder.clone(),
        seed: plan.seed,
        is_pooled: fault == Fault::Pooler,
        bug,
    };
    let mut run = Run {
        server,
        url: &url,
        worker_pool: WorkerPool::start(order, plan.workers, fault.has_networks()).await?,
        between,
        fault,
        bug,
        plan,
        start: Instant::now(),
        rounds: 0,
        ended: Vec::new(),
        violations: Vec::new(),
    };
    let mut episodes = 0;
    let records = loop {
        episodes += 1;
        run.load().await?;
        let records = run.judge().await?;
        let is_found = |bug: Bug| run.is_broken(bug.rule());
        if bug.is_none_or(is_found) || episodes == EPISODES || run.is_broken(Rule::Stuck) {
            break records;
        }
        // What was found once is found again at the end of the next episode.
        run.violations.clear();
        run.worker_pool.resume();
    };
    let Run {
        start,
        ended,
        violations,
        worker_pool,
        between,
        ..
    } = run;
    drop((worker_pool, between));
    server.drop_database(&name).await?;
    fs::remove_dir_all(&folder)?;
    Ok(Figures {
        episodes,
        ..Figures::new(
            (fault, bug),
            &records.history,
            &ended,
            violations,
            start.elapsed(),
        )
    })
}

/// One run in progress.
struct Run<'r> {
    server: &'r Server,
    url: &'r str,
    worker_pool: WorkerPool,
    between: Between,
    fault: Fault,
    bug: Option<Bug>,
    plan: &'r Plan,
    start: Instant,
    /// How often the fault was applied, and when it had an effect.
    rounds: usize,
    ended: Vec<Ended>,
    violations: Vec<Violation>,
}

impl Run<'_> {
    /// Applies faults until the load has shown enough, then ends the load.
    async fn load(&mut self) -> Result<(), Failure> {
        let patience = patience(self.bug);
        let (before, first) = (self.worker_pool.progress(), self.rounds);
        let since = if first == 0 { 0 } else { clock::micros() };
        let mut goes_on = self.goes_on(since).await;
        let mut between = self.plan.hold / 2;
        while goes_on {
            let operations = self.missing_operations(&before, first);
            if operations.is_empty() {
                // Some kinds of operation are slow, and get more time between two faults.
                between += self.plan.hold / 2;
            }
            let missing = [operations, self.missing_kinds()].concat();
            if missing.is_empty() {
                break;
            }
            if self.start.elapsed() > self.plan.within {
                let within = self.plan.within.as_secs();
                let what = format!("after {within} s: {}", missing.join(", "));
                self.violations.push(Violation::new(Rule::Incomplete, what));
                break;
            }
            let bug = self.bug.map_or(Duration::ZERO, Bug::time);
            let hold = self.plan.hold.max(bug);
            let mut site = Site {
                server: self.server,
                url: self.url,
                worker_pool: &mut self.worker_pool,
                between: &self.between,
                hold,
                round: self.rounds,
            };
            let has_hit = self.fault.course(&mut site).await?;
            self.rounds += 1;
            let (at, workers) = (clock::micros(), self.worker_pool.numbers());
            if has_hit {
                self.ended.push(Ended { at, workers });
            }
            goes_on = self.goes_on(at).await;
            // A time without faults, so that anything left behind shows.
            pass(between).await;
        }
        self.worker_pool.tell_all("stop");
        if !until(patience, || self.worker_pool.is_quiet()).await {
            let what = "the load does not end";
            self.violations.push(Violation::new(Rule::Stuck, what));
        }
        let lost = self.worker_pool.count_lost();
        if lost > 0 {
            let what = format!("{lost} workers have exited by themselves");
            self.violations.push(Violation::new(Rule::Stuck, what));
        }
        Ok(())
    }

    /// The operations and faults that are still missing.
    fn missing_operations(&self, before: &Progress, first: usize) -> Vec<String> {
        let begun = self.worker_pool.progress().begun - before.begun;
        let (operations, rounds, least) = match self.bug {
            Some(_) => (EPISODE, self.rounds - first, 1),
            None => (self.plan.operations, self.ended.len(), FAULTS),
        };
        let mut missing = Vec::new();
        if begun < operations {
            missing.push(format!("operations: {begun} of {operations}"));
        }
        if rounds < least {
            missing.push(format!("faults: {rounds} of {least}"));
        }
        missing
    }

    /// Everything else that a run still has to show; nothing with a bug.
    fn missing_kinds(&self) -> Vec<String> {
        match self.bug {
            Some(_) => Vec::new(),
            None => self
                .worker_pool
                .progress()
                .missing(self.fault == Fault::Pooler),
        }
    }

    /// Collects what the clients and the database have recorded, once the load has ended, and
    /// checks it.
    async fn judge(&mut self) -> Result<Records, Failure> {
        let patience = match self.bug {
            Some(_) => Duration::from_secs(1),
            None => patience(None),
        };
        let left = left(self.server, self.url, patience).await?;
        self.violations.extend(left);
        let mut records = Records::gather(self.server, self.url, self.worker_pool.logs()).await?;
        records.is_reachable = self.fault == Fault::LongText;
        records.has_one_cause = self.fault == Fault::AbortJob;
        self.violations.extend(checker::check(&records));
        let outlasts = matches!(self.fault, Fault::BlockRuntime | Fault::StallConnections);
        if outlasts && self.bug.is_none() && records.history.absent.is_empty() {
            let what = "no body has outlasted its ttl";
            self.violations.push(Violation::new(Rule::Incomplete, what));
        }
        Ok(records)
    }

    fn is_broken(&self, rule: Rule) -> bool {
        let mut violations = self.violations.iter();
        violations.any(|violation| violation.rule == rule)
    }

    /// Whether each worker has succeeded after `since`; a violation if not.
    async fn goes_on(&mut self, since: i64) -> bool {
        let goes_on = until(patience(self.bug), || {
            self.worker_pool.have_succeeded_since(since)
        })
        .await;
        if !goes_on {
            let what = "a worker has no success after the fault";
            self.violations.push(Violation::new(Rule::Stuck, what));
        }
        goes_on
    }
}

/// Polls until true or timed out.
async fn until(patience: Duration, is_so: impl Fn() -> bool) -> bool {
    let end = Instant::now() + patience;
    while !is_so() {
        if Instant::now() > end {
            return false;
        }
        pass(Duration::from_millis(10)).await;
    }
    true
}

/// Everything that is left once the load has stopped; after a moment that must be nothing.
const LEFT: &str = "SELECT pid, mode, CASE WHEN granted THEN 'held' ELSE 'waited for' END FROM pg_catalog.pg_locks \
     WHERE locktype = 'advisory' \
     AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) \
     UNION ALL SELECT pid, state, query FROM pg_catalog.pg_stat_activity \
     WHERE datname = pg_catalog.current_database() AND backend_type = 'client backend' \
     AND pid <> pg_catalog.pg_backend_pid() AND state <> 'idle'";

async fn left(server: &Server, url: &str, patience: Duration) -> Result<Vec<Violation>, Failure> {
    let end = Instant::now() + patience;
    loop {
        let rows = server.rows(url, LEFT).await?;
        if rows.is_empty() || Instant::now() > end {
            let each = rows.iter();
            return Ok(each
                .map(|row| Violation::new(Rule::Left, row.join(" ")))
                .collect());
        }
        pass(Duration::from_millis(20)).await;
    }
}
