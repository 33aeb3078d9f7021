#![allow(unused)]
use advisory_runtime::claim::{self, Claim, Claimed};
use diesel::prelude::*;
use diesel_async::AsyncPgConnection;

diesel::table! {
    jobs (id) {
        id -> BigInt,
        tenant -> BigInt,
        priority -> Integer,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
        completed_at -> Nullable<Timestamptz>,
        note -> Text,
    }
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = jobs)]
#[claim(
    ordr = "priority",
    order = "priority descending",
    key = "id",
    ttl = 30,
    renew = "never",
    locked_by = "worker",
    completed_at,
    completed_at = "nothing",
    ttl = "5m"
)]
struct Job {
    id: i64,
}

fn main() {}
