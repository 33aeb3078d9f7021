//! The outbox: workers claim its letters and send them, one of a house at a time.

use advisory_runtime::claim::Claim;
use diesel::prelude::*;

diesel::table! {
    outbox (id) {
        id -> BigInt,
        house -> Text,
        #[sql_name = "due"]
        run_at -> Timestamptz,
        attempts -> Integer,
        locked_until -> Nullable<Timestamptz>,
        claimed_by -> Nullable<Text>,
        sent_at -> Nullable<Timestamptz>,
        failed_at -> Nullable<Timestamptz>,
    }
}

/// A letter of the outbox. It is sent once for each attempt.
#[derive(Debug, Queryable, Selectable, Claim)]
#[diesel(table_name = outbox)]
#[claim(
    locked_by = claimed_by,
    completed_at = sent_at,
    run_at,
    attempts,
    max_attempts = 5,
    ttl = "5m",
    per = "house",
    limit = 1
)]
pub struct Letter {
    pub id: i64,
}
