//! A write that happens only while its fencing token is current.

use super::answer::flag;
use super::sql::HELD;
use super::statement::{Value, push_value};
use super::{Lease, Table};
use crate::driver::depth;
use crate::{Connection, Error};
use diesel::QueryResult;
use diesel::expression::is_aggregate;
use diesel::expression::{AppearsOnTable, Expression, SelectableExpression, ValidGrouping};
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::Bool;

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
        let lock = || self.name();
        let conn = conn.pg();
        match depth(conn) {
            Ok(Some(_)) => {}
            Ok(None) => return Err(Error::NotInTransaction { lock: lock() }),
            Err(_) => return Err(Error::BrokenConnection { lock: lock() }),
        }
        let statement = flag(&self.table.0.texts.fence, self.values());
        let rows = self.table.rows(conn, statement).await;
        match rows {
            Ok(rows) if rows.iter().any(|row| row == HELD) => Ok(()),
            Ok(_) => {
                self.standing.lose();
                Err(Error::LockLost {
                    lock: lock(),
                    source: None,
                })
            }
            Err(error) => Err(Error::Database(error)),
        }
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
    ///     let own = report::table.filter(lease.is_current());
    ///     Ok(diesel::update(own).set(report::state.eq("published")).execute(conn).await? > 0)
    /// }
    /// ```
    #[must_use]
    pub fn is_current(&self) -> IsCurrent {
        IsCurrent {
            table: self.table.clone(),
            values: self.values(),
        }
    }
}

/// The condition that a lease's token is current; see [`Lease::is_current`].
#[derive(Clone, Debug)]
pub struct IsCurrent {
    table: Table,
    values: [Value<'static>; 3],
}

impl Expression for IsCurrent {
    type SqlType = Bool;
}

impl<T> AppearsOnTable<T> for IsCurrent {}

impl<T> SelectableExpression<T> for IsCurrent {}

impl<G> ValidGrouping<G> for IsCurrent {
    type IsAggregate = is_aggregate::Never;
}

impl QueryId for IsCurrent {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl QueryFragment<Pg> for IsCurrent {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        // Other values of the statement can stand before these, so each is written where its number would.
        let mut rest = self.table.0.texts.is_current.as_str();
        for (index, value) in self.values.iter().enumerate() {
            let mark = format!("${}", index + 1);
            let Some((before, behind)) = rest.split_once(&mark) else {
                continue;
            };
            out.push_sql(before);
            push_value(&mut out, value, false)?;
            rest = behind;
        }
        out.push_sql(rest);
        Ok(())
    }
}
