//! Who holds the lock that a call did not get?

use super::{Activity, Backend, HolderId, Locks, Names, State, sql};
use crate::driver::{Driver, depth};
use crate::error::{Busy, is_connection_lost};
use crate::{Error, Key, Mode};
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// As the error has it.
type LockText = Cow<'static, str>;

/// A holder of a lock that a call did not get: what [`Error::holders`] gives.
///
/// Its text is one line for a log:
///
/// ```text
/// advisory lock `room:<room>` is held by process 19914 (booking-service): idle in transaction for 58.0s, in a transaction of 60.1s
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockHolder {
    /// The lock, as the error calls it: its key pattern, or its key.
    pub lock: Cow<'static, str>,
    /// What holds it.
    pub held_by: HeldBy,
}

/// What holds a lock, and what is known of it.
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
    /// A transaction that was prepared for a two-phase commit, which belongs to no session.
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
        /// How long ago it was prepared.
        age: Duration,
    },
    /// A lease, by its row.
    #[cfg(feature = "diesel-async")]
    Lease(crate::lease::Row),
}

impl LockHolder {
    /// The process id of the session, where it is one.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.backend().map(|backend| backend.pid)
    }

    /// The session's `application_name`; of a lease what its holder calls itself.
    #[must_use]
    pub fn application(&self) -> Option<&str> {
        match &self.held_by {
            HeldBy::Backend { backend, .. } => Some(&backend.application),
            HeldBy::Prepared { .. } => None,
            #[cfg(feature = "diesel-async")]
            HeldBy::Lease(row) => Some(&row.holder),
        }
    }

    /// Whether the session runs a statement, and whether it has an open transaction; `None` where this role may not see it.
    #[must_use]
    pub fn state(&self) -> Option<&State> {
        match &self.backend()?.activity {
            Activity::Visible { state, .. } => Some(state),
            Activity::Hidden { .. } | Activity::Gone => None,
        }
    }

    /// Since when it has been held, as the server knows it: since a lease was granted; for at most the age of the session's open
    /// transaction, or of the prepared one. `None` for a session outside of a transaction, and where this role may not see it: the
    /// server does not note when a lock was granted.
    #[must_use]
    pub fn held_for(&self) -> Option<Duration> {
        match &self.held_by {
            HeldBy::Backend { backend, .. } => match backend.activity {
                Activity::Visible {
                    transaction_age, ..
                } => transaction_age,
                Activity::Hidden { .. } | Activity::Gone => None,
            },
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
        write!(f, "{} is held by ", crate::error::Subject(&self.lock))?;
        match &self.held_by {
            HeldBy::Backend { backend, .. } => fmt_backend(f, backend),
            HeldBy::Prepared {
                gid, owner, age, ..
            } => write!(
                f,
                "the prepared transaction `{gid}` of `{owner}` for {age:.1?}"
            ),
            #[cfg(feature = "diesel-async")]
            HeldBy::Lease(row) if row.is_kept => write!(
                f,
                "nobody and kept for another {:.1?}: `{}` has done its work",
                row.remaining, row.holder
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

impl Error {
    /// Asks who holds the lock that the call did not get: of [`Error::NotAvailable`] and [`Error::TimedOut`].
    ///
    /// Nothing is asked unless the program asks. The answer is as of now: empty where the holder has gone meanwhile, where this error is
    /// of another kind, and where the lock was asked for in another database than this connection's. A session that holds the lock in
    /// shared mode is a holder too, also where it is the caller's own. Of a lease it is the row of its table; of a lease in memory
    /// nobody is known.
    ///
    /// # Locking
    ///
    /// That of [`monitor::locks`](crate::monitor::locks): one `SELECT` of `pg_locks` and `pg_stat_activity`, which takes no lock and waits
    /// for nobody. In an open transaction `pg_stat_clear_snapshot()` runs before it. Of a lease that of
    /// [`Table::find`](crate::lease::Table::find).
    ///
    /// What other roles' sessions do is shown to members of `pg_monitor` only. For other roles a holder has its process id and application
    /// name, and its activity is [`Activity::Hidden`](crate::monitor::Activity::Hidden).
    ///
    /// # Errors
    ///
    /// [`Error::InFailedTransaction`] (25P02) on a connection with an open transaction that has failed, [`Error::BrokenConnection`] on a
    /// closed one: ask on another. [`Error::MissingTable`] of a lease, and [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use advisory_runtime::{Error, advisory_lock};
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
    ///         for holder in error.holders(conn).await? {
    ///             eprintln!("{holder}");
    ///         }
    ///     }
    ///     booked
    /// }
    /// ```
    #[cfg(feature = "diesel-async")]
    pub async fn holders<C: crate::Connection>(
        &self,
        conn: &mut C,
    ) -> Result<Vec<LockHolder>, Self> {
        let Some((lock, busy)) = self.busy() else {
            return Ok(Vec::new());
        };
        let conn = conn.pg();
        check_usable(conn, lock).await?;
        match busy {
            Busy::Keys(keys) => {
                let rows = diesel_async::RunQueryDsl::load(diesel::sql_query(sql::LOCKS), conn);
                let seen = Locks::of(rows.await.map_err(Self::Database)?, &Names::none());
                Ok(holders_of(lock, keys, &seen))
            }
            Busy::Lease(table, hash) => {
                let table = crate::lease::Table::new().named(table)?;
                let row = table.find_hash(conn, *hash).await?;
                Ok(row.map(|row| leased(lock, row)).into_iter().collect())
            }
        }
    }

    /// [`holders`](Self::holders) on a connection of blocking Diesel.
    ///
    /// # Locking
    ///
    /// As [`holders`](Self::holders).
    ///
    /// # Errors
    ///
    /// As [`holders`](Self::holders).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use advisory_runtime::Error;
    ///
    /// fn tell(error: &Error, conn: &mut diesel::PgConnection) -> Result<(), Error> {
    ///     for holder in error.holders_blocking(conn)? {
    ///         eprintln!("{holder}");
    ///     }
    ///     Ok(())
    /// }
    /// ```
    #[cfg(feature = "postgres")]
    pub fn holders_blocking<C: crate::blocking::Connection>(
        &self,
        conn: &mut C,
    ) -> Result<Vec<LockHolder>, Self> {
        let Some((lock, busy)) = self.busy() else {
            return Ok(Vec::new());
        };
        let conn = conn.pg();
        crate::driver::answered(check_usable(conn, lock))?;
        match busy {
            Busy::Keys(keys) => {
                let rows = diesel::RunQueryDsl::load(diesel::sql_query(sql::LOCKS), conn);
                let seen = Locks::of(rows.map_err(Self::Database)?, &Names::none());
                Ok(holders_of(lock, keys, &seen))
            }
            #[cfg(feature = "diesel-async")]
            Busy::Lease(table, hash) => {
                let table = crate::lease::Table::new().named(table)?;
                let row = table.find_hash_blocking(conn, *hash)?;
                Ok(row.map(|row| leased(lock, row)).into_iter().collect())
            }
            #[cfg(not(feature = "diesel-async"))]
            Busy::Lease(..) => Ok(Vec::new()),
        }
    }

    /// The lock, and what is known of it.
    fn busy(&self) -> Option<(&LockText, &Busy)> {
        match self {
            Self::NotAvailable { lock, busy } | Self::TimedOut { lock, busy, .. } => {
                Some((lock, busy.get()?))
            }
            _ => None,
        }
    }
}

/// Checks that the connection answers, and forgets the activity that its transaction has read before.
async fn check_usable<D: Driver>(conn: &mut D, lock: &LockText) -> Result<(), Error> {
    let lock = lock.clone();
    match depth(conn) {
        Ok(None) => Ok(()),
        Err(_) => Err(Error::BrokenConnection { lock }),
        Ok(Some(_)) => match conn.execute(sql::FRESH).await {
            Ok(()) => Ok(()),
            Err(source) if is_connection_lost(&source) => Err(Error::Database(source)),
            // Nothing else refuses it.
            Err(source) => Err(Error::InFailedTransaction { lock, source }),
        },
    }
}

fn holders_of(lock: &LockText, keys: &[Key], seen: &Locks) -> Vec<LockHolder> {
    let busy = seen.locks.iter().filter(|seen| keys.contains(&seen.key));
    let all = busy.flat_map(|lock| lock.holders.iter().map(|holder| (lock.key, holder)));
    let holders = all.filter_map(|(key, holder)| {
        let mode = holder.mode;
        let held_by = match &holder.id {
            HolderId::Backend(pid) => {
                let backend = seen.backend(*pid)?.clone();
                if backend.activity == Activity::Gone {
                    return None;
                }
                HeldBy::Backend { key, mode, backend }
            }
            HolderId::Prepared { gid, owner, age } => HeldBy::Prepared {
                key,
                mode,
                gid: gid.clone(),
                owner: owner.clone(),
                age: *age,
            },
        };
        let lock = lock.clone();
        Some(LockHolder { lock, held_by })
    });
    holders.collect()
}

#[cfg(feature = "diesel-async")]
fn leased(lock: &LockText, row: crate::lease::Row) -> LockHolder {
    let (lock, held_by) = (lock.clone(), HeldBy::Lease(row));
    LockHolder { lock, held_by }
}
