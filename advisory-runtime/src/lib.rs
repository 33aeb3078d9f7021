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
//! On `Ok` the transaction commits; on `Err`, on a panic, and when the future is dropped it rolls back. Called outside a
//! transaction, the lock is gone when the function has returned. Called inside one, it nests as Diesel's transactions do:
//! `Ok` keeps the lock to the end of the outer transaction, `Err` frees it with the savepoint.
//!
//! # Where to begin
//!
//! The [`guide`] has a page for each question, and each page opens with its answer. First of all
//! [whether a lock is needed](guide::when_not_to_lock), then [which scope](guide::scopes), [which key](guide::keys) and
//! [how long to wait](guide::waiting); [what can go wrong](guide::guarantees) argues every promise, and [moving](guide::moving) is for who
//! has locks already.
//!
//! | to | use |
//! | --- | --- |
//! | lock for a function | [`macro@advisory_lock`]: on `async fn` with diesel-async, on a plain `fn` with Diesel's own connections |
//! | lock without the attribute | [`xact`], [`session`], and the same in [`blocking`], which take a [`Request`] |
//! | store a lock, or move it to a task | [`session::acquire_owned`] |
//! | hold a key for longer than a connection | [`lease`]: for a time, under a token that grows |
//! | require the lock of a function that writes | [`Holding`]: without the lock the call does not compile; see [`guide::holding`] |
//! | share out the rows of a table | [`claim`]: jobs and checkpoints that one worker at a time takes, for so long |
//! | run Diesel's migrations in one process at a time | [`migrations`] |
//! | see who holds what | [`monitor`], and [`guide::watching`] for spans and metrics |
//! | test it | [`testing`], [`inventory::assert_no_collisions`], [`inventory::assert_lock_order`], and [`guide::testing`] |
//! | accept only TLS | [`cancel::use_tls`], once |
//!
//! # Keys
//!
//! A key pattern is text and placeholders, `"booking:<tenant_id>:<req.day>"`; [`macro@advisory_lock`] has its language.
//! [`macro@LockKey`] declares a lock once, as a type; [`lock_key!`] gives the [`Key`] of a pattern to code outside an
//! attribute; [`macro@KeyPart`] lets a newtype stand in a key; [`migration`] gives other programs the same numbers in SQL;
//! [`well_known`] has those of other tools.
//! Keys that can collide are a compile error inside one crate; [`inventory`] has the sites of the whole program.
//!
//! # Features
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `diesel-async` (on by default) | the attribute on `async fn`, [`xact`], [`Connection`] and [`Error`], over `diesel_async::AsyncPgConnection` |
//! | `bb8`, `deadpool` | [`Connection`] for what these pools lend |
//! | `postgres` | the attribute on `fn` and [`blocking`], over Diesel's `PgConnection` |
//! | `r2d2` | [`blocking::Connection`] for what its pools lend |
//! | `uuid`, `chrono`, `time`, `jiff` | [`trait@KeyPart`] for `Uuid`, and for the dates, times and instants of these crates |
//! | `migrations` | [`migrations`]: Diesel's migrations, run by one process at a time |
//! | `tracing`, `metrics` | a span for each lock and events; counters and histograms: see [`guide::watching`] |
//! | `testing` | [`testing`], which looks at locks in a test's database, and [`lease::Leases::in_memory`]; for `[dev-dependencies]` |
//! | `slim-inventory` | leaves the purpose, the file and the line of each lock out of a shipped program |
//! | none | [`trait@KeyPart`], [`trait@LockKey`] and [`inventory`], for crates that name keys and never see a database |
//!
//! With blocking Diesel alone, or with none: `default-features = false`.
//!
//! # Versions
//!
//! Diesel 2.3, with diesel-async 0.7, 0.8 or 0.9. Where the compiler says that a lock "can't be taken on `AsyncPgConnection`",
//! `cargo tree -i diesel-async` shows the other version in the program: [what to do](guide::connections#versions). Rust 1.88, PostgreSQL 15 to 18.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(feature = "testing", feature = "postgres", feature = "migrations")),
    allow(
        rustdoc::broken_intra_doc_links,
        reason = "the page is written for all features"
    )
)]
#![forbid(unsafe_code)]

#[cfg(feature = "postgres")]
pub mod blocking;
#[cfg(feature = "diesel-async")]
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
// Only where it is read: a user's program compiles none of it.
#[cfg(doc)]
pub mod guide;
mod holding;
pub mod inventory;
mod key;
#[cfg(feature = "diesel-async")]
pub mod lease;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
mod lock;
pub mod migration;
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
mod query_comment;
#[cfg(feature = "diesel-async")]
mod renewal;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
mod request;
#[cfg(feature = "diesel-async")]
pub mod session;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
mod sql;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "diesel-async")]
pub mod xact;

pub use advisory_derive::{KeyPart, LockKey, advisory_lock, lock_key};
pub use holding::{DeclaredLock, DeclaredLocks, Holding, Shared};
pub use key::{Key, KeyPart, KeyText, LockKey, shape, well_known};

#[cfg(feature = "diesel-async")]
pub use {connection::Connection, driver::cancel, pool::Pool};
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
pub use {
    error::{BusyLock, Error, ErrorRef},
    lock::{Held, OwnedLock, OwnedLockError},
    request::{Acquired, Isolation, Mode, Request, Wait},
};

/// What the attribute's expansion calls. No part of the public interface: it changes with any release.
#[doc(hidden)]
pub mod __private {
    pub use crate::expansion::*;
}
