//! Makes a transaction's writes conditional on a lease, and ends the lease in the same commit.

use super::sql::Form;
use super::statement::Statement;
use super::{Error, Lease};
use crate::Connection;
use crate::driver::{Driver, Queries, depth};
use crate::rows::Inside;
use diesel::dsl::{AsExprOf, sql};
use diesel::expression::{SqlLiteral, UncheckedBind};
use diesel::result::Error as DieselError;
use diesel::sql_types::{BigInt, Binary, Bool, Nullable, Text};

impl Lease {
    /// Checks in the open transaction that the token is current, and keeps others from the key
    /// until the transaction ends.
    ///
    /// Call it first in the transaction that writes. A holder that was stopped past its expiry is
    /// refused here.
    ///
    /// # Locking
    ///
    /// `SELECT … FOR KEY SHARE` of the lease's row, in one round trip; the row lock is held until
    /// the transaction ends. It blocks take-overs, also past the expiry, but not renewals. If the
    /// writer stops, the server ends its session when the lease would have expired:
    /// `idle_in_transaction_session_timeout` is set to the remaining time for this transaction,
    /// unless it is shorter already. It does not end a running statement: set `statement_timeout`
    /// for that.
    ///
    /// # Errors
    ///
    /// Roll back after [`Error::Lost`] (the token is not current) and [`Error::Database`], such as
    /// 40001 in a REPEATABLE READ transaction whose snapshot is older than a take-over. Under such
    /// a level, fence before anything else reads: the snapshot does not show later renewals.
    /// [`Error::NotInTransaction`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future leaves the transaction open.
    ///
    /// # Examples
    ///
    /// See [leases](crate::guide::leases).
    pub async fn fence<C: Connection>(&self, conn: &mut C) -> Result<(), Error> {
        self.fence_on(conn.pg()).await
    }

    pub(crate) async fn fence_on<D: Queries>(&self, conn: &mut D) -> Result<(), Error> {
        self.require_transaction(conn)?;
        let (table, values, lock) = (&self.table, self.values(), || self.name());
        if table.affects(conn, Form::Fence, &values, lock).await? {
            return Ok(());
        }
        self.hold.lose();
        Err(self.lost_because(None))
    }

    /// Marks the work as done in the transaction that writes its results: both are committed, or
    /// neither is. The key is then done for the request's `keep`.
    ///
    /// Only this makes the work happen *once*. With `keep` alone, the work runs again if the
    /// process dies between its commit and the end of the call. Call it last in the transaction: it
    /// ends the lease, so a later [`fence`](Self::fence) is refused. If the transaction is rolled
    /// back, the lease goes on, unless it has expired meanwhile; an `Ok` of the body is then
    /// refused ([`Error::RolledBack`]), unless the body has completed again.
    ///
    /// Return when the transaction has ended. A body that has not returned a `ttl` after this call,
    /// at least ten seconds, is dropped ([`Error::CommitUnknown`]), since the answer to its commit
    /// may never come. What takes longer belongs after the locked call.
    ///
    /// # Locking
    ///
    /// One round trip marks the row as done if the token is current, and locks it until the
    /// transaction ends. Others find the key held until then, also past the expiry, and done after
    /// the commit. `synchronous_commit` is forced for the transaction, and as for
    /// [`fence`](Self::fence) the server ends a session that stops:
    /// `idle_in_transaction_session_timeout` is set to the lease's remaining time.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the token is not current: roll back. [`Error::Invalid`] without a `keep`;
    /// [`Error::NotInTransaction`]; [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future leaves the transaction open.
    pub async fn complete<C: Connection>(&self, conn: &mut C) -> Result<(), Error> {
        self.complete_on(conn.pg()).await
    }

    pub(crate) async fn complete_on<D: Queries>(&self, conn: &mut D) -> Result<(), Error> {
        self.require_transaction(conn)?;
        let Some(keep) = self.keep else {
            return Err(Error::Invalid {
                lock: self.name(),
                reason: "`complete` needs `keep`: how long the key is done",
            });
        };
        let ending = self.hold.ending();
        let values = self.values_for(keep);
        let text = self.table.texts.get(Form::Complete);
        // The number of the transaction, whose idle time was bounded.
        let statement = Statement::<(BigInt, Nullable<Text>)>::new(text, &values);
        let completed = conn.load(statement).await;
        let completed: Vec<(i64, Option<String>)> = self
            .table
            .explained(conn, completed, || self.name())
            .await?;
        if let Some((transaction, _)) = completed.first() {
            ending.done(Some(Inside::of(conn, *transaction)));
            return Ok(());
        }
        drop(ending);
        self.hold.lose();
        Err(self.lost_because(None))
    }

    fn require_transaction<D: Driver>(&self, conn: &mut D) -> Result<(), Error> {
        let lock = || self.name();
        match depth(conn) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(Error::NotInTransaction { lock: lock() }),
            Err(_) => Err(Error::BrokenConnection { lock: lock() }),
        }
    }

    pub(super) fn lost_because(&self, source: Option<DieselError>) -> Error {
        let lock = self.name();
        Error::Lost { lock, source }
    }

    /// A condition for one statement, which changes nothing if the token is not current. For
    /// several statements use [`fence`](Self::fence).
    ///
    /// # Locking
    ///
    /// `EXISTS (SELECT … FOR KEY SHARE)`: nobody else is granted the key until the statement's
    /// transaction ends.
    ///
    /// See [`IsCurrent`] for an example.
    pub fn is_current(&self) -> IsCurrent {
        // The statement may have other values before these, so Diesel numbers them.
        let mut texts = self.table.texts.is_current().into_iter();
        let mut text = || texts.next().unwrap_or_default();
        sql::<Bool>(text())
            .bind::<Binary, _>(self.key_hash.to_vec())
            .sql(text())
            .bind::<BigInt, _>(self.grant_id)
            .sql(text())
            .bind::<BigInt, _>(self.token.0)
            .sql(text())
    }
}

/// The condition that a lease's token is current; see [`Lease::is_current`].
///
/// ```no_run
/// use advisory_runtime::lease::{IsCurrent, Lease};
/// use diesel::prelude::*;
/// use diesel_async::{AsyncPgConnection, RunQueryDsl};
/// # diesel::table! { report (id) { id -> BigInt, state -> Text } }
///
/// async fn publish(conn: &mut AsyncPgConnection, lease: &Lease) -> QueryResult<bool> {
///     let is_current: IsCurrent = lease.is_current();
///     let current = report::table.filter(is_current);
///     Ok(diesel::update(current).set(report::state.eq("published")).execute(conn).await? > 0)
/// }
/// ```
pub type IsCurrent = SqlLiteral<
    Bool,
    UncheckedBind<
        SqlLiteral<
            Bool,
            UncheckedBind<
                SqlLiteral<Bool, UncheckedBind<SqlLiteral<Bool>, AsExprOf<Vec<u8>, Binary>>>,
                AsExprOf<i64, BigInt>,
            >,
        >,
        AsExprOf<i64, BigInt>,
    >,
>;
