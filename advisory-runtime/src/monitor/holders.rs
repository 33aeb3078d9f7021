//! The holders of the lock or the lease that a call did not get.

use super::{Activity, Backend, Holder, HolderId, Lock, Locks, Names, State, row, sql};
use crate::driver::{Driver, Queries, depth};
use crate::error::is_connection_lost;
#[cfg(feature = "diesel-async")]
use crate::lease;
use crate::{Error, Key, Mode};
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// A holder of a lock or a lease that a call did not get, from [`holders`](super::holders).
///
/// Its `Display` is one line for a log:
///
/// ```text
/// advisory lock `room:<room>` is held by process 19914 (booking-service): idle in transaction for 58.0s, in a transaction of 60.1s
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockHolder {
    /// The lock, as the error calls it: its key pattern, or its key.
    pub lock: Cow<'static, str>,
    /// Its holder.
    pub held_by: HeldBy,
}

/// The holder of a lock.
#[cfg_attr(
    not(feature = "diesel-async"),
    expect(
        clippy::large_enum_variant,
        reason = "a lease's row is as large as a backend"
    )
)]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeldBy {
    /// A session.
    #[non_exhaustive]
    Backend {
        /// The number of the lock.
        key: Key,
        /// The mode in which it is held.
        mode: Mode,
        /// Its process id, application name and activity.
        backend: Backend,
    },
    /// A transaction that was prepared for a two-phase commit. It belongs to no session.
    #[non_exhaustive]
    Prepared {
        /// The number of the lock.
        key: Key,
        /// The mode in which it is held.
        mode: Mode,
        /// Its global identifier.
        gid: String,
        /// The role that prepared it.
        owner: String,
        /// The time since it was prepared.
        age: Duration,
    },
    /// A lease, by its row.
    #[cfg(feature = "diesel-async")]
    Lease(lease::Row),
}

impl LockHolder {
    /// Returns the process id of the holder's session, if it is one.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.backend().map(|backend| backend.pid)
    }

    /// Returns the session's `application_name`, or the name of a lease's holder.
    #[must_use]
    pub fn application(&self) -> Option<&str> {
        match &self.held_by {
            HeldBy::Backend { backend, .. } => Some(&backend.application),
            HeldBy::Prepared { .. } => None,
            #[cfg(feature = "diesel-async")]
            HeldBy::Lease(row) => Some(&row.holder),
        }
    }

    /// Returns the session's state; `None` if this role may not see it.
    #[must_use]
    pub fn state(&self) -> Option<&State> {
        match &self.backend()?.activity {
            Activity::Visible { state, .. } => Some(state),
            Activity::Hidden { .. } | Activity::Gone => None,
        }
    }

    /// Returns the least time for which it has been held, like
    /// [`Holder::held_at_least`](super::Holder::held_at_least); for a lease, the time since it was
    /// granted.
    ///
    /// A lock can be older. A transaction-level lock is not older than the transaction, the age of
    /// which is in the [`activity`](Activity::Visible); a session-level lock can be.
    #[must_use]
    pub fn held_for(&self) -> Option<Duration> {
        match &self.held_by {
            HeldBy::Backend { backend, .. } => backend.silent_for(),
            HeldBy::Prepared { age, .. } => Some(*age),
            #[cfg(feature = "diesel-async")]
            HeldBy::Lease(row) => Some(row.age()),
        }
    }

    fn backend(&self) -> Option<&Backend> {
        match &self.held_by {
            HeldBy::Backend { backend, .. } => Some(backend),
            _ => None,
        }
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match &self.held_by {
            HeldBy::Backend { .. } | HeldBy::Prepared { .. } => "advisory lock",
            #[cfg(feature = "diesel-async")]
            HeldBy::Lease(_) => "lease",
        };
        write!(f, "{what} `{}` is held by ", self.lock)?;
        match &self.held_by {
            HeldBy::Backend { backend, .. } => fmt_backend(f, backend),
            HeldBy::Prepared {
                gid, owner, age, ..
            } => write!(
                f,
                "the prepared transaction `{gid}` of `{owner}` for at least {age:.1?}"
            ),
            #[cfg(feature = "diesel-async")]
            HeldBy::Lease(row) if row.is_done => write!(
                f,
                "nobody: `{}` has completed its work, and the key stays done for another {:.1?}",
                row.holder, row.remaining
            ),
            #[cfg(feature = "diesel-async")]
            HeldBy::Lease(row) => write!(
                f,
                "`{}` for {:.1?}, and expires in {:.1?} unless it is renewed",
                row.holder,
                row.age(),
                row.remaining
            ),
        }
    }
}

fn fmt_backend(f: &mut fmt::Formatter<'_>, backend: &Backend) -> fmt::Result {
    write!(f, "process {}", backend.pid)?;
    if !backend.application.is_empty() {
        write!(f, " ({})", backend.application)?;
    }
    match &backend.activity {
        Activity::Visible {
            state,
            state_age,
            transaction_age,
            ..
        } => {
            write!(f, ": {state} for {state_age:.1?}")?;
            match transaction_age {
                Some(age) => write!(f, ", in a transaction of {age:.1?}"),
                None => Ok(()),
            }
        }
        Activity::Hidden { needs } => {
            write!(f, ": its state is shown to members of `{needs}` only")
        }
        Activity::Gone => Ok(()),
    }
}

/// An error for a lock or a lease that is held: [`advisory_runtime::Error`](crate::Error) or
/// `advisory_runtime::lease::Error`.
pub trait Refused: refused::Refused {}

impl Refused for Error {}

#[cfg(feature = "diesel-async")]
impl Refused for lease::Error {}

mod refused {
    #![allow(missing_docs, reason = "nobody else implements it")]

    use super::LockHolder;
    use crate::driver::Queries;

    pub trait Refused: Sized {
        /// Reads the holders of the lock or the lease that is held; none if the call failed for
        /// another reason.
        fn holders<D: Queries>(
            &self,
            conn: &mut D,
        ) -> impl Future<Output = Result<Vec<LockHolder>, Self>> + Send;
    }
}

impl refused::Refused for Error {
    async fn holders<D: Queries>(&self, conn: &mut D) -> Result<Vec<LockHolder>, Self> {
        let (Self::NotAvailable { lock, busy } | Self::TimedOut { lock, busy, .. }) = self else {
            return Ok(Vec::new());
        };
        // Without keys it is not an error of a call.
        if busy.keys().is_empty() {
            return Ok(Vec::new());
        }
        check_usable(conn, lock.clone()).await?;
        let rows = row::read(conn).await.map_err(Error::Database)?;
        let seen = Locks::of(rows, &Names::none());
        let is_busy = |seen: &&Lock| busy.keys().contains(&seen.key);
        let held = seen.locks.iter().filter(is_busy).flat_map(|busy| {
            let holders = busy.holders.iter().cloned();
            holders.filter_map(|holder| held_by(busy.key, holder, &seen))
        });
        let named = held.map(|held_by| LockHolder {
            lock: lock.clone(),
            held_by,
        });
        Ok(named.collect())
    }
}

#[cfg(feature = "diesel-async")]
impl refused::Refused for lease::Error {
    async fn holders<D: Queries>(&self, conn: &mut D) -> Result<Vec<LockHolder>, Self> {
        let Self::Held { lock, busy, .. } = self else {
            return Ok(Vec::new());
        };
        let usable = check_usable(conn, lock.clone()).await;
        usable.map_err(|error| match error {
            Error::BrokenConnection { lock } => Self::BrokenConnection { lock },
            Error::InFailedTransaction { source, .. } | Error::Database(source) => {
                Self::Database(source)
            }
            error => Self::Database(error.into()),
        })?;
        let row = lease::Table::of(busy);
        let row = row.find_hash(conn, *busy.key_hash).await?;
        let holder = row.map(|row| LockHolder {
            lock: lock.clone(),
            held_by: HeldBy::Lease(row),
        });
        Ok(holder.into_iter().collect())
    }
}

/// Finds the holders of a lock or a lease that a call did not get, from the call's
/// [`Error::NotAvailable`], [`Error::TimedOut`] or
/// [`lease::Error::Held`](crate::lease::Error::Held).
///
/// These are the holders as of now, including whoever has completed the work of a lease in the
/// meantime. There are none if the holder is gone, for any other error, and for a lease in memory.
/// Every session that holds the lock in shared mode is a holder, even the caller's own. Use a
/// connection to the call's database: in another database the key is another lock. The module's
/// page says [what a role sees](super#what-a-role-sees) of them.
///
/// # Locking
///
/// It takes no lock and waits for nobody, like [`locks`](super::locks) and
/// [`Table::find`](crate::lease::Table::find).
///
/// # Errors
///
/// For a lock, [`Error::InFailedTransaction`] (25P02) if the connection's open transaction has
/// failed, [`Error::BrokenConnection`] if the connection is closed, and [`Error::Database`]. For a
/// lease, those of [`Table::find`](crate::lease::Table::find).
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::{Error, advisory_lock, monitor};
/// use diesel_async::AsyncPgConnection;
///
/// #[advisory_lock(key = "room:<room>", wait = "2s")]
/// async fn book(conn: &mut AsyncPgConnection, room: i64) -> Result<(), Error> {
///     # let _ = conn;
///     Ok(())
/// }
///
/// async fn book_and_tell(conn: &mut AsyncPgConnection, room: i64) -> Result<(), Error> {
///     let booked = book(conn, room).await;
///     if let Err(error) = &booked {
///         for holder in monitor::holders(conn, error).await? {
///             eprintln!("{holder}");
///         }
///     }
///     booked
/// }
/// ```
#[cfg(feature = "diesel-async")]
pub async fn holders<C: crate::Connection, E: Refused>(
    conn: &mut C,
    error: &E,
) -> Result<Vec<LockHolder>, E> {
    error.holders(conn.pg()).await
}

/// Checks that the connection can be used, and lets an open transaction read the activity of
/// sessions again.
async fn check_usable<D: Driver>(conn: &mut D, lock: Cow<'static, str>) -> Result<(), Error> {
    match depth(conn) {
        Ok(None) => Ok(()),
        Err(_) => Err(Error::BrokenConnection { lock }),
        Ok(Some(_)) => conn.execute(sql::FRESH).await.map_err(|source| {
            if is_connection_lost(&source) {
                Error::Database(source)
            } else {
                // Only a failed transaction refuses it.
                Error::InFailedTransaction { lock, source }
            }
        }),
    }
}

fn held_by(key: Key, holder: Holder, seen: &Locks) -> Option<HeldBy> {
    let mode = holder.mode;
    Some(match holder.id {
        HolderId::Backend(pid) => {
            let backend = seen.backend(pid)?.clone();
            if backend.activity == Activity::Gone {
                return None;
            }
            HeldBy::Backend { key, mode, backend }
        }
        HolderId::Prepared { gid, owner, age } => HeldBy::Prepared {
            key,
            mode,
            gid,
            owner,
            age,
        },
    })
}
