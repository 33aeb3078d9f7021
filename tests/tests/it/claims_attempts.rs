//! Jobs that are scheduled, counted, retried with a pause, and fail for good.

use advisory_runtime::blocking;
use advisory_runtime::claim::{self, Claim, Claimed, End, State};
use advisory_tests::bookings::execute;
use advisory_tests::claims::{self, failure, is_failure};
use advisory_tests::statements::{explain, names};
use advisory_tests::{Database, Proxy};
use diesel::prelude::*;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use std::time::Duration;

diesel::table! {
    job (id) {
        id -> BigInt,
        run_at -> Timestamptz,
        attempts -> SmallInt,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
        completed_at -> Nullable<Timestamptz>,
        failed_at -> Nullable<Timestamptz>,
        error_message -> Nullable<Text>,
    }
}

#[derive(Debug, Queryable, Selectable, Claim)]
#[diesel(table_name = job)]
#[claim(ttl = "5m", run_at, attempts, max_attempts = 3, backoff = "1m..90s")]
struct Job {
    id: i64,
    attempts: i16,
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = job)]
#[claim(run_at, attempts)]
struct Forever {
    id: i64,
}

/// A row that comes back when it is done.
#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = job)]
#[claim(run_at, attempts, max_attempts = 2, completed_at = "none")]
struct Repeated {
    id: i64,
}

/// So many jobs that are due, the first one for the longest.
async fn jobs(count: u32) -> Database {
    let db = Database::create().await;
    db.run(&format!(
        "CREATE TABLE job (id int8 PRIMARY KEY, run_at timestamptz NOT NULL, attempts int2 NOT NULL DEFAULT 0, \
             locked_until timestamptz, locked_by text, completed_at timestamptz, failed_at timestamptz, error_message text); \
         INSERT INTO job SELECT id, now() - interval '1 hour' + id * interval '1 second' FROM generate_series(1, {count}) AS id; {}",
        claim::indexes::<Job>().concat()
    ))
    .await;
    db
}

async fn next(conn: &mut AsyncPgConnection) -> Option<Claimed<Job>> {
    claims::first(conn).await
}

async fn state_of(conn: &mut AsyncPgConnection, id: i64) -> State {
    let state = job::table.find(id).select(claim::state::<Job>());
    state.get_result(conn).await.unwrap()
}

async fn due(db: &Database) {
    db.run("UPDATE job SET run_at = now() - interval '1 minute' WHERE run_at > now()")
        .await;
}

async fn expire(db: &Database, since: &str) {
    let expired = format!(
        "UPDATE job SET locked_until = clock_timestamp() - interval '{since}' WHERE locked_until IS NOT NULL"
    );
    db.run(&expired).await;
}

async fn clock(db: &Database) -> i64 {
    db.count("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8")
        .await
}

async fn fail(db: &Database, job: &Claimed<Job>, after: Option<Duration>) {
    let body = async { Err::<(), _>(failure("no such file")) };
    let run = claim::run(&db.bb8(2).await, job, End::Retry { after }, body).await;
    assert!(is_failure(&run.unwrap_err()));
}

#[tokio::test]
async fn a_scheduled_job_is_claimed_when_it_is_due() {
    let db = jobs(2).await;
    let mut conn = db.connect().await;
    db.run("UPDATE job SET run_at = now() + interval '1 hour' WHERE id = 1")
        .await;
    assert_eq!(state_of(&mut conn, 1).await, State::Scheduled);
    assert_eq!(next(&mut conn).await.unwrap().id, 2);
    assert!(next(&mut conn).await.is_none(), "the other is not due");
    let counts = claim::counts::<Job, _>(&mut conn).await.unwrap();
    assert_eq!((counts.scheduled, counts.running), (1, 1));
    let by_hand = claims::by_key::<Job>(&mut conn, 1).await;
    let by_hand = by_hand.expect("it is there whenever it is due");
    claim::release(&mut conn, &by_hand).await.unwrap();
    due(&db).await;
    assert_eq!(next(&mut conn).await.unwrap().id, 1);
}

/// Without it, a job that always fails would stop the queue.
#[tokio::test]
async fn a_failed_job_goes_behind_the_others() {
    let db = jobs(3).await;
    let mut conn = db.connect().await;
    let mut tried = Vec::new();
    while let Some(job) = next(&mut conn).await {
        tried.push(job.id);
        fail(&db, &job, None).await;
        assert_eq!(state_of(&mut conn, job.id).await, State::Retrying);
    }
    assert_eq!(tried, [1, 2, 3]);
    let counts = claim::counts::<Job, _>(&mut conn).await.unwrap();
    assert_eq!((counts.retrying, counts.available), (3, 0));
}

#[tokio::test]
async fn pauses_double_with_jitter_up_to_the_longest() {
    let db = jobs(40).await;
    let mut conn = db.connect().await;
    for (attempt, least, most) in [(1, 30, 60), (2, 45, 90)] {
        let jobs = claims::load::<Job>(&mut conn, 40).await;
        assert_eq!(jobs.len(), 40);
        let before = clock(&db).await;
        for job in &jobs {
            assert_eq!(job.attempts, attempt);
            claim::retry(&mut conn, job, "no", None).await.unwrap();
        }
        let pauses = format!(
            "SELECT count(*) FROM job WHERE run_at BETWEEN to_timestamp(0) + interval '{before} us' + interval '{least} seconds' \
             AND clock_timestamp() + interval '{most} seconds'"
        );
        assert_eq!(db.count(&pauses).await, 40, "{attempt}");
        assert!(db.count("SELECT count(DISTINCT run_at) FROM job").await > 30);
        due(&db).await;
    }
}

#[tokio::test]
async fn the_last_failed_attempt_fails_a_job_with_its_message() {
    let db = jobs(1).await;
    let mut conn = db.connect().await;
    for attempt in 1..=3 {
        let job = next(&mut conn).await.unwrap();
        assert_eq!(job.attempts, attempt);
        fail(&db, &job, None).await;
        due(&db).await;
    }
    assert_eq!(state_of(&mut conn, 1).await, State::Failed);
    assert!(next(&mut conn).await.is_none());
    let failed = "SELECT count(*) FROM job WHERE error_message = 'no such file' AND attempts = 3 \
         AND failed_at IS NOT NULL AND locked_until IS NULL AND locked_by IS NULL";
    assert_eq!(db.count(failed).await, 1);
}

#[tokio::test]
async fn a_job_that_kills_its_worker_fails_and_lets_the_next_pass() {
    let db = jobs(2).await;
    let mut conn = db.connect().await;
    for attempt in 1..=3 {
        let job = next(&mut conn).await.unwrap();
        assert_eq!((job.id, job.attempts), (1, attempt));
        expire(&db, "1 hour").await;
    }
    // The same call fails the first one and claims the second.
    assert_eq!(next(&mut conn).await.unwrap().id, 2);
    assert_eq!(state_of(&mut conn, 1).await, State::Failed);
    let told = "SELECT count(*) FROM job WHERE id = 1 AND error_message LIKE '%its claim expired%'";
    assert_eq!(db.count(told).await, 1);
    db.run("UPDATE job SET attempts = 3").await;
    expire(&db, "1 hour").await;
    let by_key = blocking::claim::next::<Job>("worker").key(2);
    assert!(by_key.first(&mut db.establish()).unwrap().is_none());
    assert_eq!(state_of(&mut conn, 2).await, State::Failed);
}

#[tokio::test]
async fn a_pause_can_be_given_and_a_release_counts_nothing() {
    let db = jobs(1).await;
    let mut conn = db.connect().await;
    let job = next(&mut conn).await.unwrap();
    claim::release(&mut conn, &job).await.unwrap();
    let job = next(&mut conn).await.unwrap();
    assert_eq!(job.attempts, 1);
    let after = Some(Duration::from_secs(7200));
    fail(&db, &job, after).await;
    let later = "SELECT count(*) FROM job WHERE run_at BETWEEN now() + interval '119 minutes' AND now() + interval '121 minutes' \
         AND error_message = 'no such file' AND failed_at IS NULL";
    assert_eq!(db.count(later).await, 1);
    due(&db).await;
    let job = next(&mut conn).await.unwrap();
    assert_eq!(job.attempts, 2);
    claim::fail(&mut conn, &job, "for good").await.unwrap();
    assert_eq!(state_of(&mut conn, 1).await, State::Failed);
}

#[tokio::test]
async fn a_count_stops_at_its_columns_largest_value() {
    let db = jobs(1).await;
    let mut conn = db.connect().await;
    db.run("UPDATE job SET attempts = 32767").await;
    let job = claims::first::<Forever>(&mut conn).await;
    assert_eq!(job.unwrap().id, 1);
    assert_eq!(db.count("SELECT attempts::int8 FROM job").await, 32767);
    expire(&db, "1 hour").await;
    let job = claims::first::<Forever>(&mut conn).await;
    let before = clock(&db).await;
    let retried = claim::retry(&mut conn, &job.unwrap(), "no", None).await;
    retried.unwrap();
    let pauses = format!(
        "SELECT count(*) FROM job WHERE run_at BETWEEN to_timestamp(0) + interval '{before} us' + interval '5 minutes' \
         AND clock_timestamp() + interval '10 minutes'"
    );
    assert_eq!(db.count(&pauses).await, 1, "ten minutes by default");
}

/// Rows for later are behind the ones that are due in the index, and the scan ends there.
#[tokio::test]
async fn scheduled_rows_are_not_read() {
    let db = jobs(10).await;
    db.run(
        "INSERT INTO job SELECT id, now() + id * interval '1 second' FROM generate_series(1000, 51000) AS id",
    )
    .await;
    db.run("VACUUM ANALYZE job").await;
    let mut conn = db.connect().await;
    let all = claims::load::<Job>(&mut conn, 100).await;
    assert_eq!(all.len(), 10);
    let generic = "SET plan_cache_mode = force_generic_plan";
    execute(&mut conn, generic).await.unwrap();
    let names = names(&mut conn, "SKIP LOCKED").await;
    let execute = format!("EXECUTE {}(100, 'worker#')", names[0]);
    let plan = explain(&mut conn, "EXPLAIN ANALYZE", &execute).await;
    assert!(plan.contains("Index Cond: (run_at <= "), "{plan}");
    assert!(!plan.contains("Seq Scan on job"), "{plan}");
}

#[test]
fn a_state_knows_when_a_job_runs() {
    let now = 2;
    let state =
        |run_at, attempts| State::at(None, None, None, &now).with_run_at(run_at, attempts, &now);
    assert_eq!(state(Some(3), 0), State::Scheduled);
    assert_eq!(state(Some(3), 1), State::Retrying);
    assert_eq!(state(Some(2), 1), State::Available);
    assert_eq!(state(None, 1), State::Available);
    let running = State::at(Some(3), None, None, &now).with_run_at(Some(3), 1, &now);
    assert_eq!(running, State::Running);
}

#[tokio::test]
async fn an_expired_claim_waits_for_its_backoff() {
    let db = jobs(1).await;
    let mut conn = db.connect().await;
    drop(next(&mut conn).await.unwrap());
    // The backoff is between a half of a minute and the whole.
    expire(&db, "20 seconds").await;
    assert!(next(&mut conn).await.is_none());
    let by_hand = claims::by_key::<Job>(&mut conn, 1).await;
    claim::release(&mut conn, &by_hand.unwrap()).await.unwrap();
    drop(next(&mut conn).await.unwrap());
    expire(&db, "91 seconds").await;
    assert_eq!(next(&mut conn).await.unwrap().attempts, 3);
}

/// One of them may be the one that ended its process with the others.
#[tokio::test]
async fn at_most_one_expired_row_is_claimed_among_others() {
    let db = jobs(6).await;
    let mut conn = db.connect().await;
    let first = claims::load::<Job>(&mut conn, 4).await;
    assert_eq!(first.len(), 4);
    expire(&db, "1 hour").await;
    let mut claimed = Vec::new();
    for expected in [3, 1, 1, 1, 0] {
        let jobs = claims::load::<Job>(&mut conn, 6).await;
        assert_eq!(jobs.len(), expected, "{claimed:?}");
        claimed.extend(jobs.iter().map(|job| job.id));
    }
    claimed.sort_unstable();
    assert_eq!(claimed, [1, 2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn a_completed_row_that_comes_back_begins_at_no_attempt() {
    let db = jobs(1).await;
    let mut conn = db.connect().await;
    for _ in 0..4 {
        let job = claims::first::<Repeated>(&mut conn).await;
        let job = job.expect("it comes back");
        assert_eq!(job.id, 1);
        claim::complete(&mut conn, &job).await.unwrap();
        assert_eq!(db.count("SELECT attempts::int8 FROM job").await, 0);
    }
}

#[tokio::test]
async fn a_row_without_an_attempt_left_says_so_and_keeps_its_last_error() {
    let db = jobs(2).await;
    let mut conn = db.connect().await;
    db.run("UPDATE job SET attempts = 7, error_message = 'disk full' WHERE id = 1")
        .await;
    assert_eq!(next(&mut conn).await.unwrap().id, 2);
    let told = "SELECT count(*) FROM job WHERE id = 1 AND failed_at IS NOT NULL AND attempts = 7 \
         AND error_message = 'no attempt is left: 7 of 3; the last error: disk full'";
    assert_eq!(db.count(told).await, 1);
}

#[tokio::test]
async fn rows_without_an_attempt_left_fail_together() {
    let db = jobs(500).await;
    db.run("UPDATE job SET attempts = 3 WHERE id < 500").await;
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    proxy.reset();
    assert_eq!(next(&mut conn).await.unwrap().id, 500);
    let round_trips = proxy.round_trips();
    assert!(round_trips < 10, "{round_trips}");
    let failed = "SELECT count(*) FROM job WHERE failed_at IS NOT NULL";
    assert_eq!(db.count(failed).await, 499);
}

/// Whatever a row refuses, the rows behind it are claimed.
#[tokio::test]
async fn a_row_that_cannot_fail_as_the_library_says_stops_no_queue() {
    for (refusal, failed) in [
        ("ALTER COLUMN error_message TYPE varchar(10)", 1),
        ("ADD CHECK (error_message !~ 'expired')", 1),
        ("ADD CHECK (failed_at IS NULL)", 0),
    ] {
        let db = jobs(2).await;
        db.run(&format!("ALTER TABLE job {refusal}")).await;
        db.run("UPDATE job SET attempts = 3, locked_by = 'dead#', locked_until = now() - interval '1 hour' WHERE id = 1")
            .await;
        let mut conn = db.connect().await;
        assert_eq!(next(&mut conn).await.expect(refusal).id, 2, "{refusal}");
        let count = "SELECT count(*) FROM job WHERE id = 1 AND failed_at IS NOT NULL";
        assert_eq!(db.count(count).await, failed, "{refusal}");
    }
}
