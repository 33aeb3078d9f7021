//! Limits of running rows under concurrency: never exceeded, and nobody starves.

use crate::tenant_jobs::{One, Two, by_key, jobs, next};
use advisory_runtime::claim::{self, Claim, Error};
use advisory_tests::futures::spawn;
use advisory_tests::statements::run;
use advisory_tests::{Database, claims, pid_of};
use diesel::prelude::*;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// The statement that waits began before the other claim was committed. A count by its snapshot would miss that claim.
#[tokio::test]
async fn a_claim_committed_during_the_wait_for_the_lock_counts() {
    let db = jobs(&[("a", 2)]).await;
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    // Prepared, so that everything is sent at once.
    let job = by_key(&mut other, 2).await.unwrap();
    claim::release(&mut other, &job).await.unwrap();
    let pid = pid_of(&mut other).await;
    let (claimed, waited) = tokio::join!(
        async {
            let claimed = conn.transaction(async |conn| {
                let claimed = by_key(conn, 1).await;
                db.until_blocked(pid).await;
                Ok::<_, Error>(claimed)
            });
            claimed.await.unwrap()
        },
        async {
            let held = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted \
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
            db.until_some("the lock of the value", held).await;
            by_key(&mut other, 2).await
        }
    );
    assert!(claimed.is_some());
    assert!(waited.is_none(), "two rows of one value are running");
}

/// The lock of a value has to be the same under each name of the table.
#[tokio::test]
async fn claims_by_two_names_of_a_table_share_the_limit() {
    async fn taken<T: Claim>(conn: &mut AsyncPgConnection) -> bool {
        let claimed = claims::first::<T>(conn).await;
        claimed.is_some()
    }
    macro_rules! row {
        ($row:ident, $table:ident) => {
            diesel::table! {
                $table (id) {
                    id -> BigInt,
                    tenant_id -> Text,
                    run_at -> Timestamptz,
                    locked_until -> Nullable<Timestamptz>,
                    locked_by -> Nullable<Text>,
                }
            }
            #[derive(Queryable, Selectable, Claim)]
            #[diesel(table_name = $table)]
            #[claim(run_at, per = "tenant_id", limit = 1)]
            struct $row {
                #[allow(dead_code, reason = "the key")]
                id: i64,
            }
        };
    }
    row!(Shard, shard);
    row!(Seen, seen);
    row!(Whole, whole);
    let db = Database::create().await;
    db.run(
        "CREATE TABLE whole (id int8 NOT NULL, tenant_id text NOT NULL, run_at timestamptz NOT NULL DEFAULT now(), \
             locked_until timestamptz, locked_by text) PARTITION BY LIST (tenant_id); \
         CREATE TABLE shard PARTITION OF whole (PRIMARY KEY (id)) FOR VALUES IN ('a'); \
         CREATE VIEW seen AS SELECT * FROM whole; \
         INSERT INTO whole (id, tenant_id) VALUES (1, 'a'), (2, 'a')",
    )
    .await;
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    for name in 0..3 {
        claims::roll_back(&mut conn, async |conn| {
            let is_taken = match name {
                0 => taken::<Shard>(conn).await,
                1 => taken::<Seen>(conn).await,
                _ => taken::<Whole>(conn).await,
            };
            assert!(is_taken, "{name}");
            // Its row is not visible yet, so only the lock tells the others.
            assert!(!taken::<Shard>(&mut other).await, "{name}");
            assert!(!taken::<Seen>(&mut other).await, "{name}");
            assert!(!taken::<Whole>(&mut other).await, "{name}");
            Ok(())
        })
        .await;
    }
}

/// The statement that renews began before the expiry and has not ended, so the claim is about to be running again.
#[tokio::test]
async fn an_expired_claim_that_is_being_renewed_counts() {
    let db = jobs(&[("a", 2)]).await;
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    let _job = next(&mut conn).await.unwrap();
    db.run("UPDATE job SET locked_until = clock_timestamp() - interval '1 hour' WHERE id = 1")
        .await;
    run(&mut other, "BEGIN; UPDATE job SET locked_until = clock_timestamp() + interval '5 minutes' WHERE id = 1").await;
    assert!(next(&mut conn).await.is_none(), "it is being renewed");
    assert!(by_key(&mut conn, 2).await.is_none());
    run(&mut other, "ROLLBACK").await;
    assert_eq!(next(&mut conn).await.unwrap().id, 1);
}

/// The row gets another value while its claim waits for it, so the lock is not the one of its value.
#[tokio::test]
async fn a_row_that_changes_its_value_meanwhile_is_not_claimed() {
    let db = jobs(&[("a", 1), ("b", 1)]).await;
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    assert_eq!(by_key(&mut conn, 2).await.unwrap().id, 2);
    let change = "BEGIN; UPDATE job SET tenant_id = 'b' WHERE id = 1";
    run(&mut other, change).await;
    let pid = pid_of(&mut conn).await;
    let (claimed, ()) = tokio::join!(by_key(&mut conn, 1), async {
        db.until_blocked(pid).await;
        run(&mut other, "COMMIT").await;
    });
    assert!(claimed.is_none());
}

/// A claim of a value that is being claimed at this moment is tried again.
#[tokio::test(flavor = "multi_thread")]
async fn claims_at_the_same_moment_all_find_their_rows() {
    let db = jobs(&[("a", 40)]).await;
    for _ in 0..10 {
        let mut claims = Vec::new();
        for _ in 0..2 {
            let mut conn = db.connect().await;
            claims.push(spawn(async move { claims::first::<Two>(&mut conn).await }));
        }
        for claimed in claims {
            assert!(claimed.await.unwrap().is_some());
        }
        db.run("UPDATE job SET completed_at = now(), locked_until = NULL, locked_by = NULL WHERE locked_by IS NOT NULL")
            .await;
    }
}

/// A generator of numbers that look random, the same ones for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % most
    }
}

const TENANTS: [(&str, u32); 5] = [("a", 120), ("b", 60), ("c", 30), ("d", 1), ("e", 9)];

#[derive(Default)]
struct Shared {
    url: String,
    running: Mutex<HashMap<String, u32>>,
    most: AtomicU32,
    /// The names of workers that have lost their connection and work on nothing any more.
    gone: Mutex<Vec<String>>,
    tries: AtomicU32,
    tried: Notify,
    is_over: AtomicBool,
}

impl Shared {
    fn change(&self, tenant: &str, change: impl FnOnce(u32) -> u32) {
        let mut running = self.running.lock().unwrap();
        let count = running.entry(tenant.to_owned()).or_default();
        *count = change(*count);
        self.most.fetch_max(*count, Ordering::Relaxed);
    }
}

/// Claims and ends jobs in random ways until none is left. With a connection that is lost its name goes too.
async fn work<T: Claim>(shared: &Shared, seed: u64, of: fn(&T) -> String, jobs: u64) {
    let mut random = Random(seed);
    let mut names = (0..).map(|nth| format!("worker {seed}, {nth}"));
    let mut worker = names.next().unwrap();
    let mut conn = AsyncPgConnection::establish(&shared.url).await.unwrap();
    while !shared.is_over.load(Ordering::Relaxed) {
        let claimed = match random.below(4) {
            0 => {
                let condition = format!("job.id >= {}", random.below(jobs));
                let condition = diesel::dsl::sql::<diesel::sql_types::Bool>(&condition);
                let next = claim::next::<T>(&worker).filter(condition);
                next.first(&mut conn).await.map(Vec::from_iter)
            }
            1 => claim::next::<T>(&worker).load(&mut conn, 3).await,
            _ => {
                let claimed = claim::next::<T>(&worker).first(&mut conn).await;
                claimed.map(Vec::from_iter)
            }
        };
        shared.tries.fetch_add(1, Ordering::Relaxed);
        shared.tried.notify_one();
        let mut failed = Vec::new();
        let claimed: Vec<_> = claimed.unwrap_or_else(|error| {
            failed.push(error);
            Vec::new()
        });
        let tenants: Vec<_> = claimed.iter().map(|job| of(job)).collect();
        for tenant in &tenants {
            shared.change(tenant, |count| count + 1);
        }
        tokio::task::yield_now().await;
        for (job, tenant) in claimed.iter().zip(&tenants) {
            shared.change(tenant, |count| count - 1);
            let ended = match random.below(4) {
                0 => claim::release(&mut conn, job).await,
                _ => claim::complete(&mut conn, job).await,
            };
            if let Err(error) = ended {
                failed.push(error);
                conn = AsyncPgConnection::establish(&shared.url).await.unwrap();
            }
        }
        for error in &failed {
            let is_of_the_kill = matches!(error, Error::Database(_) | Error::CommitUnknown { .. });
            assert!(is_of_the_kill, "{error}");
        }
        if !failed.is_empty() {
            // Whatever it has claimed stays claimed until it expires.
            let next = names.next().unwrap();
            let gone = mem::replace(&mut worker, next);
            shared.gone.lock().unwrap().push(gone);
            conn = AsyncPgConnection::establish(&shared.url).await.unwrap();
        }
    }
}

async fn random_workers<T: Claim>(limit: i64, of: fn(&T) -> String) {
    let db = jobs(&TENANTS).await;
    let shared = Arc::new(Shared {
        url: db.url().to_owned(),
        ..Shared::default()
    });
    let mut workers = JoinSet::new();
    for seed in 1..=6 {
        let shared = Arc::clone(&shared);
        workers.spawn(async move { work::<T>(&shared, seed, of, 220).await });
    }
    // Kills sessions, looks at the table, and lets the claims of the killed expire.
    let mut random = Random(99);
    let running = "SELECT COALESCE(max(count), 0) FROM (SELECT count(*) FROM job \
         WHERE locked_until > clock_timestamp() AND completed_at IS NULL GROUP BY tenant_id) AS running";
    let left = "SELECT count(*) FROM job WHERE completed_at IS NULL AND failed_at IS NULL";
    loop {
        shared.tried.notified().await;
        let tries = shared.tries.load(Ordering::Relaxed);
        assert!(tries < 10_000, "some rows are never claimed");
        let most = db.count(running).await;
        assert!(most <= limit, "{most} rows of one value are running");
        if random.below(20) == 0 {
            db.run(
                "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
                 AND datname = current_database() AND query LIKE '%advisory%' ORDER BY random() LIMIT 1) AS killed",
            )
            .await;
        }
        if db.count(left).await == 0 {
            break;
        }
        let gone = shared.gone.lock().unwrap().join("', '");
        db.run(&format!(
            "UPDATE job SET locked_until = clock_timestamp() WHERE locked_until > clock_timestamp() \
             AND split_part(locked_by, '#', 1) IN ('{gone}')"
        ))
        .await;
    }
    shared.is_over.store(true, Ordering::Relaxed);
    workers.join_all().await;
    let most = shared.most.load(Ordering::Relaxed);
    assert_eq!(i64::from(most), limit, "it is used, and not exceeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn random_workers_with_kills_never_exceed_one() {
    random_workers(1, |job: &One| job.tenant_id.clone()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_workers_with_kills_never_exceed_two() {
    random_workers(2, |job: &Two| job.tenant_id.clone()).await;
}
