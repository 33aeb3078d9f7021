//! The holders of the lock or the lease that a call did not get.

use super::{Activity, Backend, Holder, HolderId, Locks, Names, State, row, sql};
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

    /// Returns the least time for which it has been held: for a session that runs no statement, the
    /// time since its last one; for a prepared transaction, the time since it was prepared; for a
    /// lease, the time since it was granted.
    ///
    /// The server does not record when a lock was granted, so it can be older. `None` for a session
    /// that runs a statement, and if this role may not see the session's activity. A
    /// transaction-level lock is not older than the transaction, the age of which is in the
    /// [`activity`](Activity::Visible); a session-level lock can be.
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

    #[cfg(feature = "diesel-async")]
    use crate::lease;
    use crate::{BusyLock, Error};
    use std::borrow::Cow;

    pub trait Refused: Sized {
        /// Returns the lock or the lease that is held; `None` if the call failed for another reason.
        fn busy(&self) -> Option<(Cow<'static, str>, Busy<'_>)>;

        fn of_failure(failure: Failure) -> Self;
    }

    pub enum Busy<'e> {
        Lock(&'e BusyLock),
        #[cfg(feature = "diesel-async")]
        Lease(&'e lease::BusyKey),
    }

    pub enum Failure {
        Lock(Error),
        #[cfg(feature = "diesel-async")]
        Lease(lease::Error),
    }
}

use refused::{Busy, Failure};

impl refused::Refused for Error {
    fn busy(&self) -> Option<(Cow<'static, str>, Busy<'_>)> {
        match self {
            // Without keys it is not an error of a call.
            Self::NotAvailable { lock, busy } | Self::TimedOut { lock, busy, .. }
                if !busy.keys().is_empty() =>
            {
                Some((lock.clone(), Busy::Lock(busy)))
            }
            _ => None,
        }
    }

    fn of_failure(failure: Failure) -> Self {
        match failure {
            Failure::Lock(error) => error,
            #[cfg(feature = "diesel-async")]
            Failure::Lease(error) => Self::Database(error.into()),
        }
    }
}

#[cfg(feature = "diesel-async")]
impl refused::Refused for lease::Error {
    fn busy(&self) -> Option<(Cow<'static, str>, Busy<'_>)> {
        match self {
            Self::Held { lock, busy, .. } => Some((lock.clone(), Busy::Lease(busy))),
            _ => None,
        }
    }

    fn of_failure(failure: Failure) -> Self {
        match failure {
            Failure::Lock(Error::BrokenConnection { lock }) => Self::BrokenConnection { lock },
            Failure::Lock(Error::InFailedTransaction { source, .. } | Error::Database(source)) => {
                Self::Database(source)
            }
            Failure::Lock(error) => Self::Database(error.into()),
            Failure::Lease(error) => error,
        }
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
    holders_on(conn.pg(), error).await
}

pub(crate) async fn holders_on<D: Queries, E: Refused>(
    conn: &mut D,
    error: &E,
) -> Result<Vec<LockHolder>, E> {
    let Some((lock, busy)) = error.busy() else {
        return Ok(Vec::new());
    };
    let read = read_holders(conn, lock, busy).await;
    read.map_err(E::of_failure)
}

async fn read_holders<D: Queries>(
    conn: &mut D,
    lock: Cow<'static, str>,
    busy: Busy<'_>,
) -> Result<Vec<LockHolder>, Failure> {
    check_usable(conn, lock.clone())
        .await
        .map_err(Failure::Lock)?;
    let named = |held_by| LockHolder {
        lock: lock.clone(),
        held_by,
    };
    match busy {
        Busy::Lock(busy) => {
            let rows = row::read(conn).await;
            let rows = rows.map_err(|error| Failure::Lock(Error::Database(error)))?;
            let seen = Locks::of(rows, &Names::none());
            let busy = seen
                .locks
                .iter()
                .filter(|seen| busy.keys().contains(&seen.key));
            let holders = busy.flat_map(|lock| lock.holders.iter().map(|it| (lock.key, it)));
            let holders = holders.filter_map(|(key, it)| held_by(key, it.clone(), &seen));
            Ok(holders.map(named).collect())
        }
        #[cfg(feature = "diesel-async")]
        Busy::Lease(busy) => {
            let (table, key_hash) = &*busy.0;
            let row = table.find_hash(conn, *key_hash).await;
            let row = row.map_err(Failure::Lease)?;
            Ok(row.map(HeldBy::Lease).map(named).into_iter().collect())
        }
    }
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
