//! The jobs of the load: a queue with attempts, and a limit for each tenant.

use crate::absence::TTL;
use advisory_runtime::claim::Claim;
use diesel::prelude::*;
use std::time::Duration;

diesel::table! {
    stress.job (id) {
        id -> BigInt,
        tenant -> BigInt,
        fails -> Integer,
        label -> Text,
        run_at -> Timestamptz,
        attempts -> Integer,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
        completed_at -> Nullable<Timestamptz>,
        failed_at -> Nullable<Timestamptz>,
        error_message -> Nullable<Text>,
    }
}

/// The last attempt.
pub(crate) const ATTEMPTS: i32 = 3;
/// A job with this many failures aborts its process.
pub(crate) const ABORTS: i32 = 99;
/// Some works take this long, so that their claims are renewed.
pub(crate) const LONG: Duration = TTL.saturating_add(Duration::from_millis(300));

#[derive(Clone, Debug, Queryable, Selectable, QueryableByName, Claim)]
#[diesel(table_name = job)]
#[claim(
    ttl = "600ms",
    renew = "150ms",
    run_at,
    attempts,
    max_attempts = 3,
    backoff = "10ms..40ms",
    per = "tenant",
    limit = 2
)]
pub(crate) struct Job {
    pub(crate) id: i64,
    pub(crate) tenant: i64,
    /// How many of its attempts fail.
    pub(crate) fails: i32,
    /// Its column's type changes while workers run.
    #[expect(dead_code, reason = "a claim has to read it")]
    pub(crate) label: String,
    pub(crate) attempts: i32,
}
