//! Leases: locks that expire, with fencing tokens.
//!
//! What `#[advisory_lock(…, scope = "lease", pool = …)]` stands on. A lease is a row of a table, held until it is released or its
//! ttl is over, by no connection and no transaction: for work that outlives both, such as a call of a payment provider, a report,
//! or a webhook that must be handled once. Its body runs in no transaction. A lock that guards one transaction is better taken with
//! [`xact`](crate::xact), which nothing can separate from its commit.
//!
//! ```
//! # #[cfg(feature = "deadpool")]
//! # mod webhooks {
//! use advisory_runtime::{Error, advisory_lock};
//! use diesel_async::{AsyncPgConnection, pooled_connection::deadpool::Pool};
//!
//! /// Handles each webhook once, also when it is delivered twice.
//! #[advisory_lock(key = "webhook:<id>", scope = "lease", pool = pool, keep = "24h", wait = "never", on_held = Ok(()))]
//! async fn handle(pool: &Pool<AsyncPgConnection>, id: &str) -> Result<(), Error> {
//!     // Nobody else handles it meanwhile. After `Ok` the key stays taken for a day; after an error it is free for the next try.
//!     Ok(())
//! }
//! # }
//! ```
//!
//! Without the attribute: [`Leases::acquire`] renews in the background and releases what is dropped; [`Table`] has each step as
//! one round trip on a connection of your own.
//!
//! # The table
//!
//! [`ADVISORY_LEASE_UP`] is the migration, a folder of this crate that you copy into your own `migrations/`, and
//! [`Leases::set_up`] makes the table in development. It is `public.advisory_lease` unless [`Table::named`] says another.
//!
//! A key is kept under the SHA-256 of its text, which is at most 512 bytes; the text as the pattern renders it, for nothing else
//! normalises it: `<email|trim|lower>` does. Two texts that differ in a byte are two keys. The table has no text of a key unless
//! [`Table::with_text`] asks for it, and then only while it is held.
//!
//! Rows are never deleted, for each holds the token of its key; a trigger refuses to. So the table grows by one row for each key that
//! was ever leased: a million of them are 342 MB (178 of rows, 164 of two indexes). Where keys are dates or ids of single events, that
//! is the price of a token that never begins anew; lease what is few, such as a job, and keep the ids in a table of your own.
//! Renewals and releases write no index; each grant writes an entry of one, and autovacuum takes the one before it away.
//!
//! ```sql
//! SELECT pg_catalog.pg_size_pretty(pg_catalog.pg_total_relation_size('public.advisory_lease'));
//! SELECT count(*) FROM public.advisory_lease WHERE expires_at > pg_catalog.clock_timestamp(); -- held now
//! ```
//!
//! # What is promised
//!
//! - **All time is the server's** `clock_timestamp()`. A process believes in its lease by a clock that starts before the server's
//!   does; a body is dropped a tenth of the ttl, at most a second, before the lease expires by that clock. A body that blocks its
//!   thread cannot be dropped; what it returns too late is refused ([`Error::LockLost`](crate::Error::LockLost)). Nor is a task dropped
//!   that it has spawned: what that writes has to be fenced.
//! - **A renewal needs nothing of the body's.** It runs on a task of its own, on a connection that the pool lends at once, else on one
//!   that is opened beside it. It is tried again until the lease expires.
//! - **A token is issued once.** Acquisitions and renewals force `synchronous_commit` where the session has `off`, `local` or
//!   `remote_write`. A token alone stops nobody: [`Lease::fence`] makes a transaction's writes happen only while it is current.
//! - **It is released** at the end, after an error, a panic and a drop, and where the process dies when it expires.
//! - **It works behind a pooler in transaction mode**: each step is one statement. Behind one that does not track prepared statements
//!   (pgbouncer before 1.21) each is sent as plain text, and an acquisition says its answer in the text of an error, which the
//!   server's log shows. Where the connection requires TLS a pooler is not recognised, and has to track them.
//!
//! What no single server can promise: one that fails over to a standby that had not received the last writes, or is restored from a
//! backup, has forgotten grants. A forgotten grant's token is issued again. The holder from before is refused at its next renewal,
//! since each grant also has a number at random; until then two believe in one key. Where that must not be, the standby has to be
//! synchronous.
//!
//! A server whose clock is set forward ends leases before their time: again two believe in one key until the first renews, and the
//! token tells them apart. Set back, it keeps keys taken for longer.
//!
//! # Coming from `SyncGuard`
//!
//! | there | here |
//! | --- | --- |
//! | `createLock(sql)`, `lock(fn, { key, ttlMs })` | the attribute, or [`Leases::acquire`], [`Held::run`], [`Held::finish`] |
//! | `acquisition: { timeoutMs }` | [`Request::wait`] |
//! | `maxRetries`, `retryDelayMs` | none: within the wait it tries after 10 ms, then twice as long up to half a second, each at random from half to all of it |
//! | `backend.acquire({ key, ttlMs })` | [`Table::acquire`]: four statements and a transaction less |
//! | `backend.extend({ lockId, ttlMs })` | [`Table::renew`]; in the background by itself |
//! | `backend.release({ lockId })` | [`Table::release`]; on every way out by itself |
//! | `isLocked({ key })` | [`Table::is_held`] |
//! | `getByKey(backend, key)` | [`Table::find`], [`Table::find_text`] |
//! | `getById(backend, lockId)`, `owns(backend, lockId)` | [`Table::holds`]; without SQL [`Lease::is_held`], [`Lease::remaining`] |
//! | `AbortSignal` | dropping the future; the body is dropped when the lease is lost |
//! | `fence`, a text of 15 digits | [`FencingToken`], a number; and [`Lease::fence`], which enforces it |
//! | `setupSchema(sql, { tableName, fenceTableName })` | [`Table::set_up`], [`Table::named`]: one table, whose rows stay |
//! | `cleanupInIsLocked` | nothing is cleaned up; [`Table::erase`] forgets texts |
//! | a key longer than 512 bytes | refused: [`Error::KeyTooLong`](crate::Error::KeyTooLong) |
//! | `ServiceUnavailable` | [`Error::Pool`](crate::Error::Pool) with the pool's own error, [`Error::Database`](crate::Error::Database) |
//! | a table that is not there | [`Error::MissingTable`](crate::Error::MissingTable), which says how to make it |
//! | telemetry | [`Leases::observed`] |
//! | a tolerance of 1,000 ms | none: one clock decides |
//!
//! "Once" needs no lookup under the lease: [`Request::keep`] leaves the key taken after `Ok`. Where the effect is a row of this
//! database, a unique constraint on the webhook's id is better than either.

mod acquire;
mod answer;
mod event;
mod fence;
mod held;
mod holding;
mod keeper;
mod leases;
mod look;
#[cfg(feature = "testing")]
mod memory;
mod own;
mod patience;
mod request;
mod row;
mod running;
mod schema;
mod sql;
mod standing;
mod statement;
mod table;
mod token;

pub use event::Event;
pub use fence::IsCurrent;
pub use held::Held;
#[doc(hidden)]
pub use held::finish_at;
#[doc(hidden)]
pub use leases::acquire_at;
pub use leases::{Leases, Source};
#[cfg(feature = "testing")]
pub use memory::InMemory;
pub use request::{LONGEST_KEY, Request};
pub use row::Row;
pub use schema::{ADVISORY_LEASE_DOWN, ADVISORY_LEASE_UP};
pub use standing::Lease;
pub use table::Table;
pub use token::FencingToken;
