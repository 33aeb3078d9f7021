//! A table of jobs with priorities.

use advisory_runtime::claim::{self, Claim, Claimed, Error, State};
use advisory_tests::{Database, assert_matches};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};

diesel::table! {
    sync_jobs (id) {
        id -> BigInt,
        priority -> Integer,
        created_at -> Timestamptz,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
        completed_at -> Nullable<Timestamptz>,
        failed_at -> Nullable<Timestamptz>,
        error_message -> Nullable<Text>,
    }
}

#[derive(Debug, Queryable, Selectable, Claim)]
#[diesel(table_name = sync_jobs)]
#[claim(order = "priority desc, created_at", ttl = "5m", renew = "1m")]
pub(crate) struct SyncJob {
    pub(crate) id: i64,
    pub(crate) priority: i32,
}

pub(crate) const SCHEMA: &str = "CREATE TABLE sync_jobs (id int8 PRIMARY KEY, priority int4 NOT NULL, created_at timestamptz NOT NULL, \
     locked_until timestamptz, locked_by text, completed_at timestamptz, failed_at timestamptz, error_message text)";

/// Inserts this many jobs: later ones are older, and each third one is urgent.
pub(crate) fn jobs(count: u32) -> String {
    format!(
        "INSERT INTO sync_jobs SELECT id, CASE id % 3 WHEN 0 THEN 10 ELSE 1 END, now() - id * interval '1 minute' \
         FROM generate_series(1, {count}) AS id"
    )
}

/// A database with this many [`jobs`].
pub(crate) async fn database(count: u32) -> Database {
    let db = Database::create().await;
    db.run(SCHEMA).await;
    db.run(&jobs(count)).await;
    for sql in claim::indexes::<SyncJob>() {
        db.run(&sql).await;
    }
    db
}

pub(crate) async fn next(conn: &mut AsyncPgConnection) -> Claimed<SyncJob> {
    let job = claim::next("worker").first(conn).await.unwrap();
    job.expect("there is a job")
}

/// Makes all claims expire, as if their workers had been gone for long.
pub(crate) async fn expire(db: &Database) {
    db.run("UPDATE sync_jobs SET locked_until = clock_timestamp() - interval '1 second' WHERE locked_until IS NOT NULL")
        .await;
}

pub(crate) async fn state_of(conn: &mut AsyncPgConnection, id: i64) -> State {
    sync_jobs::table
        .find(id)
        .select(claim::state::<SyncJob>())
        .get_result(conn)
        .await
        .unwrap()
}

/// One job's row as text, to see that nothing has changed it.
pub(crate) async fn row(conn: &mut AsyncPgConnection, id: i64) -> String {
    let sql = format!("SELECT sync_jobs::text FROM sync_jobs WHERE id = {id}");
    let sql = format!("({sql})");
    diesel::select(diesel::dsl::sql::<diesel::sql_types::Text>(&sql))
        .get_result(conn)
        .await
        .unwrap()
}

pub(crate) fn assert_lost(result: Result<(), Error>) {
    let error = result.unwrap_err();
    assert_matches!(&error, Error::Lost { claim, .. } if claim.starts_with("sync_jobs (worker#"));
}
