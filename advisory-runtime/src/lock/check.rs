//! Checks that a session still holds its locks.

use super::lock_info::LockInfo;
use super::way::refusal::{self, SessionState};
use crate::driver::Driver;
use crate::error::Marker;
use crate::{Error, sql};

pub(super) async fn check<D: Driver>(conn: &mut D, acquired: &LockInfo<D>) -> Result<(), Error> {
    let message = match (&acquired.at, &acquired.permits[..]) {
        (Some(rows), _) => sql::probe::takes_all(rows, acquired.held(), acquired.mode),
        (None, []) => sql::probe::holds_all(acquired.held(), acquired.mode),
        // A permit that was taken by text: that answer does not say which one it is.
        (None, permits) => sql::probe::holds(1, permits, acquired.mode),
    };
    let Err(source) = conn.execute(&message).await else {
        return Ok(());
    };
    let is_lost = Marker::of(&source) == Some(Marker::LockLost)
        || refusal::probe(conn, &source).await == SessionState::Lost;
    if !is_lost {
        return Err(Error::Database(source));
    }
    let lock = acquired.name();
    let source = Some(source);
    Err(Error::LockLost { lock, source })
}

#[cfg(feature = "diesel-async")]
impl LockInfo<diesel_async::AsyncPgConnection> {
    /// Asks the server whether the body's connection still holds the lock. For a body that does not
    /// use this connection for a long time, and must stop if the lock is lost.
    ///
    /// The lock can be lost right after the answer.
    /// [`OwnedLockGuard::lost`](crate::OwnedLockGuard::lost) waits for the end of the connection
    /// instead.
    ///
    /// # Locking
    ///
    /// One round trip: a `SELECT` of `pg_locks` that fails unless this session holds every key in
    /// the lock's mode. With [permits](crate::Request::permits) it must hold the permit that was
    /// taken. Behind a pooler that does not track prepared statements, any permit of the lock will
    /// do.
    ///
    /// # Errors
    ///
    /// [`Error::LockLost`] if a key is not held, or if the connection was lost. [`Error::Database`]
    /// for any other error, such as in a failed transaction.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future has no effect on the lock.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use advisory_runtime::{Error, advisory_lock};
    /// use diesel_async::AsyncPgConnection;
    ///
    /// #[advisory_lock(key = "export", scope = "session", handle = lock)]
    /// async fn export(conn: &mut AsyncPgConnection, files: &[&str]) -> Result<(), Error> {
    ///     for file in files {
    ///         upload(file).await; // takes minutes, and uses no connection
    ///         lock.check(conn).await?;
    ///     }
    ///     Ok(())
    /// }
    /// # async fn upload(_: &str) {}
    /// # fn main() {}
    /// ```
    pub async fn check<C: crate::Connection>(&self, conn: &mut C) -> Result<(), Error> {
        check(conn.pg(), self).await
    }
}

#[cfg(feature = "postgres")]
impl LockInfo<diesel::pg::PgConnection> {
    /// Asks the server, in one round trip, whether the body's connection still holds the lock. If
    /// not, or if the connection was lost, the error is [`Error::LockLost`]; any other, such as in a
    /// failed transaction, is [`Error::Database`].
    pub fn check<C: crate::connection::blocking::Connection>(
        &self,
        conn: &mut C,
    ) -> Result<(), Error> {
        crate::driver::block_on(check(conn.pg(), self))
    }
}
