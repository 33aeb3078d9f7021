//! One claim with a limit for each value, on tables that make rows below the limit hard to find,
//! compared with a claim without a limit; and the jobs a second of one value.

use crate::flags::Flags;
use crate::jobs::{Job, JobPerTenant};
use crate::pooled::pool;
use crate::rivals::open_transaction::table;
use crate::spread::median;
use advisory_runtime::claim::{self, Claim, Claimed, Worker};
use advisory_tests::{Database, pid_of};
use diesel::prelude::*;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::error::Error;
use std::fmt;
use std::fs;
use std::time::Instant;
use tokio::task::JoinSet;

/// A table with a million rows that can be claimed, and the SQL that makes its rows.
const TABLES: [(&str, &str); 6] = [
    (
        "100,000 values",
        "INSERT INTO jobs (id, tenant_id, run_at) SELECT i, i % 100000, {run_at} FROM generate_series(1, 1000000) AS i",
    ),
    (
        "1,000 at the limit in front",
        "INSERT INTO jobs (id, tenant_id, run_at) SELECT i, (i - 1) / 10, {run_at} FROM generate_series(1, 1000000) AS i; \
         UPDATE jobs SET locked_by = 'other#', locked_until = now() + interval '1 day' WHERE id % 10 = 1 AND id <= 10000",
    ),
    (
        "99 % of one at its limit",
        "INSERT INTO jobs (id, tenant_id, run_at) SELECT i, CASE WHEN i <= 990000 THEN 0 ELSE i END, {run_at} FROM generate_series(1, 1000000) AS i; \
         UPDATE jobs SET locked_by = 'other#', locked_until = now() + interval '1 day' WHERE id = 1",
    ),
    (
        "20,000 without an attempt left",
        "INSERT INTO jobs (id, tenant_id, run_at, attempts) SELECT i, i % 100000, {run_at}, CASE WHEN i <= 20000 THEN 25 ELSE 0 END \
         FROM generate_series(1, 1020000) AS i",
    ),
    (
        "500,000 done, old statistics",
        "INSERT INTO jobs (id, tenant_id, run_at) SELECT i, i % 100000, {run_at} FROM generate_series(1, 1500000) AS i; \
         ANALYZE jobs; UPDATE jobs SET completed_at = now() WHERE id <= 500000",
    ),
    (
        "the same after VACUUM",
        "INSERT INTO jobs (id, tenant_id, run_at) SELECT i, i % 100000, {run_at} FROM generate_series(1, 1500000) AS i; \
         ANALYZE jobs; UPDATE jobs SET completed_at = now() WHERE id <= 500000; VACUUM jobs",
    ),
];
/// Claims of each kind, by default.
const CLAIMS: usize = 100;
const HOT_JOBS: u32 = 2_000;
const HOT_CONNECTIONS: u32 = 8;
const ALONE: &str = "one value, one connection";
const WORKER: &str = "one value, a worker of 8";

/// The processor time of the server for one claim, or jobs a second.
pub(crate) struct Limits {
    what: &'static str,
    without: f64,
    with: f64,
    unit: &'static str,
}

pub(crate) async fn run(db: &Database, flags: &Flags) -> Result<Vec<Limits>, Box<dyn Error>> {
    let mut all = Vec::new();
    let cases = TABLES.into_iter().chain([(ALONE, ""), (WORKER, "")]);
    for (what, rows) in cases {
        if flags.wants(&format!("limit: {what}")) {
            let limits = match what {
                ALONE => alone(db).await?,
                WORKER => worker(db).await?,
                _ => claims(db, flags, what, rows).await?,
            };
            println!("{limits}");
            all.push(limits);
        }
    }
    Ok(all)
}

async fn set_up(db: &Database, rows: &str) -> Result<(), Box<dyn Error>> {
    let mut conn = db.connect().await;
    let run_at = "now() - interval '1 day' + i * interval '1 ms'";
    let table = table("jobs", 0, 0);
    let autovacuum = "ALTER TABLE jobs SET (autovacuum_enabled = off)";
    let table = format!("DROP TABLE IF EXISTS jobs; {table}; {autovacuum}");
    let indexes = claim::indexes::<JobPerTenant>();
    let rows = rows.replace("{run_at}", run_at);
    let is_analyzed = rows.contains("ANALYZE");
    let statements = [table].into_iter().chain(indexes);
    for sql in statements.chain(rows.split("; ").map(str::to_owned)) {
        conn.batch_execute(&sql).await?;
    }
    if !is_analyzed {
        conn.batch_execute("VACUUM ANALYZE jobs").await?;
    }
    conn.batch_execute("CHECKPOINT").await?;
    Ok(())
}

/// The processor time of the server for one claim, in milliseconds. The row is given back, so that the
/// next claim finds the same.
async fn claim_once<T: Claim>(conn: &mut AsyncPgConnection) -> Result<f64, Box<dyn Error>> {
    let pid = pid_of(conn).await.unsigned_abs();
    let start = account(pid).ok_or("the system keeps no account of processor time")?;
    let claimed = claim::next::<T>("bench").first(conn).await?;
    let end = account(pid).unwrap_or(start);
    claim::release(conn, &claimed.ok_or("no row")?).await?;
    Ok((end - start) / 1e3)
}

async fn claims(
    db: &Database,
    flags: &Flags,
    what: &'static str,
    rows: &str,
) -> Result<Limits, Box<dyn Error>> {
    set_up(db, rows).await?;
    let mut conn = db.connect().await;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let count = flags.rounds.map_or(CLAIMS, |rounds| rounds * 10);
    for _ in 0..count {
        with.push(claim_once::<JobPerTenant>(&mut conn).await?);
        without.push(claim_once::<Job>(&mut conn).await?);
    }
    let median = |mut times: Vec<f64>| {
        times.sort_unstable_by(f64::total_cmp);
        median(&times)
    };
    Ok(Limits {
        what,
        without: median(without),
        with: median(with),
        unit: "ms",
    })
}

const HOT_ROWS: &str = "INSERT INTO jobs (id, tenant_id, run_at) SELECT i, 7, {run_at} FROM generate_series(1, 1000000) AS i";

/// Works off jobs of one value by hand: each connection locks the value for the transaction of a job.
async fn by_hand(db: &Database, connections: u32) -> Result<f64, Box<dyn Error>> {
    use crate::jobs::jobs::{attempts, completed_at, failed_at, id, run_at, table as jobs};
    set_up(db, HOT_ROWS).await?;
    let start = Instant::now();
    let mut running = JoinSet::new();
    for _ in 0..connections {
        let mut conn = db.connect().await;
        running.spawn(async move {
            for _ in 0..HOT_JOBS / connections {
                let done: QueryResult<usize> = conn
                    .transaction(async |conn| {
                        let lock = "SELECT pg_advisory_xact_lock(7)";
                        diesel::sql_query(lock).execute(conn).await?;
                        let first = jobs
                            .filter(completed_at.is_null().and(failed_at.is_null()))
                            .filter(run_at.le(diesel::dsl::now))
                            .order((run_at, id))
                            .select(id);
                        let job: i64 = first.limit(1).for_update().first(conn).await?;
                        diesel::update(jobs.find(job))
                            .set((completed_at.eq(diesel::dsl::now), attempts.eq(attempts + 1)))
                            .execute(conn)
                            .await
                    })
                    .await;
                done?;
            }
            QueryResult::Ok(())
        });
    }
    for done in running.join_all().await {
        done?;
    }
    Ok(rate(start))
}

fn rate(start: Instant) -> f64 {
    f64::from(HOT_JOBS) / start.elapsed().as_secs_f64()
}

/// On one connection, claims and completes.
async fn alone(db: &Database) -> Result<Limits, Box<dyn Error>> {
    let without = by_hand(db, 1).await?;
    set_up(db, HOT_ROWS).await?;
    let mut conn = db.connect().await;
    let start = Instant::now();
    for _ in 0..HOT_JOBS {
        let job = claim::next::<JobPerTenant>("bench")
            .first(&mut conn)
            .await?;
        claim::complete(&mut conn, &job.ok_or("no row")?).await?;
    }
    Ok(Limits {
        what: ALONE,
        without,
        with: rate(start),
        unit: "jobs/s",
    })
}

/// With several connections, and a worker.
async fn worker(db: &Database) -> Result<Limits, Box<dyn Error>> {
    let without = by_hand(db, HOT_CONNECTIONS).await?;
    set_up(db, HOT_ROWS).await?;
    let pool = pool(db.url(), HOT_CONNECTIONS as usize)?;
    db.run(&format!("DELETE FROM jobs WHERE id > {HOT_JOBS}"))
        .await;
    let worker: Worker<'_, JobPerTenant, _> = Worker::new(&pool, "bench");
    let worker = worker.concurrency(HOT_CONNECTIONS as usize).until_empty();
    let start = Instant::now();
    worker
        .run(async |_: Claimed<JobPerTenant>| Ok::<_, claim::Error>(()))
        .await?;
    Ok(Limits {
        what: WORKER,
        without,
        with: rate(start),
        unit: "jobs/s",
    })
}

impl Limits {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::json!({ "case": self.what, "unit": self.unit, "without": self.without, "with": self.with })
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            without,
            with,
            unit,
        } = self;
        write!(
            f,
            "limit: {what:<32} without {without:>8.3} {unit}  with {with:>8.3} {unit}  ratio {:>6.2}",
            with / without
        )
    }
}

/// The processor time of a process's first thread, in microseconds.
fn account(pid: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    let nanoseconds: f64 = text.split(' ').next()?.parse().ok()?;
    Some(nanoseconds / 1_000.0)
}
