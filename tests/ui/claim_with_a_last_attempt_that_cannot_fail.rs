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
#[claim(attempts = tries, max_attempts = 5)]
struct Job {
    id: i64,
}

fn main() {}
