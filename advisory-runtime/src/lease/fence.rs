//! How is a write made to happen only under a lease, and the lease's end in the same commit?

use super::Lease;
use super::statement::count;
use crate::driver::depth;
use crate::{Connection, Error};
use diesel::dsl::{AsExprOf, sql};
use diesel::expression::{SqlLiteral, UncheckedBind};
use diesel::result::Error as DieselError;
use diesel::sql_types::{BigInt, Binary, Bool};
use diesel_async::AsyncPgConnection;

impl Lease {
    /// Makes the rest of the open transaction happen only under this lease: it is refused when the token is not current any more,
    /// and until the transaction ends nobody else is granted the key.
    ///
    /// Call it first in the transaction that writes. A holder that was stopped, and resumed when its lease had expired, is refused
    /// here; one that is stopped behind it keeps others out until the server ends its session.
    ///
    /// # Locking
    ///
    /// One round trip: `SELECT … FOR KEY SHARE` of the lease's row, held to the end of the transaction. Renewals pass by it; a
    /// take-over is refused, also past the expiry. So that a writer that has stopped does not keep others out for ever, it sets
    /// `idle_in_transaction_session_timeout` to what is left of the lease, unless the session has a shorter one, to the end of the
    /// transaction; it counts from the transaction's last statement. A statement that never ends is not bounded: set
    /// `statement_timeout`.
    ///
    /// # Errors
    ///
    /// [`Error::LockLost`] when the token is not current any more; [`Error::NotInTransaction`]; [`Error::Database`], such as
    /// 40001 in a REPEATABLE READ transaction whose snapshot is older than a take-over. Roll back then. Under such a level a lease
    /// that was renewed since the snapshot counts as it was: fence before anything else reads.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping it leaves the transaction to whoever has it.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use advisory_runtime::{Error, lease::Lease};
    /// use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
    ///
    /// async fn publish(conn: &mut AsyncPgConnection, lease: &Lease) -> Result<(), Error> {
    ///     conn.transaction(async |conn| {
    ///         lease.fence(conn).await?;
    ///         diesel::sql_query("UPDATE report SET state = 'published'").execute(conn).await?;
    ///         Ok(())
    ///     })
    ///     .await
    /// }
    /// ```
    pub async fn fence<C: Connection>(&self, conn: &mut C) -> Result<(), Error> {
        let conn = conn.pg();
        self.require_transaction(conn)?;
        let fenced = count(conn, &self.table.named.texts.fence, self.values()).await;
        if fenced.map_err(Error::Database)? > 0 {
            return Ok(());
        }
        self.hold.lose();
        Err(self.lost_because(None))
    }

    /// Marks the work as done, in the transaction that writes its results: both are committed, or neither is. The key stays taken
    /// for the request's `keep`, and nobody runs the work again in that time, wherever this process dies.
    ///
    /// This is the only way to do something *once*. With `keep` alone, a process that dies between its commit and the end of the call
    /// leaves a key that is free after the ttl, and the work runs again. Call it last in the transaction: it ends the lease, so a
    /// [`fence`](Self::fence) behind it is refused. If the transaction is rolled back, the lease goes on, unless it has expired
    /// meanwhile: then it is lost, and the body is dropped.
    ///
    /// # Locking
    ///
    /// One round trip: the row is marked as kept, if the token is still current, and is locked until the transaction ends. Others are
    /// refused in that time, also past the expiry. `synchronous_commit` is forced for the transaction.
    ///
    /// # Errors
    ///
    /// [`Error::LockLost`] when the token is not current any more: roll back. [`Error::InvalidLease`] without a `keep`;
    /// [`Error::NotInTransaction`]; [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping it leaves the transaction to whoever has it.
    pub async fn complete<C: Connection>(&self, conn: &mut C) -> Result<(), Error> {
        let conn = conn.pg();
        self.require_transaction(conn)?;
        let Some(keep) = self.keep else {
            return Err(Error::InvalidLease {
                lock: self.name(),
                reason: "`complete` needs `keep`: how long the key stays taken",
            });
        };
        let ending = self.hold.ending();
        let text = &self.table.named.texts.keep;
        if self.table.change(conn, self, text, keep).await? {
            ending.done(true);
            return Ok(());
        }
        drop(ending);
        self.hold.lose();
        Err(self.lost_because(None))
    }

    fn require_transaction(&self, conn: &mut AsyncPgConnection) -> Result<(), Error> {
        let lock = self.name();
        match depth(conn) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(Error::NotInTransaction { lock }),
            Err(_) => Err(Error::BrokenConnection { lock }),
        }
    }

    pub(super) fn lost_because(&self, source: Option<DieselError>) -> Error {
        let lock = self.name();
        Error::LockLost { lock, source }
    }

    /// A condition for one statement: `diesel::update(reports).filter(lease.is_current())` changes nothing when the token is not
    /// current any more. The statement's count says so; for several statements use [`fence`](Self::fence).
    ///
    /// # Locking
    ///
    /// `EXISTS (SELECT … FOR KEY SHARE)`: nobody else is granted the key until the statement's transaction ends.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use advisory_runtime::lease::Lease;
    /// use diesel::prelude::*;
    /// use diesel_async::{AsyncPgConnection, RunQueryDsl};
    /// # diesel::table! { report (id) { id -> BigInt, state -> Text } }
    ///
    /// async fn publish(conn: &mut AsyncPgConnection, lease: &Lease) -> QueryResult<bool> {
    ///     let current = report::table.filter(lease.is_current());
    ///     Ok(diesel::update(current).set(report::state.eq("published")).execute(conn).await? > 0)
    /// }
    /// ```
    pub fn is_current(&self) -> IsCurrent {
        // Other values of the statement can stand before these, so they are not numbered.
        let mut texts = self.table.named.texts.is_current.split('$');
        let mut text = || texts.next().unwrap_or_default();
        sql::<Bool>(text())
            .bind::<Binary, _>(self.key_hash.to_vec())
            .sql(text())
            .bind::<BigInt, _>(self.grant_id)
            .sql(text())
    }
}

/// The condition that a lease's token is current; see [`Lease::is_current`].
pub type IsCurrent = SqlLiteral<
    Bool,
    UncheckedBind<
        SqlLiteral<Bool, UncheckedBind<SqlLiteral<Bool>, AsExprOf<Vec<u8>, Binary>>>,
        AsExprOf<i64, BigInt>,
    >,
>;
