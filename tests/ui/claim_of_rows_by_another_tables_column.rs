#![allow(unused)]
use advisory_runtime::claim::{self, Claim};
use diesel::prelude::*;
use diesel_async::AsyncPgConnection;

diesel::table! { jobs (id) { id -> BigInt, locked_until -> Nullable<Timestamptz>, locked_by -> Nullable<Text> } }
diesel::table! { users (id) { id -> BigInt, name -> Text } }

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = jobs)]
struct Job {
    id: i64,
}

async fn of_ada(conn: &mut AsyncPgConnection) {
    claim::next::<Job>("worker").filter(users::name.eq("Ada")).first(conn).await.ok();
}

fn main() {}
