//! Live locks by name: who holds one, who waits, and who blocks whom.
//!
//! `pg_locks` shows numbers. Here they have the names of the program's lock sites, as far as numbers can have one: for sure where the
//! number is fixed or its key is known, else by what a backend's `application_name` says
//! (`booking-service [booking:<tenant_id>:<day>]`), with a [`Certainty`] beside it.
//!
//! ```
//! # #[cfg(feature = "diesel-async")]
//! # mod example {
//! use advisory_runtime::monitor::{self, Names};
//! use diesel_async::AsyncPgConnection;
//!
//! async fn who_waits(conn: &mut AsyncPgConnection, names: &Names) -> Result<(), advisory_runtime::Error> {
//!     for lock in monitor::locks(conn, names).await?.locks {
//!         let name = lock.names.first().map_or("?", |name| &name.key);
//!         for waiter in &lock.waiters {
//!             eprintln!("{} waits for {name}, behind {:?}: {:?}", waiter.pid, waiter.held_by, waiter.waited);
//!         }
//!     }
//!     Ok(())
//! }
//! # }
//! ```
//!
//! `cargo advisory locks` shows the same on a terminal, and `docs/stuck-locks.md` in the repository says what to do at night.
//!
//! # What may be seen
//!
//! Every role sees the locks, process ids, users, application names and waits of all. What another role's backend runs, its state,
//! its ages and its client are for members of `pg_monitor`, or of `pg_read_all_stats`, which that contains; else they are
//! [`Activity::Hidden`]. Nothing here needs more, but for [`cancel`] and [`terminate`].
//!
//! # How a lock has its name
//!
//! While a lock is held or waited for, the application name of its session is followed by its key pattern in brackets, up to the 63
//! bytes that a name has: `booking-service [booking:<tenant_id>:<day>]`. Any tool shows it, and the server's log where
//! `log_line_prefix` has `%a`. It goes with the begin, in no round trip of its own; the transaction's end takes it back, or the
//! release of a session-level lock. It survives poolers, since it is as local as the lock. Of locks in one another the one that was
//! taken last shows. On a socket it costs a locked call an eighth of its speed, for the server tells the client of each change
//! (`cargo run --release -p advisory-benches -- --only showing`); [`show`] turns it off.
//!
//! A pattern is part of the program. A rendered key can be personal data, and every role of the server reads application names:
//! so it is shown only where [`show`] says [`Shown::Key`]. Nothing is shown of a lock that is a number.
//!
//! # What it costs
//!
//! One statement, two round trips; 30 ms of the server for 5,000 locks and 40 waiters. It takes no lock of its own; for a moment it holds up all who take or release one, as each look at
//! `pg_locks` does: every second is fine, every millisecond is not.
//!
//! Blocking twins are in [`blocking::monitor`](crate::blocking::monitor).

mod application;
mod backend;
#[cfg(feature = "postgres")]
pub(crate) mod blocking;
#[cfg(feature = "diesel-async")]
mod claimed;
#[cfg(feature = "diesel-async")]
mod leases;
mod locks;
mod names;
mod row;
mod signal;
mod sql;

#[cfg(feature = "diesel-async")]
pub use crate::claim::{Counts as Claims, counts as claims};
pub use crate::shown::{Shown, show, shown};
pub use application::{Application, Said};
pub use backend::{Activity, Backend, State};
pub use locks::{By, Holder, Lock, Locks, Scope, Waiter};
pub use names::{Certainty, Name, Names};
pub use signal::Signal;
#[cfg(feature = "diesel-async")]
pub use {
    claimed::{ClaimedRow, claimed_rows},
    leases::{Lease, leases},
};

use crate::Error;
use crate::link::{Link, depth};

/// Looks at the advisory locks of the connection's database, in both key spaces.
///
/// # Locking
///
/// One `SELECT` of `pg_locks` beside what `pg_stat_activity` has; in an open transaction `pg_stat_clear_snapshot()` before it, so that it
/// shows what is and not what was. No lock is taken or waited for. Ages are by the server's clock.
///
/// # Errors
///
/// [`Error::Database`]. Not what the role may not see: that is [`Activity::Hidden`].
///
/// # Cancel safety
///
/// Cancel safe: it only reads.
///
/// # Examples
///
/// The page of [the module](self) has one.
#[cfg(feature = "diesel-async")]
pub async fn locks<C: crate::Connection>(conn: &mut C, names: &Names) -> Result<Locks, Error> {
    let conn = conn.pg();
    refresh(conn).await?;
    let rows = diesel_async::RunQueryDsl::load(diesel::sql_query(sql::LOCKS), conn).await;
    Ok(Locks::of(rows.map_err(Error::Database)?, names))
}

/// Ends the statement that a backend runs. One that runs none goes on as before, and so does a session-level lock.
///
/// Only that backend: not a later one of its process id.
///
/// # Locking
///
/// `SELECT pg_cancel_backend(pid)`. Its client sees SQLSTATE 57014, and its transaction can only be rolled back.
///
/// # Errors
///
/// [`Error::Database`]. A role that may not is no error: [`Signal`] says so.
///
/// # Cancel safety
///
/// Not cancel safe: the statement may be ended or not.
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::{Error, monitor::{self, Names, Signal}};
/// use diesel_async::AsyncPgConnection;
///
/// /// Ends the statements of all who hold this lock.
/// async fn free(conn: &mut AsyncPgConnection, key: i64) -> Result<Vec<Signal>, Error> {
///     let seen = monitor::locks(conn, &Names::none()).await?;
///     let mut ended = Vec::new();
///     for lock in seen.locks.iter().filter(|lock| lock.key == key.into()) {
///         for holder in &lock.holders {
///             if let monitor::By::Backend(pid) = holder.by && let Some(backend) = seen.backend(pid) {
///                 ended.push(monitor::cancel(conn, backend).await?);
///             }
///         }
///     }
///     Ok(ended)
/// }
/// ```
#[cfg(feature = "diesel-async")]
pub async fn cancel<C: crate::Connection>(
    conn: &mut C,
    backend: &Backend,
) -> Result<Signal, Error> {
    signal(conn, sql::CANCEL, backend).await
}

/// Ends a backend's session, and waits up to five seconds for it: its transaction is rolled back, and all that it holds is free.
///
/// Only that backend: not a later one of its process id.
///
/// # Locking
///
/// `SELECT pg_terminate_backend(pid, 5000)`. Its client sees SQLSTATE 57P01, or a lost connection.
///
/// # Errors
///
/// [`Error::Database`]. A role that may not is no error: [`Signal`] says so.
///
/// # Cancel safety
///
/// Not cancel safe: the session may be ended or not.
///
/// # Examples
///
/// As [`cancel`].
#[cfg(feature = "diesel-async")]
pub async fn terminate<C: crate::Connection>(
    conn: &mut C,
    backend: &Backend,
) -> Result<Signal, Error> {
    signal(conn, sql::TERMINATE, backend).await
}

#[cfg(feature = "diesel-async")]
async fn signal<C: crate::Connection>(
    conn: &mut C,
    text: &str,
    backend: &Backend,
) -> Result<Signal, Error> {
    use diesel::sql_types::{BigInt, Integer, Nullable};
    let conn = conn.pg();
    refresh(conn).await?;
    let statement = diesel::sql_query(text)
        .bind::<Integer, _>(backend.pid)
        .bind::<Nullable<BigInt>, _>(backend.started);
    let answers: Result<Vec<signal::Answer>, _> =
        diesel_async::RunQueryDsl::load(statement, conn).await;
    Ok(Signal::of(&answers.map_err(Error::Database)?))
}

/// In a transaction, what backends do would be shown as it was when the transaction looked first.
async fn refresh<L: Link>(conn: &mut L) -> Result<(), Error> {
    if matches!(depth(conn), Ok(None)) {
        return Ok(());
    }
    conn.execute(sql::FRESH).await.map_err(Error::Database)
}
