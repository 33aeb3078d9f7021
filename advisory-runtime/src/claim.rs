//! Claims on rows of your tables, such as jobs, checkpoints and outbox entries, by columns that say until when a row is taken.
//!
//! A claim is an `UPDATE` of the row: it needs no table of this crate, no session and no open connection. It ends when its holder
//! finishes it, or when it expires, so a worker that dies loses its rows to the next one. To lock something that is not a row, use
//! [`advisory_lock`](macro@crate::advisory_lock) or a [`lease`](crate::lease).
//!
//! ```no_run
//! # #[cfg(feature = "bb8")]
//! # mod jobs {
//! use advisory_runtime::Pool as _;
//! use advisory_runtime::claim::{self, Claim, Error, OnErr};
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
//! `claim::Worker` is this loop for several rows at a time, which stops gracefully and wakes up by notifications.
//!
//! [`blocking::claim`](crate::blocking::claim) has the same steps for Diesel's own connections.
//!
//! The guide's page on [claims](crate::guide::claims) has the columns in SQL, rows that are done over and over, and what keeps two
//! workers apart.

mod claimed;
mod column_type;
mod count;
mod ending;
mod error;
mod finish;
mod index;
mod limit;
mod on_err;
mod retry;
#[cfg(feature = "diesel-async")]
mod run;
mod schema;
mod sql;
mod state;
#[cfg(feature = "diesel-async")]
mod steps;
mod table;
mod take;
mod time;
#[cfg(feature = "diesel-async")]
mod worker;

pub use claimed::Claimed;
pub use count::Counts;
pub use error::Error;
pub use index::indexes;
pub use on_err::OnErr;
pub use schema::Schema;
pub use state::{State, state};
pub use table::Claim;
pub use time::now;
#[cfg(feature = "postgres")]
pub(crate) use {
    count::counts_on,
    ending::{EndAttempts, finish_unless_ended},
    finish::{finish, is_open_on, renew_on, renew_or_lose},
    on_err::every,
    sql::{How, Wanted, text},
    take::{take_batch, take_by_key, take_first},
};
#[cfg(feature = "diesel-async")]
pub use {
    run::{renew_while, run},
    steps::{
        by_key, complete, complete_with, counts, delete, fail, next, next_batch, next_batch_where,
        next_batch_with, next_where, next_with, release, renew, retry,
    },
    worker::Worker,
};

pub use advisory_derive::Claim;

/// What the derive implements, and the bounds that follow from it.
#[doc(hidden)]
pub use {
    column_type::{Count, HolderType, NullableTime, PerType, Time},
    state::StateOf,
    table::{
        Absent, Deleted, ExpiryOf, Fails, Found, HolderOf, KeepsCompleted, KeyColumns, KeyValue,
        MaybeColumn, MaybeCount, MaybePer, MaybeRunAt, MaybeTime, One, Order, Retries, SelectionOf,
        TimeColumn, absent, check_columns, check_last_attempt, from_row, selection,
    },
    take::Condition,
    time::{Now, NowInUtc},
};
