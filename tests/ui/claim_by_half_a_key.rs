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
#[claim(key = (tenant, id))]
struct Job {
    id: i64,
    tenant: i64,
}

async fn take(conn: &mut AsyncPgConnection) {
    claim::next::<Job>("worker").key(1_i64).first(conn).await.ok();
}

fn main() {}
