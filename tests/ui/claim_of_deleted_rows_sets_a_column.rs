#![allow(unused)]
use advisory_runtime::claim::{self, Claim, Claimed};
use diesel::prelude::*;
use diesel_async::AsyncPgConnection;

diesel::table! {
    jobs (id) {
        id -> BigInt,
        run_at -> Timestamptz,
        tries -> Integer,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
    }
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = jobs)]
#[claim(completed_at = "delete")]
struct Job {
    id: i64,
}

async fn done(conn: &mut AsyncPgConnection, job: &Claimed<Job>) -> Result<(), claim::Error> {
    claim::end(job).set(jobs::tries.eq(1)).complete(conn).await
}

fn main() {}
