//! What claims send is plain SQL that means the same when it is qualified, and names nothing that a
//! `search_path` could replace. It uses the index that the guide recommends, with one round trip
//! each.

use crate::sync_job::{SyncJob, database, next};
use advisory_runtime::claim::{self, Claim, Claimed};
use advisory_tests::bookings::in_transaction;
use advisory_tests::statements::{assert_qualified, explain, names, prepared, run};
use advisory_tests::{Database, Proxy, claims};
use diesel::prelude::*;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::time::Duration;

diesel::table! {
    parcel (depot, number) {
        depot -> Text,
        number -> Integer,
        run_at -> Timestamptz,
        attempts -> SmallInt,
        locked_until -> Nullable<Timestamp>,
        locked_by -> Nullable<Uuid>,
        completed_at -> Nullable<Timestamptz>,
        failed_at -> Nullable<Timestamptz>,
        error_message -> Nullable<Text>,
        status -> Nullable<Text>,
    }
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = parcel)]
#[claim(key = (depot, number), order = "depot desc, number", ttl = "5m", run_at, attempts, max_attempts = 3)]
struct Parcel {
    depot: String,
    number: i32,
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = parcel)]
#[claim(key = (depot, number), ttl = "5m", run_at, attempts, max_attempts = 3, per = "depot", limit = 40)]
struct OfDepot {
    depot: String,
    number: i32,
}

/// The same ends by the statement for several claims.
#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = parcel)]
#[claim(key = (depot, number), ttl = "5m", run_at, attempts, max_attempts = 3, completed = status.eq("done"), failed = status.eq("failed"))]
struct Told {
    depot: String,
    number: i32,
}

async fn each_end<T: claim::KeepsCompleted + claim::Fails + claim::Retries>(
    conn: &mut AsyncPgConnection,
) {
    let mut jobs = Vec::new();
    for _ in 0..7 {
        let job: Option<Claimed<T>> = claims::first(conn).await;
        jobs.push(job.unwrap());
    }
    claim::renew(conn, &jobs[0]).await.unwrap();
    claim::complete(conn, &jobs[0]).await.unwrap();
    claim::fail(conn, &jobs[1], "why").await.unwrap();
    claim::retry(conn, &jobs[2], "why", None).await.unwrap();
    let after = Some(Duration::from_secs(9));
    claim::retry(conn, &jobs[3], "why", after).await.unwrap();
    claim::release(conn, &jobs[4]).await.unwrap();
    claim::delete(conn, &jobs[5]).await.unwrap();
    claim::complete(conn, &jobs[5]).await.unwrap_err();
    let completed = in_transaction(conn, async |conn| claim::complete(conn, &jobs[6]).await);
    completed.await.unwrap();
    let several = claims::load::<T>(conn, 2).await;
    assert_eq!(several.len(), 2);
    claim::counts::<T, _>(conn).await.unwrap();
}

#[tokio::test]
async fn statements_mean_the_same_when_they_are_qualified() {
    let db = Database::create().await;
    db.run(
        "CREATE TABLE parcel (depot text, number int4, run_at timestamptz NOT NULL DEFAULT now(), attempts int2 NOT NULL DEFAULT 0, \
             locked_until timestamp, locked_by uuid, completed_at timestamptz, failed_at timestamptz, error_message text, status text, \
             PRIMARY KEY (depot, number)); \
         INSERT INTO parcel (depot, number) SELECT 'north', generate_series(1, 40)",
    )
    .await;
    let mut conn = db.connect().await;
    each_end::<Parcel>(&mut conn).await;
    each_end::<OfDepot>(&mut conn).await;
    each_end::<Told>(&mut conn).await;
    let by_key = claims::by_key::<Parcel>(&mut conn, ("north", 33)).await;
    assert_eq!(by_key.unwrap().number, 33);
    let by_key = claims::by_key::<OfDepot>(&mut conn, ("north", 34)).await;
    assert_eq!(by_key.unwrap().depot, "north");
    db.run("UPDATE parcel SET attempts = 3 WHERE number > 34")
        .await;
    drop(claims::load::<Told>(&mut conn, 9).await);
    let sent = prepared(&mut conn, "parcel").await;
    assert!(sent.len() > 20, "{}", sent.len());
    assert_qualified(&db, &sent).await;
}

#[tokio::test]
async fn claims_use_the_printed_index_under_a_generic_plan() {
    let db = database(200_000).await;
    db.run("ANALYZE sync_jobs").await;
    let mut conn = db.connect().await;
    drop(next(&mut conn).await);
    claims::load::<SyncJob>(&mut conn, 10).await;
    let job = claims::by_key::<SyncJob>(&mut conn, 7).await.unwrap();
    claim::renew(&mut conn, &job).await.unwrap();
    claim::complete(&mut conn, &job).await.unwrap();
    run(&mut conn, "SET plan_cache_mode = force_generic_plan").await;
    let names = names(&mut conn, "sync_jobs").await;
    assert_eq!(names.len(), 5);
    for (name, (values, index)) in names.iter().zip([
        ("'worker#'", "claim"),
        ("10, 'worker#'", "claim"),
        ("'worker#', 7", "pkey"),
        ("7, 'worker'", "pkey"),
        ("7, 'worker'", "pkey"),
    ]) {
        let execute = format!("EXECUTE {name}({values})");
        let plan = explain(&mut conn, "EXPLAIN", &execute).await;
        let scan = format!("Index Scan using sync_jobs_{index}");
        assert!(plan.contains(&scan), "{plan}");
        assert!(!plan.contains("Seq Scan"), "{plan}");
        assert!(!plan.contains("Sort"), "{plan}");
    }
}

#[tokio::test]
async fn each_is_one_round_trip_once_it_is_prepared() {
    let db = database(20).await;
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    for is_prepared in [false, true] {
        proxy.reset();
        let job = next(&mut conn).await;
        claim::renew(&mut conn, &job).await.unwrap();
        claim::complete(&mut conn, &job).await.unwrap();
        let job = next(&mut conn).await;
        claim::fail(&mut conn, &job, "why").await.unwrap();
        let job = next(&mut conn).await;
        claim::release(&mut conn, &job).await.unwrap();
        let id = job.id;
        claims::by_key::<SyncJob>(&mut conn, id).await;
        claims::load::<SyncJob>(&mut conn, 2).await;
        if is_prepared {
            assert_eq!(proxy.round_trips(), 9, "{:#?}", proxy.queries());
        }
    }
}

/// Names that differ only after the 63 bytes that PostgreSQL keeps of an index's name.
mod schema {
    diesel::table! {
        #[sql_name = "jobs_of_a_tenant_with_a_long_name_that_fills_almost_63_bytes_1"]
        one (id) {
            id -> BigInt,
            priority -> Integer,
            locked_until -> Nullable<Timestamptz>,
            locked_by -> Nullable<Text>,
            completed_at -> Nullable<Timestamptz>,
        }
    }
    diesel::table! {
        #[sql_name = "jobs_of_a_tenant_with_a_long_name_that_fills_almost_63_bytes_2"]
        two (id) {
            id -> BigInt,
            priority -> Integer,
            locked_until -> Nullable<Timestamptz>,
            locked_by -> Nullable<Text>,
            completed_at -> Nullable<Timestamptz>,
        }
    }
}

macro_rules! row {
    ($row:ident, $table:path, $($argument:tt)*) => {
        #[derive(Queryable, Selectable, Claim)]
        #[diesel(table_name = $table)]
        #[claim($($argument)*)]
        struct $row {
            #[allow(dead_code, reason = "the key")]
            id: i64,
        }
    };
}

row!(One, schema::one, order = "priority");
row!(Same, schema::one, order = "priority", ttl = "10m");
row!(Reversed, schema::one, order = "priority desc");
row!(
    Checkpoint,
    schema::one,
    order = "priority",
    completed_at = "none"
);
row!(Two, schema::two, order = "priority");

/// The indexes of these two tables, besides those of the keys.
const INDEXES: &str = "SELECT count(*) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid \
     WHERE NOT indisprimary AND relname LIKE 'jobs\\_of%' AND octet_length(relname) <= 63 AND indisvalid";

#[tokio::test]
async fn each_definition_of_a_claim_gets_its_index() {
    let db = Database::create().await;
    for end in 1..=2 {
        db.run(&format!(
            "CREATE TABLE jobs_of_a_tenant_with_a_long_name_that_fills_almost_63_bytes_{end} (id int8 PRIMARY KEY, \
             priority int4, locked_until timestamptz, locked_by text, completed_at timestamptz)"
        ))
        .await;
    }
    let all = [
        claim::indexes::<One>(),
        claim::indexes::<Reversed>(),
        claim::indexes::<Checkpoint>(),
        claim::indexes::<Two>(),
    ];
    for (nth, indexes) in all.iter().enumerate() {
        let [sql] = &indexes[..] else {
            panic!("{indexes:?}")
        };
        // Again, as if several branches had the same migration.
        for _ in 0..2 {
            db.run(sql).await;
            let made = db.count(INDEXES).await;
            assert_eq!(made, i64::try_from(nth).unwrap() + 1, "{sql}");
        }
    }
    assert_eq!(claim::indexes::<Same>(), all[0], "the same definition");
}

/// Every printed migration contains this name: with another one every table would get a second
/// index.
#[test]
fn the_name_of_an_index_never_changes() {
    assert_eq!(
        claim::indexes::<Checkpoint>(),
        [
            "CREATE INDEX IF NOT EXISTS \"jobs_of_a_tenant_with_a_long_name_that_fills_alm_claim_ee26416b\" \
             ON \"jobs_of_a_tenant_with_a_long_name_that_fills_almost_63_bytes_1\" (\"priority\");"
        ]
    );
}
