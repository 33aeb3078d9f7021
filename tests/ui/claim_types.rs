#![allow(unused)]
use advisory_runtime::claim::{self, Claim, Claimed};
use diesel::prelude::*;
use diesel_async::AsyncPgConnection;

diesel::table! {
    jobs (id) {
        id -> BigInt,
        tenant -> BigInt,
        batch -> Nullable<BigInt>,
        tries -> Integer,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
        note -> Text,
    }
}

diesel::table! { plain (id) { id -> BigInt, name -> Text } }

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = jobs)]
#[claim(locked_by = note, completed_at = tries)]
struct OtherTypes {
    id: i64,
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = jobs)]
#[claim(key = (tenant, batch))]
struct NullableKey {
    tenant: i64,
    batch: Option<i64>,
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = jobs)]
#[claim(attempts = locked_by, run_at = tries)]
struct CountedInAText {
    id: i64,
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = plain)]
struct WithoutLeaseColumns {
    id: i64,
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = jobs)]
#[claim(attempts = tries, max_attempts = 5)]
struct LastAttemptThatCannotFail {
    id: i64,
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = jobs)]
#[claim(completed_at = "delete")]
struct Job {
    id: i64,
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = jobs)]
#[claim(key = (tenant, id), completed_at = "delete")]
struct OfATenant {
    id: i64,
    tenant: i64,
}

async fn uses(conn: &mut AsyncPgConnection, job: &Claimed<Job>) {
    claim::next::<OfATenant>("worker").key(1_i64).first(conn).await.ok();
    claim::next::<String>("worker").first(conn).await.ok();
    claim::next::<Job>("worker").filter(plain::name.eq("Ada")).first(conn).await.ok();
    claim::fail(conn, job, "why").await.ok();
    claim::retry(conn, job, "no such file", None).await.ok();
    claim::end(job).set(jobs::tries.eq(1)).complete(conn).await.ok();
}

fn main() {}
