//! Claims on rows of your tables, such as jobs, checkpoints and outbox entries, by columns that say
//! until when a row is taken.
//!
//! A claim is an `UPDATE` of the row: it needs no table of this crate, no session and no open
//! connection. It ends when its holder finishes it, or when it expires, so a worker that dies loses
//! its rows to the next one. To lock something that is not a row, use
//! [`advisory_lock`](macro@crate::advisory_lock) or a [`lease`](crate::lease).
//!
//! ```no_run
//! # #[cfg(feature = "bb8")]
//! # mod jobs {
//! use advisory_runtime::Pool as _;
//! use advisory_runtime::claim::{self, Claim, End, Error};
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
//!         let job = claim::next::<SyncJob>("worker-7").first(&mut pool.connection().await?).await?;
//!         let Some(job) = job else { return Ok(()) };
//!         // Renews the claim every minute, and ends it as the work ends.
//!         if let Err(error) = claim::run(pool, &job, End::Fail, sync(&job)).await {
//!             eprintln!("job {}: {error}", job.id);
//!         }
//!     }
//! }
//! # async fn sync(_: &SyncJob) -> Result<(), Error> { Ok(()) }
//! # }
//! ```
//!
//! `claim::Worker` is this loop for several rows at a time, which stops gracefully and wakes up by
//! notifications.
//!
//! [`blocking::claim`](crate::blocking::claim) has the same steps for Diesel's own connections.
//!
//! The guide's page on [claims](crate::guide::claims) has the columns in SQL, rows that are done
//! over and over, and what keeps two workers apart.

// `table` describes the user's rows, `key` and `optional_column` their columns. `next` builds the
// query of a claim, `take` and `limit` send it, `claimed` is the claimed row; `end` and `end/send`
// end it, `renew` renews it. `rows` has the keeper renew and end many, `run` and `worker` call
// bodies. `sql` has the statements.
mod claimed;
mod column_type;
mod conflicts;
mod count;
mod end;
mod error;
mod key;
mod limit;
mod mutex;
mod next;
mod observers;
mod optional_column;
mod renew;
pub(crate) mod rows;
#[cfg(feature = "diesel-async")]
mod run;
mod schema;
mod spent;
mod sql;
mod state;
mod table;
mod take;
mod time;
mod worker;

pub use crate::rows::{BodyOutcome, End};
pub use claimed::{Claimed, Event};
pub use count::Counts;
pub use end::EndStatement;
pub use error::Error;
pub use next::Next;
pub use schema::{Schema, indexes};
pub use state::{State, state};
pub use table::Claim;
pub use time::now;
pub use worker::Worker;
#[cfg(feature = "diesel-async")]
pub use {
    count::counts,
    end::{complete, delete, end, fail, release, retry},
    next::next,
    renew::renew,
    run::{renew_while, run},
};
#[cfg(feature = "postgres")]
pub(crate) use {
    count::counts_on,
    end::send::end_one,
    renew::renew_or_lose,
    worker::{ClaimAnswer, ClaimArgs, ClaimFn, Settings, Source, joined, run as run_worker},
};

pub use advisory_derive::Claim;

/// What the derive implements, and the bounds that follow from it.
#[doc(hidden)]
pub use {
    column_type::{Count, HolderType, NullableTime, Time},
    key::{KeyArray, KeyColumns, KeyValue, One, RowKey},
    next::{Async, Blocking},
    optional_column::{
        Absent, CountColumn, Deleted, ExpiryOf, Found, HolderOf, MaybeColumn, MaybeCount, MaybePer,
        MaybeRunAt, MaybeTime, TimeColumn, absent, check_columns,
    },
    state::StateOf,
    table::{
        Fails, KeepsCompleted, Order, Retries, SelectionOf, changes, check_last_attempt, from_row,
        selection,
    },
    take::Condition,
    time::{Now, NowInUtc},
};
