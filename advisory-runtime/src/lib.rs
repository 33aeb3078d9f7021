//! PostgreSQL advisory locks for Diesel, as an attribute on the function that needs one.
//!
//! ```
//! # #[cfg(feature = "diesel-async")]
//! # mod booking {
//! use advisory_runtime::advisory_lock;
//! use diesel::QueryResult;
//! use diesel_async::{AsyncPgConnection, RunQueryDsl};
//!
//! /// One booking per room and day.
//! #[advisory_lock(key = "<room>:<day>", scope = "xact")]
//! pub async fn book(conn: &mut AsyncPgConnection, room: i64, day: &str) -> QueryResult<usize> {
//!     // A transaction is open, and `pg_advisory_xact_lock` is held on the hash of "<room>:<day>".
//!     diesel::sql_query("INSERT INTO booking …").execute(conn).await
//! }
//! # }
//! ```
//!
//! If the function returns `Ok`, the transaction commits. If it returns `Err` or panics, or if its
//! future is dropped, the transaction rolls back. Either way the lock is released.
//!
//! Inside an open transaction, the call sets a savepoint instead: after `Ok` the lock is held until
//! the end of that transaction, and after `Err` it is released.
//!
//! # Where to begin
//!
//! The [`guide`] has a page for each question: [do I need a lock](guide::when_not_to_lock), [which
//! scope](guide::scopes), [which key](guide::keys), [how long to wait](guide::waiting), and so on.
//! [Guarantees](guide::guarantees) lists every promise, and [moving](guide::moving) is for programs
//! that already take locks.
//!
//! | to | use |
//! | --- | --- |
//! | lock a function | [`macro@advisory_lock`]: on `async fn` with diesel-async, on a plain `fn` with Diesel's own connections |
//! | lock without the attribute | a [`Request`] in [`xact`] or [`session`], or in their counterparts in [`blocking`] |
//! | store a lock, or move it to a task | [`session::acquire_owned`] |
//! | hold a key without a connection, or do a job once | [`macro@advisory_lease`], or [`lease`] without the attribute: expires unless it is renewed, and has a fencing token |
//! | require the lock in a function that writes | [`Holding`]: without the lock the call does not compile; see [`guide::holding`] |
//! | share the rows of a job table between workers | [`claim`]: one worker at a time has a row, for a limited time |
//! | run Diesel's migrations in one process at a time | [`migrations`] |
//! | see who holds a lock | [`monitor`], and [`guide::watching`] for spans and metrics |
//! | test locked functions | [`testing`], [`inventory::assert_no_collisions`], [`inventory::assert_lock_order`], and [`guide::testing`] |
//! | cancel waits on connections that require TLS | [`cancel::use_tls`], once |
//!
//! # Keys
//!
//! A key pattern is a text with placeholders, such as `"booking:<tenant_id>:<req.day>"`; its syntax
//! is documented at [`macro@advisory_lock`]. [`macro@LockKey`] declares a lock once, as a type, and
//! [`lock_key!`] returns the [`Key`] of a pattern. [`macro@KeyPart`] lets a newtype be part of a
//! key. [`sql_functions`] computes keys in SQL, and [`well_known`] has the keys of other tools.
//! Keys of one crate that can collide are a compile error; [`inventory`] checks the whole program.
//!
//! # Features
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `diesel-async` (on by default) | the attribute on `async fn`, [`xact`], [`session`], [`lease`], [`claim`] and [`Connection`], over `diesel_async::AsyncPgConnection` |
//! | `bb8`, `deadpool` | [`Connection`] for the connections of these pools |
//! | `postgres` | the attribute on `fn` and [`blocking`], [`blocking::claim`] included, over Diesel's `PgConnection` |
//! | `r2d2` | [`blocking::Connection`] for the connections of its pools |
//! | `uuid`, `chrono`, `time`, `jiff` | [`trait@KeyPart`] for `Uuid`, and for the dates, times and instants of these crates |
//! | `migrations` | [`migrations`]: Diesel's migrations, run by one process at a time |
//! | `tracing`, `metrics` | a span for each lock and events; counters and histograms: see [`guide::watching`] |
//! | `testing` | [`testing`], for tests of locked functions, and [`lease::Leases::in_memory`]; for `[dev-dependencies]` |
//! | `slim-inventory` | leaves the purpose, the file and the line of each lock out of a shipped program |
//! | none | [`trait@KeyPart`], [`trait@LockKey`] and [`inventory`], for crates that name keys and use no database |
//!
//! For blocking Diesel alone, or for no Diesel at all, set `default-features = false`.
//!
//! # Versions
//!
//! Rust 1.92, PostgreSQL 15 to 18, Diesel 2.3, diesel-async 0.7, 0.8 or 0.9. If the compiler says
//! that a lock "can't be taken on `AsyncPgConnection`", the program has two versions of
//! diesel-async: see [versions](guide::connections#versions).
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(feature = "testing", feature = "postgres", feature = "migrations")),
    allow(
        rustdoc::broken_intra_doc_links,
        reason = "the page is written for all features"
    )
)]
#![forbid(unsafe_code)]

// The modules below use its macros, so it comes first.
#[macro_use]
#[allow(unused_macros, reason = "the modules that use them need features")]
mod example_setup;

#[cfg(feature = "postgres")]
pub mod blocking;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
pub mod claim;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
mod connection;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
mod debug;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
mod driver;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
mod error;
mod expansion;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
mod find;
// For the documentation only: no program compiles it.
#[cfg(doc)]
pub mod guide;
mod holding;
pub mod inventory;
mod key;
#[cfg(feature = "diesel-async")]
pub mod lease;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
mod lock;
#[cfg(all(
    feature = "migrations",
    any(feature = "diesel-async", feature = "postgres")
))]
pub mod migrations;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
pub mod monitor;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
mod observe;
#[cfg(feature = "diesel-async")]
mod pool;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
mod pooler;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
mod query_comment;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
mod random;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
mod request;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
#[cfg_attr(
    not(feature = "diesel-async"),
    allow(
        dead_code,
        unreachable_pub,
        reason = "leases and async bodies use all of it"
    )
)]
mod rows;
#[cfg(feature = "diesel-async")]
pub mod session;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
mod sql;
pub mod sql_functions;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "diesel-async")]
pub mod xact;

pub use advisory_derive::{KeyPart, LockKey, advisory_lease, advisory_lock, lock_key};
pub use holding::{DeclaredLock, DeclaredLocks, Holding, Shared};
pub use key::{Key, KeyPart, KeyText, LockKey, shape, well_known};

#[cfg(feature = "diesel-async")]
pub use {connection::Connection, driver::cancel, pool::Pool};
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
pub use {
    error::{BusyLock, Error, ErrorRef, PoolError},
    lock::{LockGuard, LockInfo, OwnedLockError, OwnedLockGuard},
    request::{Isolation, Mode, Request, Wait},
};

/// For the attribute's expansion and `cargo advisory`. It is not public: any release can change it.
#[doc(hidden)]
pub mod __private {
    pub use crate::expansion::*;

    /// Qualifies plain SQL like the library's own.
    #[cfg(feature = "diesel-async")]
    pub use crate::sql::qualify::qualify;
}
