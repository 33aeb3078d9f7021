//! Claims of some of a table's rows, and claims that set columns of the user's.

use advisory_runtime::blocking;
use advisory_runtime::claim::{self, Claim, Claimed, End};
use advisory_tests::{Database, claims};
use diesel::prelude::*;

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

/// There is no `run_at`. Rows with fewer attempts come first, so a failed row comes after the others.
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
    let running_rows =
        "SELECT count(*) FROM task WHERE status = 'running' AND locked_by IS NOT NULL";
    assert_eq!(db.count(running_rows).await, 3);
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
        let work = async { Err::<(), _>(claim::Error::from(diesel::result::Error::NotFound)) };
        let retry = End::Retry { after: None };
        claim::run(&pool, &job, retry, work).await.unwrap_err();
    }
    assert_eq!(tried, [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8]);
    let failed = "SELECT count(*) FROM task WHERE failed_at IS NOT NULL AND attempts = 2";
    assert_eq!(db.count(failed).await, 8);
}
