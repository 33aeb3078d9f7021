#![allow(unused)]
use advisory_runtime::claim::{self, Claim, Claimed};
use diesel::prelude::*;

diesel::table! {
    jobs (id) {
        id -> BigInt,
        tenant_id -> BigInt,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
    }
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = jobs)]
#[claim(per = "tenant", limit = 1)]
struct Unknown {
    id: i64,
}

fn main() {}
