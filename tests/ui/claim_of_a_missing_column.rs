#![allow(unused)]
use advisory_runtime::claim::Claim;
use diesel::prelude::*;

diesel::table! {
    jobs (id) {
        id -> BigInt,
        priority -> Integer,
        tenant_id -> BigInt,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
    }
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = jobs)]
#[claim(order = "priorty desc", locked_by = worker)]
struct Ordered {
    id: i64,
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = jobs)]
#[claim(per = "tenant", limit = 1)]
struct Limited {
    id: i64,
}

fn main() {}
