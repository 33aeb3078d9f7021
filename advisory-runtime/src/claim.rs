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
//! The guide's page on [claims](crate::guide::claims) has rows that are done over and over, what keeps two workers apart, the columns,
//! and what lease columns written by hand become.

mod claimed;
mod count;
mod ending;
mod finish;
mod index;
mod retry;
mod run;
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
