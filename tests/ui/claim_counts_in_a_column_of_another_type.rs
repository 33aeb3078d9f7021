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
#[claim(attempts = locked_by, run_at = tries)]
struct Job {
    id: i64,
}

fn main() {}
