//! The behaviour of locked functions on a real PostgreSQL, a module a behaviour.
//!
//! One binary, because each would link Diesel again. Every test has a database of its own on the process's one server.
#![allow(
    clippy::unwrap_used,
    reason = "a helper of a test that cannot go on fails the test"
)]
#![allow(
    clippy::large_futures,
    reason = "several locked calls and their observers in one test"
)]

mod alerts;
mod arguments;
mod as_released;
mod blocking;
mod blocking_commit;
mod blocking_hold;
mod blocking_in_async;
mod blocking_isolation;
mod blocking_nesting;
mod blocking_owned;
mod blocking_panics;
mod blocking_polls;
mod blocking_queue;
mod blocking_session;
mod blocking_waits;
mod bookings;
mod cancel;
mod claims;
mod claims_end;
mod claims_exclusion;
mod claims_plan;
mod claims_pooler;
mod claims_run;
mod closed_connection;
mod commit;
mod connections;
mod cost;
mod drops;
mod error_page;
mod errors;
mod every_poll;
mod every_poll_pools;
mod every_poll_rows;
mod exclusion;
mod guide;
mod guide_screens;
mod hold;
mod hold_black_hole;
mod hold_settings;
mod holders;
mod holding;
mod hygiene;
mod idle;
mod index_build;
mod isolation;
mod keys;
mod lease;
mod lease_attribute;
mod lease_busy;
mod lease_complete;
mod lease_crash;
mod lease_fence;
mod lease_held;
mod lease_lead;
mod lease_locked_row;
mod lease_pooler;
mod lease_restarts;
mod lease_roles;
mod lease_stopped;
mod lease_stress;
mod lease_table;
mod lease_tokens;
mod lock_table;
mod managers;
mod mid_transaction;
mod migrations;
mod monitor;
mod monitor_names;
mod monitor_roles;
mod nesting;
mod operators;
mod order;
mod order_leases;
mod owned;
mod permits;
mod pgpool;
mod polls;
mod pooler;
mod pooler_waits;
mod postgres;
mod postgres_locks;
mod postgres_settings;
mod postgres_snapshots;
mod postgres_timeouts;
mod query_comment;
mod round_trips;
mod runtime_gone;
mod search_path;
mod session;
mod session_bodies;
mod session_counts;
mod several;
mod shared;
mod standby;
mod stopped;
mod test_transactions;
mod testing;
mod testing_leases;
mod trail;
mod waits;
