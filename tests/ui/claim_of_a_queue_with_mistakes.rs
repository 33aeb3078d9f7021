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
#[claim(max_attempts = 0, backoff = "10m..10s", retries = 3)]
struct Job {
    id: i64,
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = jobs)]
#[claim(max_attempts = 5, run_at = "next_attempt_at", backoff = "10s")]
struct Other {
    id: i64,
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = jobs)]
#[claim(failed_at = "delete", order = "users.name", max_attempts = "tries")]
struct Third {
    id: i64,
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = jobs)]
#[claim(completed_at = "delete", completed = tries.eq(0))]
struct Fourth {
    id: i64,
}

fn main() {}
