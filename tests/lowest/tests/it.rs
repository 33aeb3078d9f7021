//! The tests by behaviour whose files compile with every version: `conn.transaction(async |conn| …)` does since diesel-async 0.9.
#![allow(
    clippy::unwrap_used,
    reason = "a helper of a test that cannot go on fails the test"
)]
#![allow(
    clippy::large_futures,
    reason = "several locked calls and their observers in one test"
)]
#![allow(dead_code, reason = "some helpers are for files that are not here")]

#[path = "../../tests/it/blocking.rs"]
mod blocking;
#[path = "../../tests/it/blocking_hold.rs"]
mod blocking_hold;
#[path = "../../tests/it/blocking_panics.rs"]
mod blocking_panics;
#[path = "../../tests/it/blocking_queue.rs"]
mod blocking_queue;
#[path = "../../tests/it/blocking_session.rs"]
mod blocking_session;
#[path = "../../tests/it/calls.rs"]
mod calls;
#[path = "../../tests/it/cancel.rs"]
mod cancel;
#[path = "../../tests/it/claims.rs"]
mod claims;
#[path = "../../tests/it/claims_table.rs"]
mod claims_table;
#[path = "../../tests/it/connections.rs"]
mod connections;
#[path = "../../tests/it/drops.rs"]
mod drops;
#[path = "../../tests/it/errors.rs"]
mod errors;
#[path = "../../tests/it/every_poll.rs"]
mod every_poll;
#[path = "../../tests/it/every_poll_rows.rs"]
mod every_poll_rows;
#[path = "../../tests/it/holding.rs"]
mod holding;
#[path = "../../tests/it/hygiene.rs"]
mod hygiene;
#[path = "../../tests/it/keys.rs"]
mod keys;
#[path = "../../tests/it/lease.rs"]
mod lease;
#[path = "../../tests/it/lease_attribute.rs"]
mod lease_attribute;
#[path = "../../tests/it/lease_busy.rs"]
mod lease_busy;
#[path = "../../tests/it/lease_held.rs"]
mod lease_held;
#[path = "../../tests/it/lease_row.rs"]
mod lease_row;
#[path = "../../tests/it/lock_table.rs"]
mod lock_table;
#[path = "../../tests/it/managers.rs"]
mod managers;
#[path = "../../tests/it/many_keys.rs"]
mod many_keys;
#[path = "../../tests/it/monitor.rs"]
mod monitor;
#[path = "../../tests/it/nesting.rs"]
mod nesting;
#[path = "../../tests/it/operators.rs"]
mod operators;
#[path = "../../tests/it/pooler.rs"]
mod pooler;
#[path = "../../tests/it/pooler_transactions.rs"]
mod pooler_transactions;
#[path = "../../tests/it/session.rs"]
mod session;
#[path = "../../tests/it/several.rs"]
mod several;
#[path = "../../tests/it/stopped.rs"]
mod stopped;
#[path = "../../tests/it/sync_job.rs"]
mod sync_job;
#[path = "../../tests/it/testing.rs"]
mod testing;
#[path = "../../tests/it/wait_ends.rs"]
mod wait_ends;
