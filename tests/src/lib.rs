//! The PostgreSQL servers of the tests and examples, and observers of their state.
//!
//! The server is `ADVISORY_TEST_DATABASE_URL`, or one of our own, started once per process
//! (`server`) from binaries of this system (`binaries`) or of a package registry (`download`).
//! [`Database`] is one fresh database on it, with an observer. [`Proxy`] runs in front of it and
//! counts messages, or cuts connections. [`Bouncer`] pools its connections, as [`Odyssey`] does,
//! and [`Pgpool`] sends statements that only read to a standby. [`Standby`] is a server that
//! replicates another one, and [`OwnServer`] one that a test may stop or crash. Everything that is
//! started ends with the process (`lifeline`).
//!
//! What tests share is in the public modules, by subject: what they do in a database ([`bookings`],
//! [`blocking`], [`leases`], [`claims`]), how a call ends or waits ([`dropped_call`], [`futures`],
//! [`holds`], [`polls`]), and how the server or the process shows it ([`held_keys`],
//! [`monitor`], [`settings`], [`lock_order`]). None has a lock site or a claim: those would be in
//! the inventory of every program that links this library.
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "a helper of a test that cannot go on fails the test"
)]

mod account;
mod administrator;
mod assertions;
mod binaries;
pub mod blocking;
pub mod bookings;
mod bouncer;
pub mod campaigns;
pub mod claims;
mod database;
mod download;
pub mod dropped_call;
mod error;
pub mod failover;
pub mod futures;
mod fuzz;
mod guardian;
pub mod held_keys;
pub mod holds;
pub mod leases;
mod lifeline;
pub mod lock_names;
pub mod lock_order;
pub mod monitor;
mod observe;
pub mod odd_texts;
mod odyssey;
mod own_server;
pub mod pauses;
pub mod permits;
mod pgpool;
pub mod player;
pub mod polls;
pub mod poolers;
pub mod postgres;
mod proxy;
mod server;
pub mod settings;
mod standby;
pub mod statements;
mod wire;
pub mod written_migrations;

pub use assertions::Ended;
pub use bouncer::Bouncer;
pub use database::{Database, pid_of};
pub use error::HarnessError;
pub use fuzz::fuzz;
pub use guardian::Guardian;
pub use observe::{AdvisoryLock, LockedKey};
pub use odyssey::Odyssey;
pub use own_server::OwnServer;
pub use pgpool::Pgpool;
pub use proxy::Proxy;
pub use server::{keep_data_on_disk, owns_server, share_template};
pub use standby::Standby;

/// With the value `off`, this variable disables the library's checks of debug builds.
pub const DEBUG_CHECKS: &str = "ADVISORY_DEBUG_CHECKS";

/// Makes a backslash in a literal an escape, if the server supports that: PostgreSQL 19 has only
/// standard literals.
pub const BACKSLASH_ESCAPES: &str = "SELECT set_config(name, 'off', false) FROM pg_settings \
     WHERE current_setting('server_version_num')::int < 190000 AND name IN ('standard_conforming_strings', 'escape_string_warning')";

/// Returns whether the library's checks of debug builds run in this process. Without them, a debug
/// build behaves like a release build.
pub fn debug_checks_are_on() -> bool {
    cfg!(debug_assertions) && std::env::var_os(DEBUG_CHECKS).is_none_or(|value| value != "off")
}

/// Reports that a test cannot run here, or fails if it must: `ADVISORY_TEST_REQUIRE` lists what
/// must not be skipped.
pub fn left_out(what: &str, why: &str) {
    let required = std::env::var("ADVISORY_TEST_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(' ').any(|one| one == what),
        "`{what}` is required, and left out: {why}"
    );
    eprintln!("left out: {why}");
}
