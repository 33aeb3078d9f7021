//! Jobs by hand: `SELECT … FOR UPDATE SKIP LOCKED` in a transaction that is open for the whole job,
//! with diesel-async.

use crate::rivals::SMALL;
use crate::rivals::diesel_async::connect;
use crate::side::{Open, Operation};
use diesel::prelude::*;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

diesel::table! {
    hand_jobs (id) {
        id -> BigInt,
        tenant_id -> BigInt,
        run_at -> Timestamptz,
        attempts -> Integer,
        completed_at -> Nullable<Timestamptz>,
    }
}

#[diesel::declare_sql_function]
extern "SQL" {
    fn pg_try_advisory_xact_lock(key: diesel::sql_types::BigInt) -> diesel::sql_types::Bool;
}

/// A table with `pending` rows of 100 tenants, and `done` rows.
pub(crate) fn table(name: &str, pending: u32, done: u32) -> String {
    format!(
        "CREATE TABLE {name} (id bigint PRIMARY KEY, tenant_id bigint NOT NULL, \
         run_at timestamptz NOT NULL, attempts integer NOT NULL DEFAULT 0, \
         locked_until timestamptz, locked_by text, completed_at timestamptz, \
         failed_at timestamptz, error_message text); \
         INSERT INTO {name} (id, tenant_id, run_at, completed_at) \
         SELECT i, i % 100, now() - interval '1 day' + i * interval '1 ms', \
         CASE WHEN i <= {done} THEN now() END FROM generate_series(1, {done} + {pending}) AS i"
    )
}

pub(crate) fn up(pending: u32, done: u32) -> String {
    let table = table("hand_jobs", pending, done);
    let index =
        "CREATE INDEX hand_jobs_pending ON hand_jobs (run_at, id) WHERE completed_at IS NULL";
    format!("{table}; {index}")
}

/// A small table instead of an earlier one.
pub(crate) fn set_up() -> [String; 2] {
    let up = up(SMALL, 0);
    [
        format!("DROP TABLE IF EXISTS hand_jobs; {up}"),
        "VACUUM ANALYZE hand_jobs".to_owned(),
    ]
}

/// BEGIN, SELECT, UPDATE, COMMIT. With `PER`, one job of each tenant at a time: the tenant is
/// locked for as long as the job.
pub(crate) struct Transaction<const PER: bool>(pub(crate) AsyncPgConnection);

impl<const PER: bool> Operation for Transaction<PER> {
    async fn operate(&mut self) {
        use hand_jobs::{attempts, completed_at, id, run_at, tenant_id};
        let done = self.0.transaction(async |conn| {
            let first = hand_jobs::table
                .filter(completed_at.is_null())
                .filter(run_at.le(diesel::dsl::now))
                .order((run_at, id))
                .select(id)
                .limit(1)
                .for_update()
                .skip_locked();
            let job: i64 = if PER {
                let free = hand_jobs::table
                    .filter(completed_at.is_null())
                    .filter(run_at.le(diesel::dsl::now))
                    .filter(pg_try_advisory_xact_lock(tenant_id));
                let first = free.order((run_at, id)).select(id).limit(1);
                first.for_update().skip_locked().get_result(conn).await?
            } else {
                first.get_result(conn).await?
            };
            diesel::update(hand_jobs::table.find(job))
                .set((completed_at.eq(diesel::dsl::now), attempts.eq(attempts + 1)))
                .execute(conn)
                .await
        });
        let done: QueryResult<usize> = done.await;
        assert_eq!(done, Ok(1), "a job");
    }
}

impl<const PER: bool> Open for Transaction<PER> {
    async fn open(url: &str, _: i64) -> Self {
        let mut conn = connect(url).await;
        for sql in set_up() {
            conn.batch_execute(&sql).await.expect("the table");
        }
        Self(conn)
    }
}
