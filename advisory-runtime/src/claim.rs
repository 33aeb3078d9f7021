//! Claims on rows of your tables, such as jobs, checkpoints and outbox entries, by columns that say until when a row is taken.
//!
//! A claim is an `UPDATE` of the row: it needs no table of this crate, no session and no open connection. It ends when its holder
//! finishes it, or when it expires, so a worker that dies loses its rows to the next one. To lock something that is not a row, use
//! [`advisory_lock`](macro@crate::advisory_lock) or a [`lease`](crate::lease).
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
//! #[claim(order = "created_at", ttl = "5m", renew = "1m")]
//! struct SyncJob {
//!     id: i64,
//! }
//!
//! async fn work(pool: &Pool<AsyncPgConnection>) -> Result<(), Error> {
//!     loop {
//!         let job = claim::next::<SyncJob, _>(&mut pool.connection().await?, "worker-7").await?;
//!         let Some(job) = job else { return Ok(()) };
//!         // Renews the claim every minute, and ends it as the work ends.
//!         if let Err(error) = claim::run(pool, &job, OnErr::Fail, sync(&job)).await {
//!             eprintln!("job {}: {error}", job.id);
//!         }
//!     }
//! }
//! # async fn sync(_: &SyncJob) -> Result<(), Error> { Ok(()) }
//! # }
//! ```
//!
//! The guide's page on [claims](crate::guide::claims) has the columns in SQL, rows that are done over and over, and what keeps two
//! workers apart.

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
pub use table::{
    ExpiryOf, Found, HolderOf, SelectionOf, absent, check_columns, from_row, selection,
};
