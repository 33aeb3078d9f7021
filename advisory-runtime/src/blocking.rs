//! The same locks on Diesel's blocking connections.
//!
//! What `#[advisory_lock]` expands to on a plain `fn`. Statements, errors and guarantees are those of [`xact`](crate::xact) and
//! [`session`](crate::session), with two differences that a blocking body brings: nothing can drop it, so `max_hold` is looked
//! at when it returns, where a commit that comes too late is refused; and nothing is cancelled, since no statement runs when a
//! panic unwinds through the call.

use crate::guard::Place;
use crate::link::{Cancel, Link, Sent};
use crate::prepared::{self, Session};
use crate::{Error, Request, sql};
use diesel::QueryResult;
use diesel::connection::{
    AnsiTransactionManager, LoadConnection, SimpleConnection, TransactionManager,
    TransactionManagerStatus,
};
use diesel::pg::{GetPgMetadataCache, Pg, PgConnection, PgMetadataCacheKey};
use diesel::sql_types::{Nullable, Text};
use diesel::{Connection as _, RunQueryDsl};
use std::borrow::Cow;

/// The live locks by name: see [`crate::monitor`] for what is seen.
pub mod monitor {
    pub use crate::monitor::blocking::{cancel, locks, terminate};
    #[cfg(feature = "diesel-async")]
    pub use crate::monitor::blocking::{claims, leases};
}

/// One lock or several, held on a blocking connection. Dropping it, as a panic does, rolls back and releases at once.
pub type Held<'o, O> = crate::guard::Held<'o, O, PgConnection>;

/// A blocking connection on which locks can be taken: a [`PgConnection`], or one that a pool lends.
///
/// The pooled connections of r2d2 implement it under the feature `r2d2`. A wrapper of your own implements it by handing out the
/// connection inside.
#[diagnostic::on_unimplemented(
    message = "an advisory lock can't be taken on `{Self}`",
    label = "expected `PgConnection` or a pooled connection of it",
    note = "a plain `fn` takes its lock on blocking Diesel, an `async fn` on diesel-async; for pooled connections enable the \
            feature `r2d2` of `advisory-runtime`; a generic function writes `C: advisory_runtime::blocking::Connection`"
)]
pub trait Connection: LoadConnection<Backend = Pg> {
    /// The PostgreSQL connection itself.
    fn pg(&mut self) -> &mut PgConnection;

    #[doc(hidden)]
    fn place(&mut self) -> (&mut PgConnection, bool) {
        (self.pg(), false)
    }
}

impl Connection for PgConnection {
    fn pg(&mut self) -> &mut PgConnection {
        self
    }
}

#[cfg(feature = "r2d2")]
impl Connection for diesel::r2d2::PooledConnection<diesel::r2d2::ConnectionManager<PgConnection>> {
    fn pg(&mut self) -> &mut PgConnection {
        self
    }
}

impl Link for PgConnection {
    type Runtime = ();

    fn runtime() {}

    /// Diesel tells nobody which session its connection is. What it remembers of the types of a database belongs to the connection
    /// and ends with it: there our own number stands, as that of a type that no database has.
    fn session(&mut self) -> Option<Session> {
        let ours = PgMetadataCacheKey::new(
            Some(Cow::Borrowed("advisory-runtime")),
            Cow::Borrowed("session"),
        );
        let known = self.get_metadata_cache();
        let number = known.lookup_type(&ours).and_then(|kept| kept.oid().ok());
        let number = number.unwrap_or_else(|| {
            let number = prepared::next_number();
            known.store_type(ours, (number, 0));
            number
        });
        Some(prepared::numbered(number))
    }

    async fn execute(&mut self, message: &str) -> QueryResult<()> {
        self.batch_execute(message)
    }

    async fn ask(&mut self, question: &str) -> QueryResult<Option<String>> {
        diesel::dsl::sql::<Nullable<Text>>(question).get_result(self)
    }

    async fn execute_and_ask(
        &mut self,
        message: &str,
        _all: &str,
    ) -> QueryResult<QueryResult<Option<String>>> {
        self.batch_execute(message)?;
        Ok(diesel::dsl::sql::<Nullable<Text>>(sql::STEP).get_result(self))
    }

    fn status(&mut self) -> &mut TransactionManagerStatus {
        AnsiTransactionManager::transaction_manager_status_mut(self)
    }

    fn is_broken(&mut self) -> bool {
        AnsiTransactionManager::is_broken_transaction_manager(self)
    }

    /// Diesel looks at the connection behind each statement of the body; diesel-async does not.
    fn lost(&mut self) -> Option<diesel::result::Error> {
        let lost = self.batch_execute(sql::PROBE).err();
        lost.filter(crate::error::is_connection_lost)
    }

    fn reset(&mut self) {
        *self.transaction_state() = AnsiTransactionManager::default();
    }

    fn can_cancel(&mut self, (): &()) -> Cancel {
        Cancel::Needless
    }

    /// Waits for the answer: what is left behind has nobody else to see to it.
    fn enqueue(&mut self, message: &str) {
        if self.batch_execute(message).is_err() {
            // What it was to undo is gone already, and Diesel's own connection asks nobody before it sends the next statement.
            now(crate::finish::doom(self));
        }
    }

    fn cancel(&mut self, (): ()) -> Sent {
        Box::pin(std::future::ready(false))
    }
}

/// Runs a future that never waits: every step of it is a blocking call.
fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}

/// Every step of a blocking connection is a call that has returned, so there is always an answer.
pub(crate) fn answered<T>(future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    now(future).unwrap_or(Err(Error::Database(
        diesel::result::Error::BrokenTransactionManager,
    )))
}

#[doc(hidden)]
pub fn begin_at<O: ?Sized>(
    owner: &mut O,
    place: Place<O, PgConnection>,
    request: Request,
) -> Result<Held<'_, O>, Error> {
    answered(crate::begin::begin(owner, place, request))
}

#[doc(hidden)]
pub fn acquire_at<O: ?Sized>(
    owner: &mut O,
    place: Place<O, PgConnection>,
    request: Request,
) -> Result<Held<'_, O>, Error> {
    answered(crate::begin::acquire(owner, place, request))
}

#[doc(hidden)]
pub fn finish_at<O: ?Sized>(held: Held<'_, O>, is_ok: bool) -> Result<(), Error> {
    answered(crate::finish::finish(held, is_ok))
}

fn finish<T, E: From<Error>, O: ?Sized>(held: Held<'_, O>, result: Result<T, E>) -> Result<T, E> {
    finish_at(held, result.is_ok())?;
    result
}

/// Transaction-level locks on blocking connections.
pub mod xact {
    use super::{Connection, Error, Held, Request, begin_at};

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
        begin_at(conn, C::place, request.into().made_here())
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
}

/// Session-level locks on blocking connections.
pub mod session {
    use super::{Connection, Error, Held, Request, acquire_at};

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
        acquire_at(conn, C::place, request.into().made_here())
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

    /// Shows on two connections that a session-level lock of one keeps the other out; as [`crate::session::verify`].
    ///
    /// # Locking
    ///
    /// As [`crate::session::verify`].
    ///
    /// # Errors
    ///
    /// As [`crate::session::verify`].
    pub fn verify<C: Connection>(first: &mut C, second: &mut C) -> Result<(), Error> {
        super::answered(crate::verify::verify(first.pg(), second.pg()))
    }
}
