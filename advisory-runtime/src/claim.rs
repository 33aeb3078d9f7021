//! Claims on the rows of tables that users have: jobs, checkpoints, outboxes, with columns that say until when a row is taken.
//!
//! A claim is an `UPDATE` of the row, so it needs no table of this crate's, no session and no connection that stays open: it
//! works with any pool. It ends when its holder says so, or when it expires: a program that dies loses its rows to the next one.
//! For a lock on what is no row use the attribute; for a lease on a key without a table `lease`.
//!
//! ```no_run
//! # #[cfg(feature = "bb8")]
//! # mod jobs {
//! use advisory_runtime::claim::{self, Claim, OnErr};
//! use advisory_runtime::{Error, Pool as _};
//! use diesel::prelude::*;
//! use diesel_async::AsyncPgConnection;
//! use diesel_async::pooled_connection::bb8::Pool;
//!
//! diesel::table! {
//!     sync_jobs (id) {
//!         id -> BigInt,
//!         priority -> Integer,
//!         created_at -> Timestamptz,
//!         locked_until -> Nullable<Timestamptz>,
//!         locked_by -> Nullable<Text>,
//!         completed_at -> Nullable<Timestamptz>,
//!         failed_at -> Nullable<Timestamptz>,
//!         error_message -> Nullable<Text>,
//!     }
//! }
//!
//! #[derive(Queryable, Selectable, Claim)]
//! #[diesel(table_name = sync_jobs)]
//! #[claim(order = "priority desc, created_at", ttl = "5m", renew = "1m")]
//! struct SyncJob {
//!     id: i64,
//!     priority: i32,
//! }
//!
//! /// Works until there is nothing to do.
//! async fn work(pool: &Pool<AsyncPgConnection>) -> Result<(), Error> {
//!     loop {
//!         let job = claim::next::<SyncJob, _>(&mut pool.connection().await?, "worker-7").await?;
//!         let Some(job) = job else { return Ok(()) };
//!         // Renewed once a minute. Completed on `Ok`; on `Err` it failed, with the error's text as its message.
//!         if let Err(error) = claim::run(pool, &job, OnErr::Fail, sync(&job)).await {
//!             eprintln!("job {}: {error}", job.id);
//!         }
//!     }
//! }
//!
//! async fn sync(job: &SyncJob) -> Result<(), Error> {
//! #   let _ = (job.id, job.priority);
//!     // …
//!     Ok(())
//! }
//! # }
//! ```
//!
//! A row that is done over and over, such as a checkpoint, has no terminal columns. It is claimed by its key, and completing it
//! gives it back with whatever else there is to set. Whoever has read that a row is due and claims it then may find that it was
//! done in between: have the column among the fields, and look at it behind the claim.
//!
//! ```no_run
//! # #[cfg(feature = "diesel-async")]
//! # mod checkpoints {
//! # use advisory_runtime::{Error, claim::{self, Claim}};
//! # use diesel::prelude::*;
//! # use diesel_async::AsyncPgConnection;
//! diesel::table! {
//!     sync_checkpoints (matrix_id, chunk_hash) {
//!         matrix_id -> BigInt,
//!         chunk_hash -> Text,
//!         row_count -> Nullable<BigInt>,
//!         last_synced_at -> Nullable<Timestamptz>,
//!         locked_until -> Nullable<Timestamptz>,
//!         locked_by -> Nullable<Text>,
//!     }
//! }
//!
//! #[derive(Queryable, Selectable, Claim)]
//! #[diesel(table_name = sync_checkpoints)]
//! #[claim(key = (matrix_id, chunk_hash), ttl = "2m", renew = "30s")]
//! struct Checkpoint {
//!     matrix_id: i64,
//!     chunk_hash: String,
//! }
//!
//! async fn sync(conn: &mut AsyncPgConnection, matrix: i64, chunk: &str) -> Result<bool, Error> {
//!     let Some(checkpoint) = claim::by_key::<Checkpoint, _>(conn, "worker-7", (matrix, chunk)).await? else {
//!         return Ok(false); // Another worker syncs it.
//!     };
//!     let rows = read(&checkpoint).await;
//!     use sync_checkpoints::{last_synced_at, row_count};
//!     claim::complete_with(conn, &checkpoint, (row_count.eq(rows), last_synced_at.eq(claim::now()))).await?;
//!     Ok(true)
//! }
//! # async fn read(_: &Checkpoint) -> i64 { 0 }
//! # }
//! ```
//!
//! # What lease columns written by hand become
//!
//! | by hand | here |
//! | --- | --- |
//! | `UPDATE … WHERE id = (SELECT … ORDER BY … FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING *` | [`next`], [`next_batch`] |
//! | `UPDATE … WHERE key = $1 AND (locked_until IS NULL OR locked_until <= now()) RETURNING *` | [`by_key`] |
//! | `SET locked_until = now() + …` every so often | [`renew`], or [`keep`] and [`run`], which do it in the background |
//! | `SET completed_at = now(), locked_until = NULL, locked_by = NULL` | [`complete`] |
//! | `SET locked_until = NULL, last_synced_at = now(), row_count = $1` | [`complete_with`] |
//! | `SET failed_at = now(), error_message = $1` | [`fail`] |
//! | `SET locked_until = NULL, locked_by = NULL` | [`release`] |
//! | `CASE WHEN completed_at IS NOT NULL …` | [`state`], [`State::at`] |
//! | `SELECT … , count(*) … GROUP BY 1` | [`counts`] |
//! | `CREATE INDEX … WHERE completed_at IS NULL` | [`indexes`] |
//!
//! # What keeps two workers apart
//!
//! Whatever is done with a claim is conditional on holding it: on `locked_by`, which is no worker's name but that name, `#`, and
//! a UUID of this claim alone; and on `locked_until`, by the server's `clock_timestamp()`. So a worker that was stopped for too
//! long completes nobody's job, not even one that it has claimed anew itself; it gets [`LockLost`](crate::Error::LockLost). What it does
//! elsewhere no database can undo: [`keep`] and [`run`] drop it in time, by clocks that are pessimistic, unless it blocks its
//! thread or has spawned a task. To write results and complete the job at once, call [`complete`] in the transaction that writes them: its row
//! is locked from then on, so nobody claims the job before the commit, however late that is.
//!
//! Each operation is one statement, prepared once a connection, and computes its times after it has waited for the row. A wait
//! for somebody's open transaction, which `lock_timeout` bounds, never makes a claim shorter. Each commit waits for the disk,
//! also where `synchronous_commit` is weaker than `on`: a claim that a crash forgets would be held twice.
//!
//! Under a default level of REPEATABLE READ or SERIALIZABLE a statement on its own is sent again when it meets another one
//! (SQLSTATE 40001); inside a transaction of yours the error is yours.
//!
//! # Columns
//!
//! `locked_until` is a `Timestamptz` and `locked_by` a `Text`, both nullable, with room for 37 characters behind the worker's
//! name. `next` needs the index that [`indexes`] prints, else each claim reads the table. Behind a pooler in transaction mode
//! claims work as Diesel's other statements do: pgbouncer has to track prepared statements (`max_prepared_statements`, since
//! 1.21).

mod claimed;
mod count;
mod ending;
mod finish;
mod index;
mod run;
mod send;
mod sql;
mod state;
mod table;
mod take;
mod time;

pub use claimed::Claimed;
#[cfg(feature = "postgres")]
pub(crate) use count::counts_blocking;
pub use count::{Counts, counts};
pub use finish::{complete, complete_with, fail, release, renew};
pub use index::indexes;
pub use run::{OnErr, keep, run};
pub use state::{State, StateOf, state};
pub use table::{Absent, Claim, Fails, KeyColumns, KeyValue, MaybeColumn, One, Order};
pub use take::{by_key, next, next_batch};
pub use time::{Now, now};

pub use advisory_derive::Claim;

#[doc(hidden)]
pub use table::{Found, SelectionOf, absent, from_row, selection};
