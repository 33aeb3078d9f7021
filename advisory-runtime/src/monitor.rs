//! Live locks by name: who holds one, who waits, and who blocks whom.
//!
//! `pg_locks` shows numbers. This module adds the names of the program's lock sites. A name is
//! certain if the number is fixed or its key is known. Other names come from the comment that a
//! locked call writes in front of its query; see [`Certainty`].
//!
//! ```
//! # #[cfg(feature = "diesel-async")]
//! # mod example {
//! use advisory_runtime::monitor::{self, Names};
//! use diesel_async::AsyncPgConnection;
//!
//! async fn who_waits(
//!     conn: &mut AsyncPgConnection,
//!     names: &Names,
//! ) -> Result<(), advisory_runtime::Error> {
//!     for lock in monitor::locks(conn, names).await?.locks {
//!         let name = lock.names.first().map_or("?", |name| &name.key);
//!         for waiter in &lock.waiters {
//!             let (pid, holders) = (waiter.pid, &waiter.held_by);
//!             eprintln!("{pid} waits for {name}, behind {holders:?}: {:?}", waiter.waited);
//!         }
//!     }
//!     Ok(())
//! }
//! # }
//! ```
//!
//! `cargo advisory locks` shows this on a terminal, and [stuck locks] says how to end one.
//!
#![doc = concat!("[stuck locks]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/v", env!("CARGO_PKG_VERSION"), "/docs/stuck-locks.md")]
//!
//! # What a role sees
//!
//! Every role sees the locks, process ids, users, application names and waits of all sessions. The
//! queries of other roles' sessions, with their states, ages and clients, are visible to members of
//! `pg_monitor`, or of `pg_read_all_stats`, which `pg_monitor` contains. To other roles they are
//! [`Activity::Hidden`]; names then come only from fixed numbers, from keys that the caller knows
//! ([`Names::with_key`]), and from the queries of their own role. Only [`cancel`] and [`terminate`]
//! need more privileges.
//!
//! # How a lock gets its name
//!
//! The message with which a locked call asks for its lock begins with a comment:
//!
//! ```sql
//! /*advisory:booking:<tenant_id>:<day>*/;
//! SET TRANSACTION ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE;
//! SELECT pg_catalog.pg_advisory_xact_lock(-4814109257161839213);BEGIN
//! ```
//!
//! PostgreSQL shows this message in `pg_stat_activity.query` while the call waits, and until the
//! body runs its first statement. The comment is the lock's name, and the number says which lock.
//! So a lock has a name if
//!
//! - its number is fixed, as for a pattern without placeholders and for `key = 42`, or its key was
//!   given to [`Names::with_key`];
//! - somebody waits for it, or has just tried to get it, and so names it;
//! - the last query of its holder is still the one that acquired it. A transaction-level try for
//!   one key does not count: it is prepared, without a comment and with the key as a parameter.
//!
//! A lock has only its number if nobody waits for it and its body has run statements. The server
//! keeps the first `track_activity_query_size` bytes of a query, by default 1,024, which can be too
//! few for the numbers of a call with many keys. It keeps none if `track_activities` is off. A call
//! that polls ([`Request::poll`](crate::Request::poll)) does not wait at the server: it is among
//! the tries, not among the waiters.
//!
//! The comment has the pattern. It does not have the rendered key, because that can contain
//! personal data, and queries are also written to the server's log. [`show`] changes that, with
//! [`Shown::Key`] or [`Shown::Nothing`]; `cargo advisory key --find` finds the values that give a
//! number. A lock that is a plain number has no comment. Any program can name its locks in this
//! way.
//!
//! # What it costs
//!
//! One statement, two round trips; 30 ms of the server for 5,000 locks and 40 waiters. It takes no
//! lock of its own. Like each read of `pg_locks`, it blocks for a moment all sessions that acquire
//! or release a lock: run it every second, not every millisecond. The functions that read are
//! cancel safe.
//!
//! The same functions for blocking connections are in
//! [`blocking::monitor`](crate::blocking::monitor).

mod backend;
#[cfg(feature = "diesel-async")]
mod claimed;
mod comment;
mod holders;
#[cfg(feature = "diesel-async")]
mod leases;
mod locks;
mod names;
mod row;
mod sql;

pub use crate::claim::Counts as Claims;
#[cfg(feature = "diesel-async")]
pub use crate::claim::counts as claims;
pub use crate::query_comment::{Shown, show, shown};
#[cfg(feature = "tracing")]
pub use crate::query_comment::{TraceContext, show_trace};
pub use crate::request::Scope;
pub use backend::{Activity, Backend, Signal, State};
pub use comment::{Comment, keys_of};
#[cfg(feature = "diesel-async")]
pub use holders::holders;
pub use holders::{HeldBy, LockHolder, Refused};
pub use locks::{Holder, HolderId, Lock, Locks, Try, Waiter};
pub use names::{Certainty, Name, Names};
#[cfg(feature = "diesel-async")]
pub use {
    claimed::{ClaimTable, ClaimTables, ClaimedRow, claim_tables, claimed_rows},
    leases::{Lease, LeaseCount, LeaseSummary, lease, lease_summary, leases, leases_by_hash},
};

use crate::Error;
use crate::driver::{Driver, Queries, depth};
#[cfg(all(feature = "postgres", feature = "diesel-async"))]
pub(crate) use leases::named;

/// Lists the advisory locks of the connection's database, in both key spaces.
///
/// # Locking
///
/// One `SELECT` of `pg_locks` and `pg_stat_activity`. In an open transaction
/// `pg_stat_clear_snapshot()` runs before it: otherwise the transaction would see what it read
/// first. No lock is acquired or waited for. Ages are by the server's clock.
///
/// # Errors
///
/// [`Error::Database`]. Activity that the role may not see is not an error, but
/// [`Activity::Hidden`].
#[cfg(feature = "diesel-async")]
pub async fn locks<C: crate::Connection>(conn: &mut C, names: &Names) -> Result<Locks, Error> {
    read(conn.pg(), names).await
}

/// Cancels the statement that a backend runs. An idle backend, and session-level locks, are not
/// affected.
///
/// A later backend with the same process id is left alone. If this role may not see when backends
/// start, that cannot be checked for a backend that holds an advisory lock or waits for one.
///
/// # Locking
///
/// `SELECT pg_cancel_backend(pid)`. Its client sees SQLSTATE 57014, and its transaction can only be
/// rolled back.
///
/// # Errors
///
/// [`Error::Database`]. A missing privilege is not an error, but [`Signal::Refused`].
///
/// # Cancel safety
///
/// Not cancel safe: the statement may be cancelled or not.
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::{Error, monitor::{self, Names, Signal}};
/// use diesel_async::AsyncPgConnection;
///
/// /// Cancels the statements of all sessions that hold this lock.
/// async fn cancel_holders(conn: &mut AsyncPgConnection, key: i64) -> Result<Vec<Signal>, Error> {
///     let seen = monitor::locks(conn, &Names::none()).await?;
///     let mut signals = Vec::new();
///     for lock in seen.locks.iter().filter(|lock| lock.key == key.into()) {
///         for holder in &lock.holders {
///             if let monitor::HolderId::Backend(pid) = holder.id
///                 && let Some(backend) = seen.backend(pid)
///             {
///                 signals.push(monitor::cancel(conn, backend).await?);
///             }
///         }
///     }
///     Ok(signals)
/// }
/// ```
#[cfg(feature = "diesel-async")]
pub async fn cancel<C: crate::Connection>(
    conn: &mut C,
    backend: &Backend,
) -> Result<Signal, Error> {
    signal(conn.pg(), backend.cancel_sql()).await
}

/// Terminates a backend's session: its transaction is rolled back and its locks are released. Waits
/// for the end for up to five seconds.
///
/// A later backend with the same process id is left alone, as by [`cancel`], whose errors it has.
///
/// # Locking
///
/// `SELECT pg_terminate_backend(pid, 5000)`. Its client sees SQLSTATE 57P01, or a lost connection.
///
/// # Cancel safety
///
/// Not cancel safe: the session may be terminated or not.
#[cfg(feature = "diesel-async")]
pub async fn terminate<C: crate::Connection>(
    conn: &mut C,
    backend: &Backend,
) -> Result<Signal, Error> {
    signal(conn.pg(), backend.terminate_sql()).await
}

pub(crate) async fn read<D: Queries>(conn: &mut D, names: &Names) -> Result<Locks, Error> {
    refresh(conn).await?;
    let rows = row::read(conn).await.map_err(Error::Database)?;
    Ok(Locks::of(rows, names))
}

/// Sends a statement of [`Backend::cancel_sql`] or [`Backend::terminate_sql`].
pub(crate) async fn signal<D: Driver>(conn: &mut D, statement: String) -> Result<Signal, Error> {
    refresh(conn).await?;
    let answer = conn.query_text(&statement).await.map_err(Error::Database)?;
    Ok(Signal::of(answer.as_deref()))
}

async fn refresh<D: Driver>(conn: &mut D) -> Result<(), Error> {
    if matches!(depth(conn), Ok(None)) {
        return Ok(());
    }
    conn.execute(sql::FRESH).await.map_err(Error::Database)
}
