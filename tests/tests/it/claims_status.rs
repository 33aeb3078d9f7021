//! Columns of the user's that claims and their ends set, rows that refuse an end, and triggers that
//! replace one.

use advisory_runtime::claim::{self, Claim, Claimed, End, Error, Worker};
use advisory_tests::bookings::in_transaction;
use advisory_tests::{Database, assert_matches, claims};
use diesel::prelude::*;
use diesel_async::AsyncPgConnection;
use std::time::Duration;

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

#[tokio::test]
async fn the_last_attempt_of_a_row_sets_what_a_failure_sets() {
    let db = errands(3).await;
    db.run("UPDATE errand SET most = 1 WHERE id < 3").await;
    let mut conn = db.connect().await;
    let job = next(&mut conn).await.unwrap();
    let later = claim::end(&job).set(errand::status.eq("later"));
    later.retry(&mut conn, "busy", None).await.unwrap();
    is(
        &db,
        1,
        "status = 'failed' AND failed_at IS NOT NULL AND error_message = 'busy'",
    )
    .await;
    // Its worker dies.
    let dies = async |conn: &mut AsyncPgConnection| {
        let id = next(conn).await.unwrap().id;
        db.run("UPDATE errand SET locked_until = now() - interval '1 hour' WHERE locked_by IS NOT NULL")
            .await;
        id
    };
    assert_eq!(dies(&mut conn).await, 2);
    for _ in 0..3 {
        assert_eq!(
            dies(&mut conn).await,
            3,
            "no number of attempts is the last"
        );
    }
    is(
        &db,
        2,
        "status = 'failed' AND failed_at IS NOT NULL AND attempts = 1",
    )
    .await;
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
        assert_matches!(
            claim::complete(&mut conn, &job).await,
            Err(Error::Lost { .. })
        );
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
    assert_matches!(
        claim::complete(&mut conn, &job).await,
        Err(Error::CommitUnknown { .. })
    );
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
