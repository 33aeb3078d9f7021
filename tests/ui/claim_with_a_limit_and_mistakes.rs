#![allow(unused)]
use advisory_runtime::claim::{self, Claim, Claimed};
use diesel::prelude::*;

diesel::table! {
    jobs (id) {
        id -> BigInt,
        tenant_id -> BigInt,
        batch -> Nullable<BigInt>,
        day -> Date,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
    }
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = jobs)]
#[claim(per = "tenant_id")]
struct WithoutLimit {
    id: i64,
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = jobs)]
#[claim(limit = 2)]
struct WithoutPer {
    id: i64,
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = jobs)]
#[claim(per = "payload ->> 'tenant'", limit = 0)]
struct Expression {
    id: i64,
}

fn main() {}
