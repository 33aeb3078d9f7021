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
//! | hold a key for longer than a connection | [`lease`]: for a time, under a token that grows |
//! | share out the rows of a table | [`claim`]: jobs and checkpoints that one worker at a time takes, for so long |
//! | see who holds what | [`monitor`], and [`guide::watching`] for spans and metrics |
//! | test it | [`testing`], [`inventory::assert_no_collisions`], [`inventory::assert_lock_order`], and [`guide::testing`] |
//! | accept only TLS | [`cancel::use_tls`], once |
//!
//! # Keys
//!
//! A key pattern is text and placeholders, `"booking:<tenant_id>:<req.day>"`; [`macro@advisory_lock`] has its language.
//! [`macro@LockKey`] declares a lock once, as a type; [`lock_key!`] gives the [`Key`] of a pattern to code outside an
//! attribute; [`macro@KeyPart`] lets a newtype stand in a key; [`migration`] gives other programs the same numbers in SQL.
//! Keys that can collide are a compile error inside one crate; [`inventory`] has the sites of the whole program.
//!
//! # Features
//!
//! | feature | what it adds |
//! | --- | --- |
//! | none | [`trait@KeyPart`], [`trait@LockKey`] and [`inventory`], for crates that name keys and never see a database |
//! | `diesel-async` | the attribute, [`xact`], [`Connection`] and [`Error`], over `diesel_async::AsyncPgConnection` |
//! | `bb8`, `deadpool` | [`Connection`] for the pooled connections of diesel-async |
//! | `postgres` | the attribute on `fn` and [`blocking`], over Diesel's `PgConnection` |
//! | `r2d2` | [`blocking::Connection`] for its pooled connections |
//! | `uuid`, `chrono`, `time`, `jiff` | [`trait@KeyPart`] for `Uuid`, and for the dates, times and instants of these crates |
//! | `tracing`, `metrics` | a span for each lock and events; counters and histograms: see [`guide::watching`] |
//! | `testing` | [`testing`], which looks at locks in a test's database, and [`lease::Leases::in_memory`]; for `[dev-dependencies]` |
//! | `slim-inventory` | leaves the purpose, the file and the line of each lock out of a shipped program |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(feature = "testing", feature = "postgres")),
    allow(
        rustdoc::broken_intra_doc_links,
        reason = "the page is written for all features"
    )
)]
#![forbid(unsafe_code)]

#[cfg(any(feature = "chrono", feature = "time", feature = "jiff"))]
mod date_time;
mod digits;
// Only where it is read: a user's program compiles none of it.
#[cfg(doc)]
pub mod guide;
pub mod inventory;
mod key;
pub mod migration;
mod part;
pub mod shape;
mod shown;

#[cfg(feature = "diesel-async")]
mod awaited;
#[cfg(feature = "diesel")]
mod begin;
#[cfg(feature = "postgres")]
pub mod blocking;
#[cfg(feature = "diesel-async")]
pub mod cancel;
#[cfg(feature = "diesel-async")]
pub mod claim;
#[cfg(feature = "diesel-async")]
mod connection;
#[cfg(feature = "diesel")]
mod convert;
#[cfg(feature = "diesel")]
mod error;
#[cfg(feature = "diesel")]
mod error_message;
#[cfg(feature = "diesel")]
mod finish;
#[cfg(feature = "diesel")]
mod guard;
#[cfg(feature = "diesel")]
mod holding;
#[cfg(feature = "diesel-async")]
mod identity;
#[cfg(feature = "diesel")]
mod kept;
#[cfg(feature = "diesel")]
mod keys;
#[cfg(feature = "diesel-async")]
pub mod lease;
#[cfg(feature = "diesel")]
mod link;
#[cfg(feature = "diesel")]
mod made;
#[cfg(feature = "diesel")]
pub mod monitor;
#[cfg(feature = "diesel")]
mod order;
#[cfg(feature = "diesel-async")]
mod pool;
#[cfg(feature = "diesel")]
mod prepared;
#[cfg(feature = "diesel")]
mod queue;
#[cfg(feature = "diesel")]
mod refusal;
#[cfg(feature = "diesel-async")]
mod renewal;
#[cfg(feature = "diesel")]
mod request;
#[cfg(feature = "diesel-async")]
pub mod session;
#[cfg(feature = "diesel")]
mod sql;
#[cfg(feature = "diesel")]
mod taken;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "diesel")]
mod trail;
#[cfg(feature = "diesel")]
mod verify;
#[cfg(feature = "diesel-async")]
pub mod xact;

pub use advisory_derive::{KeyPart, LockKey, lock_key};
pub use key::{Key, KeyText, LockKey};
pub use part::KeyPart;

#[cfg(feature = "diesel")]
pub use {
    advisory_derive::advisory_lock,
    error::Error,
    guard::Held,
    request::{Acquired, Isolation, Mode, Request, Wait},
};
#[cfg(feature = "diesel-async")]
pub use {connection::Connection, pool::Pool};

/// What the attribute's expansion calls. No part of the public interface: it changes with any release.
#[doc(hidden)]
pub mod __private {
    pub use crate::__record as record;
    pub use crate::key::KeyWriter;
    pub use crate::part::Displayed;
    pub use advisory_pattern::{Derivation, Filter};
    pub use core;
    pub use core::result::Result::{Err, Ok};
    pub use std::{boxed::Box, string::String};

    /// What a lock site leaves in the program: a static of flat bytes that the linker keeps, also where the function is never
    /// called. The text before the module's path, the path, which only the compiler knows, and the text behind it; `$rest` is the
    /// length of both. A macro of this crate, since each token that the attribute emits costs a build more than one that is here.
    #[doc(hidden)]
    #[macro_export]
    macro_rules! __record {
        ($rest:literal $before:literal $behind:literal) => {
            const _: () = {
                #[used]
                #[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__advisory"))]
                #[cfg_attr(windows, unsafe(link_section = ".advsry"))]
                #[cfg_attr(
                    not(any(target_vendor = "apple", windows)),
                    unsafe(link_section = ".advisory")
                )]
                static RECORD: [u8; $rest + $crate::__private::core::module_path!().len()] =
                    $crate::__private::bytes($crate::__private::core::concat!(
                        $before,
                        $crate::__private::core::module_path!(),
                        $behind
                    ));
            };
        };
    }

    /// The bytes of a text that is so long; while compiling a panic where it is not.
    #[must_use]
    pub const fn bytes<const N: usize>(text: &str) -> [u8; N] {
        match text.as_bytes().first_chunk() {
            Some(bytes) if text.len() == N => *bytes,
            _ => panic!("a record is as long as its text"),
        }
    }

    #[cfg(feature = "diesel-async")]
    pub mod claim {
        pub use crate::claim::{
            Absent, Claim, Found, One, Order, SelectionOf, absent, from_row, selection,
        };
        pub use diesel::deserialize::Result;
        pub use diesel::pg::Pg;
        pub use diesel::row::Row;
    }
    #[cfg(feature = "postgres")]
    pub mod blocking {
        pub use crate::blocking::{acquire_at, begin_at};
        pub use crate::convert::finish_blocking_at as finish_at;
        pub use crate::queue::queue_blocking as queue;
    }
    #[cfg(feature = "diesel")]
    pub use crate::{
        convert::{never, returns},
        keys::Keys,
        request::{Isolation, Request, Wait, keyed, millis},
    };
    #[cfg(feature = "diesel-async")]
    pub use crate::{
        lease,
        queue::queue,
        session::acquire_at,
        xact::{begin_at, exceed},
    };
}
