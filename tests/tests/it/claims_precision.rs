//! A column with fewer digits than the clock rounds the end of a claim, and the worker knows.

use advisory_runtime::claim::{self, Claim, Claimed};
use advisory_tests::{Database, claims};
use diesel::prelude::*;
use std::time::{Duration, Instant};

diesel::table! {
    /// The names of its columns need quotes in a literal too.
    #[sql_name = "it's \\ a job"]
    job (id) {
        id -> BigInt,
        #[sql_name = "'until\\"]
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
    }
}

#[derive(Debug, Queryable, Selectable, Claim)]
#[diesel(table_name = job)]
#[claim(ttl = "2s")]
struct Job {
    id: i64,
}

/// How long before the expiry work is stopped.
const MARGIN: Duration = Duration::from_millis(200);
const TTL: Duration = Duration::from_secs(2);

async fn with_column(of_type: &str) -> Database {
    let db = Database::create().await;
    db.run(&format!(
        "CREATE DOMAIN whole AS timestamptz(0); \
         CREATE TABLE \"it's \\ a job\" (id int8 PRIMARY KEY, \"'until\\\" {of_type}, locked_by text); \
         INSERT INTO \"it's \\ a job\" VALUES (1); CREATE TABLE before (at timestamptz)"
    ))
    .await;
    db
}

async fn note(db: &Database) {
    db.run("DELETE FROM before; INSERT INTO before VALUES (clock_timestamp())")
        .await;
}

/// Checks that the process does not rely on the claim for longer than the row says.
async fn assert_not_later(db: &Database, job: &Claimed<Job>, case: &str) {
    let left = "SELECT (extract(epoch FROM \"'until\\\" - clock_timestamp()) * 1000000)::int8 FROM \"it's \\ a job\"";
    let left = db.count(left).await;
    let local = job.deadline().saturating_duration_since(Instant::now()) + MARGIN;
    let local = i64::try_from(local.as_micros()).unwrap();
    let is_sooner = local <= left.max(200_000);
    assert!(is_sooner, "{case}: {local} here, {left} at the server");
}

/// Checks that the claim lasts for its ttl from the recorded time until now, but for a half of a
/// unit.
async fn assert_lasts(db: &Database, unit: f64, case: &str) {
    let from = TTL.as_secs();
    let lasts = format!(
        "SELECT count(*) FROM \"it's \\ a job\", before WHERE \"'until\\\" >= at + interval '{from} s' - {unit} * interval '0.5 s' \
         AND \"'until\\\" <= clock_timestamp() + interval '{from} s' + {unit} * interval '0.5 s'"
    );
    assert_eq!(db.count(&lasts).await, 1, "{case}");
}

#[tokio::test]
async fn a_worker_knows_how_long_its_claim_lasts_whatever_its_column_keeps() {
    // The first one is a domain.
    for (of_type, unit) in [
        ("whole", 1.0),
        ("timestamptz(0)", 1.0),
        ("timestamptz(1)", 0.1),
        ("timestamptz(3)", 1e-3),
        ("timestamptz(5)", 1e-5),
        ("timestamptz(6)", 1e-6),
        ("timestamptz", 1e-6),
    ] {
        let db = with_column(of_type).await;
        let mut conn = db.connect().await;
        // Each time at another fraction of a second.
        for round in 0..10 {
            let case = format!("{of_type}, round {round}");
            note(&db).await;
            let job: Claimed<Job> = match round % 2 {
                0 => claims::first(&mut conn).await.unwrap(),
                _ => claims::by_key(&mut conn, 1).await.unwrap(),
            };
            assert_eq!(job.id, 1);
            assert_lasts(&db, unit, &case).await;
            assert_not_later(&db, &job, &case).await;
            db.run("SELECT pg_sleep(0.03)").await;
            note(&db).await;
            claim::renew(&mut conn, &job).await.unwrap();
            assert_lasts(&db, unit, &case).await;
            assert_not_later(&db, &job, &case).await;
            claim::release(&mut conn, &job).await.unwrap();
        }
    }
}
