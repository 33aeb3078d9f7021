//! The same locks on Diesel's blocking connections.
//!
//! `#[advisory_lock]` on a plain `fn` expands to these functions. Statements, errors and guarantees are those of
//! [`xact`](crate::xact) and [`session`](crate::session), with two differences. A blocking body cannot be dropped, so `max_hold` is
//! checked when it returns, and a commit that comes too late is refused. And nothing is cancelled, since no statement runs when a
//! panic unwinds through the call.

mod pool;

pub use crate::connection::blocking::Connection;
use crate::driver::answered;
use crate::lock::{self, Place};
use crate::{Error, Request};
use diesel::pg::PgConnection;
pub use pool::Pool;

/// The live locks by name: see [`crate::monitor`].
pub mod monitor {
    pub use crate::monitor::blocking::{cancel, holders, locks, terminate};
    #[cfg(feature = "diesel-async")]
    pub use crate::monitor::blocking::{claims, leases};
}

/// One lock or several, held on a blocking connection. Dropping it, as a panic does, rolls back and releases at once.
pub type Held<'o, O> = lock::Held<'o, O, PgConnection>;

#[doc(hidden)]
pub fn begin_at<O: ?Sized>(
    owner: &mut O,
    place: Place<O, PgConnection>,
    request: Request,
) -> Result<Held<'_, O>, Error> {
    answered(lock::begin(owner, place, request))
}

#[doc(hidden)]
pub fn acquire_at<O: ?Sized>(
    owner: &mut O,
    place: Place<O, PgConnection>,
    request: Request,
) -> Result<Held<'_, O>, Error> {
    answered(lock::acquire(owner, place, request))
}

#[doc(hidden)]
pub fn finish_at<O: ?Sized>(held: Held<'_, O>, is_ok: bool) -> Result<(), Error> {
    answered(lock::finish(held, is_ok))
}

fn finish<T, E: From<Error>, O: ?Sized>(held: Held<'_, O>, result: Result<T, E>) -> Result<T, E> {
    finish_at(held, result.is_ok())?;
    result
}

/// Transaction-level locks on blocking connections.
pub mod xact {
    use super::{Connection, Error, Held, Request, begin_at};
    use crate::Acquired;

    /// Opens a transaction that holds the locks; as [`crate::xact::begin`].
    ///
    /// # Locking
    ///
    /// As [`crate::xact::begin`], in one round trip; with [`Wait::Never`](crate::Wait::Never) in two.
    ///
    /// # Errors
    ///
    /// As [`crate::xact::begin`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use advisory_runtime::{Error, blocking::xact};
    /// use diesel::pg::PgConnection;
    ///
    /// fn f(conn: &mut PgConnection) -> Result<(), Error> {
    ///     let mut held = xact::begin(conn, 42)?;
    ///     let result: Result<(), Error> = work(held.conn());
    ///     xact::finish(held, result)
    /// }
    /// # fn work(_: &mut PgConnection) -> Result<(), Error> { Ok(()) }
    /// ```
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn begin<C: Connection>(
        conn: &mut C,
        request: impl Into<Request>,
    ) -> Result<Held<'_, C>, Error> {
        begin_at(conn, C::pg, request.into().with_origin())
    }

    /// Commits if the result is `Ok`, rolls back if it is `Err`, and releases the locks; as [`crate::xact::finish`].
    ///
    /// # Locking
    ///
    /// As [`crate::xact::finish`].
    ///
    /// # Errors
    ///
    /// As [`crate::xact::finish`].
    pub fn finish<T, E, O>(held: Held<'_, O>, result: Result<T, E>) -> Result<T, E>
    where
        E: From<Error>,
        O: ?Sized,
    {
        super::finish(held, result)
    }

    /// Takes the locks in the middle of an open transaction, which holds them until its end; as [`crate::xact::lock`].
    ///
    /// # Locking
    ///
    /// As [`crate::xact::lock`].
    ///
    /// # Errors
    ///
    /// As [`crate::xact::lock`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use advisory_runtime::{Error, blocking::xact};
    /// use diesel::Connection;
    /// use diesel::pg::PgConnection;
    ///
    /// fn f(conn: &mut PgConnection) -> Result<(), Error> {
    ///     conn.transaction(|conn| {
    ///         let account = account_of(conn)?;
    ///         xact::lock(conn, account)?;
    ///         // …
    ///         Ok(())
    ///     })
    /// }
    /// # fn account_of(_: &mut PgConnection) -> Result<i64, Error> { Ok(1) }
    /// ```
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock<C: Connection>(
        conn: &mut C,
        request: impl Into<Request>,
    ) -> Result<Acquired, Error> {
        let request = request.into().with_origin();
        super::answered(crate::lock::lock(conn, C::pg, request))
    }

    /// Takes the lock in the middle of an open transaction if it is free, and returns whether it was; as [`crate::xact::try_lock`].
    ///
    /// # Locking
    ///
    /// As [`crate::xact::try_lock`].
    ///
    /// # Errors
    ///
    /// As [`crate::xact::try_lock`].
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_lock<C: Connection>(
        conn: &mut C,
        request: impl Into<Request>,
    ) -> Result<bool, Error> {
        let request = request.into().with_origin();
        super::answered(crate::lock::try_lock(conn, C::pg, request))
    }
}

/// Session-level locks on blocking connections.
pub mod session {
    use super::{Connection, Error, Held, Pool, Request, acquire_at};
    pub use crate::lock::OwnedLockError;
    use diesel::pg::PgConnection;

    /// One session-level lock or several, and the blocking connection that holds them.
    pub type OwnedLock<C> = crate::lock::OwnedLock<C, PgConnection>;

    /// Takes session-level locks; as [`crate::session::acquire`].
    ///
    /// # Locking
    ///
    /// As [`crate::session::acquire`].
    ///
    /// # Errors
    ///
    /// As [`crate::session::acquire`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use advisory_runtime::{Error, Request, Wait, blocking::session};
    /// use diesel::pg::PgConnection;
    ///
    /// fn f(conn: &mut PgConnection) -> Result<(), Error> {
    ///     let mut held = session::acquire(conn, Request::new(42).wait(Wait::Never))?;
    ///     let result: Result<(), Error> = work(held.conn());
    ///     session::release(held, result)
    /// }
    /// # fn work(_: &mut PgConnection) -> Result<(), Error> { Ok(()) }
    /// ```
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn acquire<C: Connection>(
        conn: &mut C,
        request: impl Into<Request>,
    ) -> Result<Held<'_, C>, Error> {
        acquire_at(conn, C::pg, request.into().with_origin())
    }

    /// Takes session-level locks on a connection that the guard owns; as [`crate::session::acquire_owned`].
    ///
    /// The connection is a `PgConnection`, or a pooled one of r2d2 by value. Dropping the guard rolls back and releases the lock at
    /// once, and the connection goes back to its pool.
    ///
    /// # Locking
    ///
    /// As [`crate::session::acquire_owned`].
    ///
    /// # Errors
    ///
    /// As [`crate::session::acquire_owned`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use advisory_runtime::{Error, Request, Wait, blocking::session};
    /// use diesel::pg::PgConnection;
    ///
    /// fn export(conn: PgConnection, files: &[&str]) -> Result<PgConnection, Error> {
    ///     let mut lock = session::acquire_owned(conn, Request::new(42).wait(Wait::Never))?;
    ///     for file in files {
    ///         upload(file); // takes minutes
    ///         lock.check()?;
    ///     }
    ///     Ok(lock.release()?)
    /// }
    /// # fn upload(_: &str) {}
    /// ```
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn acquire_owned<C: Connection>(
        connection: C,
        request: impl Into<Request>,
    ) -> Result<OwnedLock<C>, OwnedLockError<C>> {
        let request = request.into().with_origin();
        super::answered(crate::lock::acquire_owned(connection, C::pg, request))
    }

    /// Takes session-level locks on a connection of a pool, which has it while this waits; as [`crate::session::acquire_from`].
    ///
    /// Dropping the guard rolls back and releases the lock at once, and the connection goes back to its pool.
    ///
    /// # Locking
    ///
    /// As [`crate::session::acquire_from`].
    ///
    /// # Errors
    ///
    /// As [`crate::session::acquire_from`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use advisory_runtime::{Error, Request, blocking::session};
    /// use diesel::pg::PgConnection;
    /// use diesel::r2d2::{ConnectionManager, Pool};
    /// use std::time::Duration;
    ///
    /// fn import(pool: &Pool<ConnectionManager<PgConnection>>) -> Result<(), Error> {
    ///     let request = Request::new(42).wait(Duration::from_secs(600));
    ///     let lock = session::acquire_from(pool, request)?;
    ///     // …
    ///     lock.release()?;
    ///     Ok(())
    /// }
    /// ```
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn acquire_from<P: Pool + ?Sized>(
        pool: &P,
        request: impl Into<Request>,
    ) -> Result<OwnedLock<P::Connection>, Error> {
        let connect = || std::future::ready(pool.connection());
        let request = request.into().with_origin();
        super::answered(crate::lock::acquire_from(connect, Connection::pg, request))
    }

    /// Releases the locks; as [`crate::session::release`].
    ///
    /// # Locking
    ///
    /// As [`crate::session::release`].
    ///
    /// # Errors
    ///
    /// As [`crate::session::release`].
    pub fn release<T, E, O>(held: Held<'_, O>, result: Result<T, E>) -> Result<T, E>
    where
        E: From<Error>,
        O: ?Sized,
    {
        super::finish(held, result)
    }

    /// Checks with two connections that session-level locks exclude each other; as [`crate::session::verify`].
    ///
    /// # Locking
    ///
    /// As [`crate::session::verify`].
    ///
    /// # Errors
    ///
    /// As [`crate::session::verify`].
    pub fn verify<C: Connection>(first: &mut C, second: &mut C) -> Result<(), Error> {
        super::answered(crate::lock::verify(first.pg(), second.pg()))
    }
}
