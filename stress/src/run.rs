//! What is one run? Load on a database of its own, one kind of fault again and again, silence, and the checker.

use crate::assignment::Assignment;
use crate::bug::Bug;
use crate::checker;
use crate::clock::{self, pass};
use crate::crew::Crew;
use crate::evidence::Evidence;
use crate::fault::{Fault, Site};
use crate::figures::Figures;
use crate::server::{Failure, Server};
use crate::violation::{Rule, Violation};
use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// What is the same in all runs.
pub(crate) struct Plan {
    /// How many operations a run makes at least.
    pub(crate) operations: i64,
    pub(crate) workers: usize,
    pub(crate) hold: Duration,
    pub(crate) seed: u64,
}

/// How long workers may take to begin, to go on when a fault is over, and to end.
const fn patience(bug: Option<Bug>) -> Duration {
    // With a bug they may never, and it is soon enough seen.
    match bug {
        Some(_) => Duration::from_secs(10),
        None => Duration::from_secs(30),
    }
}

/// When a fault was over, and who was there to go on.
pub(crate) struct Ended {
    pub(crate) at: i64,
    pub(crate) workers: Vec<i64>,
}

/// How often a fault runs its course at least.
const fn rounds(bug: Option<Bug>) -> usize {
    match bug {
        // Leases have to be waited for, and for longer than they last.
        Some(Bug::Now) => 12,
        _ => 2,
    }
}

pub(crate) async fn run(
    server: &Server,
    fault: Fault,
    bug: Option<Bug>,
    plan: &Plan,
    folder: &Path,
) -> Result<Figures, Failure> {
    let bugs = bug.map_or("", Bug::name);
    let name = format!("stress_{}_{bugs}", fault.name()).replace('-', "_");
    let patience = patience(bug);
    let url = server.create(&name).await?;
    let (between, address) = match fault.between(&url, &name).await {
        Ok(between) => between,
        Err(why) => return Ok(Figures::left_out(fault, bug, why)),
    };
    let folder = folder.join(&name);
    fs::create_dir(&folder)?;
    let start = Instant::now();
    let order = Assignment {
        number: 0,
        url: address,
        log: folder.clone(),
        seed: plan.seed,
        start: clock::micros(),
        is_pooled: fault == Fault::Pooler,
        bug,
    };
    let mut crew = Crew::start(order, plan.workers).await?;
    let mut violations = Vec::new();
    let mut ended: Vec<Ended> = Vec::new();
    let mut goes_on = goes_on(&crew, 0, patience, &mut violations).await;
    while goes_on && (ended.len() < rounds(bug) || crew.operations() < plan.operations) {
        let mut site = Site {
            server,
            url: &url,
            crew: &mut crew,
            between: &between,
            hold: plan.hold,
            round: ended.len(),
        };
        fault.course(&mut site).await?;
        let (at, workers) = (clock::micros(), crew.numbers());
        ended.push(Ended { at, workers });
        goes_on = self::goes_on(&crew, at, patience, &mut violations).await;
        // Time without a fault, for what it has left behind to show itself.
        pass(plan.hold / 2).await;
    }
    crew.tell_all("stop");
    if !until(patience, || crew.is_quiet()).await {
        violations.push(Violation::new(Rule::Stuck, "the load does not end"));
    }
    let lost = crew.count_lost();
    if lost > 0 {
        let what = format!("{lost} workers have ended by themselves");
        violations.push(Violation::new(Rule::Stuck, what));
    }
    violations.extend(left(server, &url, patience).await?);
    let evidence = Evidence::gather(server, &url, crew.logs()).await?;
    violations.extend(checker::check(&evidence));
    drop((crew, between));
    server.drop_database(&name).await?;
    fs::remove_dir_all(&folder)?;
    Ok(Figures::new(
        (fault, bug),
        &evidence.history,
        &ended,
        violations,
        start.elapsed(),
    ))
}

/// Whether each worker has a success after `since`, which is told when not.
async fn goes_on(
    crew: &Crew,
    since: i64,
    patience: Duration,
    violations: &mut Vec<Violation>,
) -> bool {
    let goes_on = until(patience, || crew.have_succeeded_since(since)).await;
    if !goes_on {
        let what = "a worker has no success after the fault";
        violations.push(Violation::new(Rule::Stuck, what));
    }
    goes_on
}

/// Looks until it is so, and says whether it is.
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

/// What is left once the load has stopped: nothing, after a moment.
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
