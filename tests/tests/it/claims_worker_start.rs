//! Which rows the claims of a worker read: they begin where the last one ended, and go on where a
//! claim has not looked at all values of a limit.

use crate::tenant_jobs::{One, jobs};
use advisory_runtime::claim::{self, Claim, Claimed, Error, Worker};
use advisory_tests::Database;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::timeout;

diesel::table! {
    parcel (id) {
        id -> BigInt,
        kind -> Text,
        run_at -> Timestamptz,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
        completed_at -> Nullable<Timestamptz>,
    }
}

#[derive(Debug, Queryable, Selectable, Claim)]
#[diesel(table_name = parcel)]
#[claim(ttl = "5m", run_at)]
struct Parcel {
    id: i64,
}

diesel::define_sql_function! {
    /// Counts the rows that a claim reads: it costs less than the other conditions, so it is
    /// evaluated first. A claim that reads the first row takes long.
    fn looked(id: BigInt) -> Bool;
}

/// 2,000 rows that no worker wants, and `count` rows after them.
async fn parcels(count: u32) -> Database {
    let db = Database::create().await;
    db.run(
        "CREATE TABLE parcel (id int8 PRIMARY KEY, kind text NOT NULL, run_at timestamptz NOT NULL DEFAULT now(), \
         locked_until timestamptz, locked_by text, completed_at timestamptz); \
         CREATE SEQUENCE looks; \
         CREATE FUNCTION looked(id int8) RETURNS bool LANGUAGE plpgsql COST 0.0001 AS $$ \
         BEGIN \
             PERFORM nextval('looks'); \
             IF id = 1 THEN PERFORM pg_sleep(0.005); END IF; \
             RETURN true; \
         END $$",
    )
    .await;
    db.run(&format!(
        "INSERT INTO parcel SELECT id, CASE WHEN id <= 2000 THEN 'other' ELSE 'wanted' END, now() - interval '1 hour' \
         FROM generate_series(1, {}) AS id",
        2_000 + count
    ))
    .await;
    let indexes = claim::indexes::<Parcel>().concat();
    db.run(&format!("{indexes}; ANALYZE parcel")).await;
    db
}

#[tokio::test]
async fn claims_do_not_read_again_what_an_earlier_one_has_passed_over() {
    let db = parcels(400).await;
    let pool = db.bb8(3).await;
    let worker = Worker::new(&pool, "worker").concurrency(10).prefetch(0);
    let wanted = looked(parcel::id).and(parcel::kind.eq("wanted"));
    let worker = worker.filter(wanted).poll(Duration::from_secs(600));
    let ids = Mutex::new(Vec::new());
    let ran = worker.until_empty().run(async |job: Claimed<Parcel>| {
        ids.lock().unwrap().push(job.id);
        Ok::<_, Error>(())
    });
    ran.await.unwrap();
    let mut ids = ids.into_inner().unwrap();
    ids.sort_unstable();
    assert_eq!(ids, (2_001..=2_400).collect::<Vec<_>>());
    // The first claims read them, and the last ones, which find that there is nothing left. Without a
    // position each of some eighty claims would.
    let looks = db.count("SELECT last_value FROM looks").await;
    assert!(looks < 40_000, "{looks}");
}

#[tokio::test]
async fn a_row_that_comes_before_is_found_while_others_keep_coming() {
    let db = parcels(300).await;
    let pool = db.bb8(3).await;
    let worker = Worker::new(&pool, "worker").concurrency(10).prefetch(0);
    let wanted = looked(parcel::id).and(parcel::kind.eq("wanted"));
    let worker = worker.filter(wanted).poll(Duration::from_millis(100));
    let (next, first) = (Mutex::new(10_000), Mutex::new(false));
    let ran = worker.until_empty().run(async |job: Claimed<Parcel>| {
        if job.id == 2_001 {
            db.run("INSERT INTO parcel VALUES (0, 'wanted', now() - interval '2 hours')")
                .await;
        }
        *first.lock().unwrap() |= job.id == 0;
        // Others come until it is found.
        if !*first.lock().unwrap() {
            let ids = {
                let mut next = next.lock().unwrap();
                *next += 2;
                format!("({}, 'wanted'), ({}, 'wanted')", *next - 1, *next)
            };
            db.run(&format!("INSERT INTO parcel (id, kind) VALUES {ids}"))
                .await;
        }
        Ok::<_, Error>(())
    });
    let ran = timeout(Duration::from_secs(60), ran).await;
    ran.expect("the row is found").unwrap();
    assert!(*first.lock().unwrap());
}

/// A claim looks at the first rows, and at a few values if those in front are at their limit. Here
/// most values have no row that is due, so that a claim finds few.
#[tokio::test]
async fn a_worker_fills_its_slots_behind_a_backlog_that_is_at_its_limit() {
    const SLOTS: usize = 8;
    let db = jobs(&[("a", 6_000)]).await;
    db.run(
        "UPDATE job SET locked_until = now() + interval '1 hour', locked_by = 'other#1' WHERE id = 1; \
         INSERT INTO job (tenant_id, run_at) SELECT 'later ' || nth, now() + interval '1 day' FROM generate_series(1, 300) AS nth; \
         INSERT INTO job (tenant_id, run_at) SELECT 'due ' || nth, now() FROM generate_series(1, 40) AS nth",
    )
    .await;
    let pool = db.bb8(3).await;
    let (running, full) = (AtomicUsize::new(0), tokio::sync::Semaphore::new(0));
    let worker = Worker::new(&pool, "worker").concurrency(SLOTS);
    let worker = worker
        .poll(Duration::from_secs(600))
        .until(async { drop(full.acquire().await) });
    let ran = worker.run(async |_: Claimed<One>| {
        if running.fetch_add(1, Ordering::SeqCst) + 1 == SLOTS {
            full.close();
        }
        drop(full.acquire().await);
        Ok::<_, Error>(())
    });
    let ran = timeout(Duration::from_secs(30), ran).await;
    ran.expect("every slot has a row").unwrap();
}
