//! Tables of jobs.

use super::cluster::Cluster;
use advisory_runtime::claim::{Claim, Schema};
use diesel::prelude::*;

macro_rules! job_table {
    ($module:ident, $table:ident, $($claim:tt)*) => {
        pub(super) mod $module {
            use super::*;
            diesel::table! {
                $table (tenant_id, id) {
                    tenant_id -> BigInt,
                    id -> BigInt,
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
            #[diesel(table_name = $table)]
            #[claim(key = (tenant_id, id), ttl = "5m", run_at, attempts, $($claim)*)]
            pub(in super::super) struct Job {
                pub(in super::super) tenant_id: i64,
                pub(in super::super) id: i64,
            }
        }
    };
}

job_table!(ordinary, citus_job,);
job_table!(effect, citus_effect_job,);
job_table!(freed, citus_freed_job,);
job_table!(other, citus_other_job,);
job_table!(limited, citus_other_job, per = "tenant_id", limit = 1);

pub(super) async fn create(cluster: &Cluster, table: &str, jobs: u32) {
    cluster
        .run(&format!(
            "DROP TABLE IF EXISTS {table}; \
             CREATE TABLE {table} (tenant_id int8 NOT NULL, id int8 NOT NULL, PRIMARY KEY (tenant_id, id)); \
             INSERT INTO {table} SELECT id % 7, id FROM generate_series(1, {jobs}) AS id"
        ))
        .await;
    let mut conn = cluster.coordinator.connect().await;
    let up = Schema::of(table).per("tenant_id").up();
    diesel_async::SimpleAsyncConnection::batch_execute(&mut conn, &up)
        .await
        .unwrap();
}
