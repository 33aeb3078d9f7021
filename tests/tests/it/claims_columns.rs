//! Claims on tables as they are: a UUID instead of a name, times without a time zone or with fewer
//! digits than the clock, rows that are deleted when they are done.

use advisory_runtime::claim::{self, Claim, Claimed, End, Error, State};
use advisory_tests::statements::run;
use advisory_tests::{Database, assert_matches, claims};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use std::time::{Duration, Instant};
use uuid::Uuid;

diesel::table! {
    export (id) {
        id -> BigInt,
        claim_token -> Nullable<Uuid>,
        lease_until -> Nullable<Timestamp>,
        done_at -> Nullable<Timestamp>,
        seen_at -> Timestamp,
    }
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = export)]
#[claim(
    locked_by = claim_token,
    locked_until = lease_until,
    completed_at = done_at,
    ttl = "5m"
)]
struct Export {
    id: i64,
}

async fn exports() -> Database {
    let db = Database::create().await;
    db.run(
        "CREATE TABLE export (id int8 PRIMARY KEY, claim_token uuid, lease_until timestamp, \
             done_at timestamp, seen_at timestamp NOT NULL DEFAULT 'epoch'); \
         INSERT INTO export VALUES (1), (2)",
    )
    .await;
    db
}

async fn next(conn: &mut AsyncPgConnection) -> Option<Claimed<Export>> {
    claims::first(conn).await
}

#[tokio::test]
async fn a_uuid_says_which_claim_holds_a_row() {
    let db = exports().await;
    let mut conn = db.connect().await;
    let job = next(&mut conn).await.unwrap();
    let token: Uuid = job.locked_by().parse().unwrap();
    let stored = format!("SELECT count(*) FROM export WHERE claim_token = '{token}'");
    assert_eq!(db.count(&stored).await, 1);
    claim::renew(&mut conn, &job).await.unwrap();
    claim::complete(&mut conn, &job).await.unwrap();
    let zombie = next(&mut conn).await.unwrap();
    db.run("UPDATE export SET claim_token = gen_random_uuid()")
        .await;
    let lost = claim::complete(&mut conn, &zombie).await;
    assert_matches!(lost, Err(Error::Lost { .. }));
    let found = claims::by_key::<Export>(&mut conn, zombie.id).await;
    assert!(found.is_none(), "held");
}

/// Under any setting of the session's time zone, which differs between two workers.
#[tokio::test]
async fn times_without_a_zone_are_in_utc() {
    let db = exports().await;
    let (mut east, mut west) = (db.connect().await, db.connect().await);
    for (conn, zone) in [(&mut east, "Asia/Tokyo"), (&mut west, "America/New_York")] {
        run(conn, &format!("SET TimeZone = '{zone}'")).await;
    }
    let first = next(&mut east).await.unwrap();
    let second = next(&mut west).await.unwrap();
    assert_ne!(first.id, second.id);
    assert!(next(&mut east).await.is_none(), "each is held");
    assert!(next(&mut west).await.is_none(), "each is held");
    let lasts = "SELECT count(*) FROM export WHERE lease_until AT TIME ZONE 'UTC' \
         BETWEEN clock_timestamp() + interval '4 minutes' AND clock_timestamp() + interval '5 minutes'";
    assert_eq!(db.count(lasts).await, 2);
    assert!(first.deadline() > Instant::now() + first.ttl() / 2);
    claim::renew(&mut west, &first).await.unwrap();
    let seen = claim::end(&first).set(export::seen_at.eq(claim::now()));
    seen.complete(&mut west).await.unwrap();
    let done = "SELECT count(*) FROM export WHERE done_at - (now() AT TIME ZONE 'UTC') < interval '1 minute' \
         AND seen_at - (now() AT TIME ZONE 'UTC') BETWEEN interval '-1 minute' AND interval '1 minute'";
    assert_eq!(db.count(done).await, 1);
    let counts = claim::counts::<Export, _>(&mut east).await.unwrap();
    assert_eq!((counts.completed, counts.running), (1, 1));
    db.run("UPDATE export SET lease_until = (now() - interval '1 minute') AT TIME ZONE 'UTC'")
        .await;
    let left = export::table.filter(export::done_at.is_null());
    let states = left.select(claim::state::<Export>()).load(&mut east).await;
    assert_eq!(states, Ok(vec![State::Expired]));
}

diesel::table! {
    outbox (id) {
        id -> BigInt,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
    }
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = outbox)]
#[claim(completed_at = "delete", ttl = "1s")]
struct Outbox {
    id: i64,
}

async fn outbox() -> Database {
    let db = Database::create().await;
    db.run(
        "CREATE TABLE outbox (id int8 PRIMARY KEY, locked_until timestamptz, locked_by text); \
         INSERT INTO outbox SELECT generate_series(1, 3)",
    )
    .await;
    db
}

const LEFT: &str = "SELECT count(*) FROM outbox";

#[tokio::test]
async fn a_done_row_is_deleted_while_it_is_claimed() {
    let db = outbox().await;
    let (mut conn, pool) = (db.connect().await, db.bb8(2).await);
    let row = claims::first::<Outbox>(&mut conn).await;
    claim::complete(&mut conn, &row.unwrap()).await.unwrap();
    assert_eq!(db.count(LEFT).await, 2);
    let row = claims::first::<Outbox>(&mut conn).await.unwrap();
    let result: Result<(), Error> = claim::run(&pool, &row, End::Fail, async { Ok(()) }).await;
    result.unwrap();
    assert_eq!(db.count(LEFT).await, 1);
    let row = claims::first::<Outbox>(&mut conn).await.unwrap();
    db.run("UPDATE outbox SET locked_by = 'another#'").await;
    for lost in [
        claim::complete(&mut conn, &row).await,
        claim::delete(&mut conn, &row).await,
    ] {
        assert_matches!(lost, Err(Error::Lost { .. }));
    }
    assert_eq!(db.count(LEFT).await, 1, "it is another worker's");
}

#[tokio::test]
async fn a_deletion_that_is_rolled_back_is_made_up_for() {
    let db = outbox().await;
    let (mut conn, pool) = (db.connect().await, db.bb8(2).await);
    let mut own = db.connect().await;
    let row = claims::by_key::<Outbox>(&mut conn, 2).await.unwrap();
    let result: Result<(), Error> = claim::run(&pool, &row, End::Fail, async {
        claims::roll_back(&mut own, async |conn| claim::delete(conn, &row).await).await;
        Ok(())
    })
    .await;
    result.unwrap();
    assert_eq!(db.count(&format!("{LEFT} WHERE id = 2")).await, 0);
    assert_eq!(row.id, 2);
}

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
