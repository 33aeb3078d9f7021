//! A table of mails to send.

use advisory_runtime::Pool;
use advisory_runtime::claim::{Claim, Claimed, Error, Schema, Worker};
use advisory_tests::Database;
use advisory_tests::statements::run;
use diesel::prelude::*;
use diesel_async::AsyncPgConnection;
use std::time::Duration;

diesel::table! {
    mail (id) {
        id -> BigInt,
        tenant_id -> BigInt,
        run_at -> Timestamptz,
        attempts -> Integer,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
        completed_at -> Nullable<Timestamptz>,
        failed_at -> Nullable<Timestamptz>,
        error_message -> Nullable<Text>,
    }
}

#[derive(Debug, Queryable, Selectable, Claim)]
#[diesel(table_name = mail)]
#[claim(ttl = "5m", run_at, attempts, max_attempts = 2, backoff = "1h..1h")]
pub(crate) struct Mail {
    pub(crate) id: i64,
    pub(crate) error_message: Option<String>,
}

#[derive(Debug, Queryable, Selectable, Claim)]
#[diesel(table_name = mail)]
#[claim(ttl = "5m", run_at, per = "tenant_id", limit = 1)]
pub(crate) struct Limited {
    pub(crate) id: i64,
}

/// Mails whose claims are short, and are renewed often. Those that wait are given back after a
/// second.
#[derive(Debug, Queryable, Selectable, Claim)]
#[diesel(table_name = mail)]
#[claim(ttl = "4s", renew = "100ms", run_at, attempts)]
pub(crate) struct Brief {
    pub(crate) id: i64,
}

pub(crate) async fn mails(count: u32) -> Database {
    let db = Database::create().await;
    db.run("CREATE TABLE mail (id bigserial PRIMARY KEY, tenant_id int8 NOT NULL DEFAULT 1)")
        .await;
    let schema = Schema::of("mail").per("tenant_id");
    // Twice, as on a table that has some of it.
    db.run(&schema.up()).await;
    db.run(&schema.up()).await;
    db.run(&format!(
        "INSERT INTO mail (id) SELECT generate_series(1, {count})"
    ))
    .await;
    db
}

pub(crate) async fn until_empty(db: &Database, what: &str, left: &str) {
    let sql = format!("SELECT id::text FROM mail WHERE {left}");
    db.until_empty(Duration::from_secs(120), what, &sql).await;
}

pub(crate) const OPEN: &str = "completed_at IS NULL AND failed_at IS NULL";

pub(crate) async fn mails_that(db: &Database, condition: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM mail WHERE {condition}");
    db.count(&sql).await
}

/// Locks the table until the connection's transaction ends, for claims and for what ends them.
pub(crate) async fn lock_table(conn: &mut AsyncPgConnection) {
    run(conn, "BEGIN; LOCK TABLE mail IN ACCESS EXCLUSIVE MODE").await;
}

/// Waits until the listener of all workers of a pool listens.
pub(crate) async fn until_listening(db: &Database) {
    let listens = "SELECT FROM pg_stat_activity WHERE datname = current_database() \
         AND query = 'LISTEN advisory_claim' AND state = 'idle'";
    db.until_some("a listener", listens).await;
}

pub(crate) async fn work<T: Claim, P>(worker: Worker<'_, T, P>)
where
    P: Pool + Clone + Send + 'static,
{
    let ran = worker.run(async |_: Claimed<T>| Ok::<_, Error>(()));
    ran.await.unwrap();
}
