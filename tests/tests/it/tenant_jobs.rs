//! A table of jobs of which each tenant may have few at a time.

use advisory_runtime::claim::{self, Claim, Claimed};
use advisory_tests::{Database, claims};
use diesel::prelude::*;
use diesel_async::AsyncPgConnection;

diesel::table! {
    job (id) {
        id -> BigInt,
        tenant_id -> Text,
        run_at -> Timestamptz,
        attempts -> Integer,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
        completed_at -> Nullable<Timestamptz>,
        failed_at -> Nullable<Timestamptz>,
    }
}

#[derive(Debug, Queryable, Selectable, Claim)]
#[diesel(table_name = job)]
#[claim(
    ttl = "5m",
    run_at,
    attempts,
    max_attempts = 3,
    per = "tenant_id",
    limit = 1
)]
pub(crate) struct One {
    pub(crate) id: i64,
    pub(crate) tenant_id: String,
}

const TWO: u32 = 2;

#[derive(Debug, Queryable, Selectable, Claim)]
#[diesel(table_name = job)]
#[claim(ttl = "5m", run_at, per = tenant_id, limit = TWO)]
pub(crate) struct Two {
    pub(crate) id: i64,
    pub(crate) tenant_id: String,
}

pub(crate) async fn jobs(tenants: &[(&str, u32)]) -> Database {
    let db = Database::create().await;
    db.run(
        "CREATE TABLE job (id bigserial PRIMARY KEY, tenant_id text NOT NULL, run_at timestamptz NOT NULL, \
             attempts int4 NOT NULL DEFAULT 0, locked_until timestamptz, locked_by text, completed_at timestamptz, \
             failed_at timestamptz)",
    )
    .await;
    db.run(&claim::indexes::<One>().concat()).await;
    for (nth, (tenant, count)) in tenants.iter().enumerate() {
        db.run(&format!(
            "INSERT INTO job (tenant_id, run_at) SELECT '{tenant}', now() - interval '1 day' + {nth} * interval '1 minute' \
                 + nth * interval '1 millisecond' FROM generate_series(1, {count}) AS nth"
        ))
        .await;
    }
    db
}

pub(crate) async fn next(conn: &mut AsyncPgConnection) -> Option<Claimed<One>> {
    claims::first(conn).await
}

pub(crate) async fn by_key(conn: &mut AsyncPgConnection, id: i64) -> Option<Claimed<One>> {
    claims::by_key(conn, id).await
}
