//! A table of jobs with priorities.

use advisory_runtime::claim::{self, Claim, Claimed, Error, State};
use advisory_tests::{Database, assert_matches, claims};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::fmt::Debug;

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

/// The same table, with claims that are short, but last longer than a busy machine is suspended.
#[derive(Debug, Queryable, Selectable, Claim)]
#[diesel(table_name = sync_jobs)]
#[claim(ttl = "4s", renew = "100ms")]
pub(crate) struct Brief {
    pub(crate) id: i64,
}

pub(crate) const SCHEMA: &str = "CREATE TABLE sync_jobs (id int8 PRIMARY KEY, priority int4 NOT NULL, created_at timestamptz NOT NULL, \
     locked_until timestamptz, locked_by text, completed_at timestamptz, failed_at timestamptz, error_message text)";

pub(crate) fn jobs(count: u32) -> String {
    format!(
        "INSERT INTO sync_jobs SELECT id, CASE id % 3 WHEN 0 THEN 10 ELSE 1 END, now() - id * interval '1 minute' \
         FROM generate_series(1, {count}) AS id"
    )
}

pub(crate) async fn database(count: u32) -> Database {
    let (db, jobs) = (Database::create().await, jobs(count));
    let indexes = claim::indexes::<SyncJob>().concat();
    db.run(&format!("{SCHEMA}; {jobs}; {indexes}")).await;
    db
}

pub(crate) async fn next(conn: &mut AsyncPgConnection) -> Claimed<SyncJob> {
    claims::first(conn).await.expect("there is a job")
}

pub(crate) async fn brief(conn: &mut AsyncPgConnection) -> Claimed<Brief> {
    claims::first(conn).await.unwrap()
}

pub(crate) async fn until(db: &Database, condition: &str) {
    let rows = format!("SELECT FROM sync_jobs WHERE {condition}");
    db.until_some(condition, &rows).await;
}

/// Waits until the claim lasts a second longer than it does now.
pub(crate) async fn renewed(db: &Database) {
    db.run("DROP TABLE IF EXISTS first; CREATE TABLE first AS SELECT locked_until FROM sync_jobs")
        .await;
    let later = "locked_until > (SELECT locked_until + interval '1 s' FROM first)";
    until(db, later).await;
}

/// Locks all rows until the connection's transaction ends.
pub(crate) async fn lock_rows(conn: &mut AsyncPgConnection) {
    let lock = "BEGIN; SELECT FROM sync_jobs FOR UPDATE";
    conn.batch_execute(lock).await.unwrap();
}

/// Makes all claims expire, as if their workers had been gone for long.
pub(crate) async fn expire(db: &Database) {
    db.run("UPDATE sync_jobs SET locked_until = clock_timestamp() - interval '1 second' WHERE locked_until IS NOT NULL")
        .await;
}

pub(crate) async fn state_of(conn: &mut AsyncPgConnection, id: i64) -> State {
    let state = sync_jobs::table.find(id).select(claim::state::<SyncJob>());
    state.get_result(conn).await.unwrap()
}

/// One job's row as text, to see that nothing has changed it.
pub(crate) async fn row(conn: &mut AsyncPgConnection, id: i64) -> String {
    let text = diesel::dsl::sql::<diesel::sql_types::Text>("sync_jobs::text");
    let row = sync_jobs::table.find(id).select(text);
    row.get_result(conn).await.unwrap()
}

pub(crate) fn assert_lost<R: Debug>(result: Result<R, Error>) {
    let error = result.unwrap_err();
    assert_matches!(&error, Error::Lost { claim, .. } if claim.starts_with("sync_jobs (worker#"));
}
