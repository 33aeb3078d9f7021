//! Claims of some of a table's rows, columns of the user's that claims and their ends set, rows that
//! refuse an end, and triggers that replace one.

use advisory_runtime::blocking;
use advisory_runtime::claim::{self, Claim, Claimed, End, Error, Worker};
use advisory_tests::bookings::in_transaction;
use advisory_tests::{Database, assert_matches, claims};
use diesel::prelude::*;
use diesel_async::AsyncPgConnection;
use std::time::Duration;

diesel::table! {
    task (id) {
        id -> BigInt,
        kind -> Text,
        size -> Nullable<Integer>,
        status -> Text,
        attempts -> Integer,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
        completed_at -> Nullable<Timestamptz>,
        failed_at -> Nullable<Timestamptz>,
    }
}

/// A table without `run_at`. A row that was tried is claimed after those that were not.
#[derive(Debug, Queryable, Selectable, Claim)]
#[diesel(table_name = task)]
#[claim(attempts, max_attempts = 2, order = "attempts, id")]
struct Task {
    id: i64,
    status: String,
}

async fn tasks() -> Database {
    let db = Database::create().await;
    db.run(
        "CREATE TABLE task (id int8 PRIMARY KEY, kind text NOT NULL, size int4, status text NOT NULL DEFAULT 'new', \
             attempts int4 NOT NULL DEFAULT 0, locked_until timestamptz, locked_by text, completed_at timestamptz, \
             failed_at timestamptz); \
         INSERT INTO task (id, kind, size) SELECT id, CASE id % 2 WHEN 0 THEN 'mail' ELSE 'sms' END, nullif(id, 4) \
         FROM generate_series(1, 8) AS id",
    )
    .await;
    db
}

fn ids(mut tasks: Vec<Claimed<Task>>) -> Vec<i64> {
    tasks.sort_by_key(|task| task.id);
    tasks.iter().map(|task| task.id).collect()
}

#[tokio::test]
async fn a_worker_claims_the_rows_that_it_can_do() {
    let db = tasks().await;
    let mut conn = db.connect().await;
    let kinds = vec!["mail".to_owned(), "fax".to_owned()];
    let mail = task::kind.eq_any(&kinds);
    let next = || claim::next::<Task>("worker");
    let first = next().filter(mail).first(&mut conn).await;
    assert_eq!(first.unwrap().unwrap().id, 2);
    // NULL, or one of two, is in parentheses of its own.
    let small = task::size.lt(4).or(task::id.eq(6));
    let small = next().filter(small).load(&mut conn, 9).await;
    assert_eq!(ids(small.unwrap()), [1, 3, 6]);
    let fax = next().filter(task::kind.eq("fax"));
    assert!(fax.first(&mut conn).await.unwrap().is_none());
    let mut conn = db.establish();
    let next = |kind| blocking::claim::next::<Task>("worker").filter(task::kind.eq(kind));
    let rest = next("mail").load(&mut conn, 9);
    assert_eq!(ids(rest.unwrap()), [4, 8]);
    let last = next("sms").first(&mut conn);
    assert_eq!(last.unwrap().unwrap().id, 5);
}

#[tokio::test]
async fn a_claim_sets_a_status_of_the_users() {
    let db = tasks().await;
    let mut conn = db.connect().await;
    let running = task::status.eq("running");
    let next = || claim::next::<Task>("worker").set(running);
    let job = next().first(&mut conn).await.unwrap().unwrap();
    assert_eq!((job.id, &*job.status), (1, "running"));
    let done = claim::end(&job).set(task::status.eq("done"));
    done.complete(&mut conn).await.unwrap();
    let batch = next().load(&mut conn, 3).await;
    assert_eq!(ids(batch.unwrap()), [2, 3, 4]);
    let rows = "SELECT count(*) FROM task WHERE status = 'running' AND locked_by IS NOT NULL";
    assert_eq!(db.count(rows).await, 3);
    let mut blocking = db.establish();
    let next = || blocking::claim::next::<Task>("worker").set(running);
    let job = next().first(&mut blocking);
    assert_eq!(job.unwrap().unwrap().id, 5);
    let batch = next().load(&mut blocking, 9);
    assert_eq!(ids(batch.unwrap()), [6, 7, 8]);
    // A column of the claim's own is the claim's.
    db.run("UPDATE task SET locked_until = NULL, locked_by = NULL")
        .await;
    let own = claim::next::<Task>("worker").set(task::locked_by.eq("me"));
    let error = own.first(&mut conn).await.unwrap_err();
    assert!(error.to_string().contains("locked_by"), "{error}");
}

#[tokio::test]
async fn rows_without_a_time_are_retried_in_turn() {
    let db = tasks().await;
    let (mut conn, pool) = (db.connect().await, db.bb8(2).await);
    let mut tried = Vec::new();
    while let Some(job) = claims::first::<Task>(&mut conn).await {
        tried.push(job.id);
        let work = async { Err::<(), _>(Error::from(diesel::result::Error::NotFound)) };
        let retry = End::Retry { after: None };
        claim::run(&pool, &job, retry, work).await.unwrap_err();
    }
    assert_eq!(tried, [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8]);
    let failed = "SELECT count(*) FROM task WHERE failed_at IS NOT NULL AND attempts = 2";
    assert_eq!(db.count(failed).await, 8);
}

diesel::table! {
    errand (id) {
        id -> BigInt,
        status -> Text,
        most -> Nullable<Integer>,
        attempts -> Integer,
        run_at -> Timestamptz,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
        completed_at -> Nullable<Timestamptz>,
        failed_at -> Nullable<Timestamptz>,
        error_message -> Nullable<Text>,
    }
}

#[derive(Debug, Queryable, Selectable, Claim)]
#[diesel(table_name = errand)]
#[claim(run_at, attempts, max_attempts = most, completed = status.eq("done"), failed = status.eq("failed"))]
struct Errand {
    id: i64,
    status: String,
}

async fn errands(count: u32) -> Database {
    let db = Database::create().await;
    db.run(&format!(
        "CREATE TABLE errand (id int8 PRIMARY KEY, status text NOT NULL DEFAULT 'new', most int4, attempts int4 NOT NULL DEFAULT 0, \
             run_at timestamptz NOT NULL DEFAULT now(), locked_until timestamptz, locked_by text, completed_at timestamptz, \
             failed_at timestamptz, error_message text); \
         INSERT INTO errand SELECT generate_series(1, {count})"
    ))
    .await;
    db
}

async fn next(conn: &mut AsyncPgConnection) -> Option<Claimed<Errand>> {
    let running = errand::status.eq("running");
    let next = claim::next("worker").filter(errand::id.gt(0));
    next.set(running).first(conn).await.unwrap()
}

async fn is(db: &Database, id: i64, condition: &str) {
    let count = format!("SELECT count(*) FROM errand WHERE id = {id} AND {condition}");
    assert_eq!(db.count(&count).await, 1, "{condition}");
}

#[tokio::test]
async fn every_end_sets_columns_of_the_users() {
    let db = errands(4).await;
    let mut conn = db.connect().await;
    for (id, is_so) in [
        (1, "completed_at IS NOT NULL"),
        (2, "error_message = 'busy' AND run_at > now()"),
        (3, "error_message = 'gone' AND failed_at IS NOT NULL"),
        (4, "locked_by IS NULL AND attempts = 0"),
    ] {
        let job = next(&mut conn).await.unwrap();
        assert_eq!((job.id, &*job.status), (id, "running"));
        let end = claim::end(&job).set(errand::status.eq("mine"));
        let ended = match id {
            1 => end.complete(&mut conn),
            2 => end.retry(&mut conn, "busy", None),
            3 => end.fail(&mut conn, "gone"),
            _ => end.release(&mut conn),
        };
        ended.await.unwrap();
        is(&db, id, &format!("status = 'mine' AND {is_so}")).await;
    }
}

#[tokio::test]
async fn a_completed_row_sets_what_its_type_says_whoever_completes_it() {
    let db = errands(4).await;
    let (mut conn, pool) = (db.connect().await, db.bb8(2).await);
    let job = next(&mut conn).await.unwrap();
    claim::complete(&mut conn, &job).await.unwrap();
    let job = next(&mut conn).await.unwrap();
    in_transaction(&mut conn, async |conn| claim::complete(conn, &job).await)
        .await
        .unwrap();
    let job = next(&mut conn).await.unwrap();
    let body = async { Ok::<_, Error>(()) };
    claim::run(&pool, &job, End::Fail, body).await.unwrap();
    let worker = Worker::new(&pool, "worker").until_empty();
    let ran = worker.run(async |_: Claimed<Errand>| Ok::<_, Error>(()));
    ran.await.unwrap();
    for id in 1..=4 {
        is(&db, id, "status = 'done' AND completed_at IS NOT NULL").await;
    }
}

const FAILED: &str = "status = 'failed' AND failed_at IS NOT NULL";

#[tokio::test]
async fn the_last_attempt_of_a_row_sets_what_a_failure_sets() {
    let db = errands(3).await;
    db.run("UPDATE errand SET most = 1 WHERE id < 3").await;
    let mut conn = db.connect().await;
    let job = next(&mut conn).await.unwrap();
    let later = claim::end(&job).set(errand::status.eq("later"));
    later.retry(&mut conn, "busy", None).await.unwrap();
    is(&db, 1, &format!("{FAILED} AND error_message = 'busy'")).await;
    // Its worker dies.
    let dies = async |conn: &mut AsyncPgConnection| {
        let id = next(conn).await.unwrap().id;
        db.run("UPDATE errand SET locked_until = now() - interval '1 hour' WHERE locked_by IS NOT NULL")
            .await;
        id
    };
    assert_eq!(dies(&mut conn).await, 2);
    // No number of attempts is the last.
    for _ in 0..3 {
        assert_eq!(dies(&mut conn).await, 3);
    }
    is(&db, 2, &format!("{FAILED} AND attempts = 1")).await;
}

#[tokio::test]
async fn a_message_that_a_row_refuses_is_cut_or_left_out() {
    for (refusal, message) in [
        (
            "ALTER COLUMN error_message TYPE varchar(8)",
            "error_message = 'the disk'",
        ),
        (
            "ADD CHECK (length(error_message) < 110)",
            "error_message LIKE 'the disk%' AND length(error_message) = 100",
        ),
        (
            "ADD CHECK (error_message !~ 'disk')",
            "error_message IS NULL",
        ),
    ] {
        let db = errands(1).await;
        db.run(&format!("ALTER TABLE errand {refusal}")).await;
        let (mut conn, pool) = (db.connect().await, db.bb8(2).await);
        let job = next(&mut conn).await.unwrap();
        let long = format!("the disk of the second server is full: {}", "x".repeat(200));
        let body = async { Err::<(), _>(claims::failure(&long)) };
        claim::run(&pool, &job, End::Fail, body).await.unwrap_err();
        is(&db, 1, &format!("failed_at IS NOT NULL AND {message}")).await;
    }
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = errand)]
struct Archived {
    id: i64,
}

#[tokio::test]
async fn a_row_that_a_trigger_archives_is_ended() {
    let db = errands(3).await;
    db.run(
        "CREATE TABLE archive (id int8, at timestamptz); \
         CREATE FUNCTION archived() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             INSERT INTO archive VALUES (NEW.id, NEW.completed_at); DELETE FROM errand WHERE id = NEW.id; RETURN NULL; END $$; \
         CREATE TRIGGER archived BEFORE UPDATE ON errand FOR EACH ROW WHEN (NEW.completed_at IS NOT NULL) EXECUTE FUNCTION archived()",
    )
    .await;
    let mut conn = db.connect().await;
    for id in 1..=2 {
        let job = claims::first::<Archived>(&mut conn).await.unwrap();
        assert_eq!(job.id, id);
        claim::complete(&mut conn, &job).await.unwrap();
        assert!(job.is_finished());
        let again = claim::complete(&mut conn, &job).await;
        assert_matches!(again, Err(Error::Lost { .. }));
    }
    let job = claims::first::<Archived>(&mut conn).await.unwrap();
    in_transaction(&mut conn, async |conn| claim::complete(conn, &job).await)
        .await
        .unwrap();
    assert_eq!(db.count("SELECT count(at) FROM archive").await, 3);
}

/// The server then counts no changed row, but the row still has its claim.
#[tokio::test]
async fn an_end_that_a_new_trigger_undoes_is_not_reported_as_done() {
    #[derive(Queryable, Selectable, Claim)]
    #[diesel(table_name = errand)]
    struct Undone {
        id: i64,
    }
    let db = errands(2).await;
    let mut conn = db.connect().await;
    let job = claims::first::<Undone>(&mut conn).await.unwrap();
    // The process looks for triggers, and finds none.
    claim::complete(&mut conn, &job).await.unwrap();
    db.run(
        "CREATE FUNCTION undone() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$; \
         CREATE TRIGGER undone BEFORE UPDATE ON errand FOR EACH ROW WHEN (NEW.completed_at IS NOT NULL) EXECUTE FUNCTION undone()",
    )
    .await;
    let job = claims::first::<Undone>(&mut conn).await.unwrap();
    assert_eq!(job.id, 2);
    let undone = claim::complete(&mut conn, &job).await;
    assert_matches!(undone, Err(Error::CommitUnknown { .. }));
    is(&db, 2, "completed_at IS NULL").await;
}

#[tokio::test]
async fn a_pause_of_more_than_ten_years_is_refused() {
    let db = errands(1).await;
    let mut conn = db.connect().await;
    let job = next(&mut conn).await.unwrap();
    let after = Some(Duration::from_secs(11 * 366 * 24 * 60 * 60));
    let refused = claim::retry(&mut conn, &job, "no", after).await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("ten years"), "{error}");
    is(&db, 1, "locked_by IS NOT NULL").await;
}
