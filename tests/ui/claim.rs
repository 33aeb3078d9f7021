#![allow(unused)]
use advisory_runtime::claim::Claim;
use diesel::prelude::*;

diesel::table! {
    jobs (id) {
        id -> BigInt,
        tenant -> BigInt,
        batch -> Nullable<BigInt>,
        run_at -> Timestamptz,
        tries -> Integer,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
        completed_at -> Nullable<Timestamptz>,
        note -> Text,
    }
}

macro_rules! jobs {
    ($($name:ident: $args:tt)*) => { $(
        #[derive(Queryable, Selectable, Claim)]
        #[diesel(table_name = jobs)]
        #[claim $args]
        struct $name {
            id: i64,
            tenant: i64,
        }
    )* };
}

jobs! {
    EightMistakes: (
        ordr = "priority",
        order = "priority descending",
        key = "id",
        ttl = 30,
        renew = "never",
        locked_by = "worker",
        completed_at,
        completed_at = "nothing",
        ttl = "5m"
    )
    RenewedTooRarely: (ttl = "1m", renew = "45s")
    MisspeltKey: (key = (tenant, idd))
    NoAttempts: (max_attempts = 0, backoff = "10m..10s", retries = 3)
    QuotedColumn: (max_attempts = 5, run_at = "next_attempt_at", backoff = "10s")
    DeletedAfterAFailure: (failed_at = "delete", order = "users.name", max_attempts = "tries")
    Deleted: (completed_at = "delete", completed = tries.eq(0))
    WithoutLimit: (per = "tenant")
    WithoutPer: (limit = 2)
    Expression: (per = "payload ->> 'tenant'", limit = 0)
}

#[derive(Claim)]
#[diesel(table_name = jobs)]
struct Borrows<'a> {
    id: i64,
    note: &'a str,
}

#[derive(Claim)]
#[diesel(table_name = jobs)]
enum Enum {
    One(i64),
}

#[derive(Claim)]
struct WithoutATable {
    id: i64,
}

#[derive(Claim)]
#[diesel(table_name = jobs)]
struct WithoutTheKey {
    tenant: i64,
}

fn main() {}
