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

async fn take(conn: &mut AsyncPgConnection) {
    claim::next::<String>("worker").first(conn).await.ok();
}

fn main() {}
