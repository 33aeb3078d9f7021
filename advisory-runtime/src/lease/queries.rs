//! Who holds which key, and what does a refused statement mean? And the removal of rows that have expired.

use super::sql::{IS_STANDBY, SWEPT};
use super::statement::{RowColumns, Statement, Value, count};
use super::steps::require_no_transaction;
use super::{Request, Row, Table};
use crate::error::is_connection_lost;
use crate::renewal::is_conflict;
use crate::{Connection, Error};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use std::borrow::Cow;

impl Table {
    /// Who holds the lease on a key, or that it is kept; `None` when it is free. To act on the answer acquire the lease: a moment
    /// later it can be another's.
    ///
    /// # Locking
    ///
    /// `SELECT … WHERE key_hash = $1 AND expires_at > clock_timestamp()`, by the server's clock. It locks nothing and waits for nobody.
    ///
    /// # Errors
    ///
    /// [`Error::MissingTable`] (42P01), [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use advisory_runtime::{Error, lease::{Request, Table}};
    /// # use diesel_async::AsyncPgConnection;
    /// async fn who(conn: &mut AsyncPgConnection) -> Result<Option<String>, Error> {
    ///     let row = Table::new().find(conn, Request::text("report:2026-11")).await?;
    ///     Ok(row.map(|row| format!("{} for {:?}", row.holder, row.remaining)))
    /// }
    /// ```
    pub async fn find<C: Connection>(
        &self,
        conn: &mut C,
        key: impl Into<Request>,
    ) -> Result<Option<Row>, Error> {
        self.find_hash(conn.pg(), key.into().key_hash()).await
    }

    /// Every lease that is held and every key that is kept, soonest to expire first. It reads the whole table: for administrators.
    /// With names beside the rows it is [`monitor::leases`](crate::monitor::leases).
    ///
    /// # Locking
    ///
    /// `SELECT … WHERE expires_at > clock_timestamp()`. It locks nothing and waits for nobody.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn list<C: Connection>(&self, conn: &mut C) -> Result<Vec<Row>, Error> {
        let rows = self.answered(conn.pg(), self.all()).await;
        rows.map(sorted)
    }

    async fn answered<const N: usize>(
        &self,
        conn: &mut AsyncPgConnection,
        statement: Statement<'_, N, RowColumns>,
    ) -> Result<Vec<Row>, Error> {
        match RunQueryDsl::load(statement, conn).await {
            Ok(rows) => Ok(rows),
            Err(error) => Err(self.explain(conn, error, self.name().into()).await),
        }
    }

    fn one(&self, hash: [u8; 32]) -> Statement<'_, 1, RowColumns> {
        Statement::new(&self.named.texts.find, [Value::Hash(hash)])
    }

    fn all(&self) -> Statement<'_, 0, RowColumns> {
        Statement::new(&self.named.texts.list, [])
    }

    /// [`list`](Self::list) on a connection of Diesel's own.
    #[cfg(feature = "postgres")]
    pub(crate) fn list_blocking(&self, conn: &mut diesel::PgConnection) -> Result<Vec<Row>, Error> {
        let rows = diesel::RunQueryDsl::load(self.all(), conn);
        rows.map(sorted).map_err(Error::Database)
    }

    /// [`find`](Self::find), by the key's hash.
    pub(crate) async fn find_hash(
        &self,
        conn: &mut AsyncPgConnection,
        hash: [u8; 32],
    ) -> Result<Option<Row>, Error> {
        Ok(self.answered(conn, self.one(hash)).await?.pop())
    }

    /// The same on a connection of Diesel's own.
    #[cfg(feature = "postgres")]
    pub(crate) fn find_hash_blocking(
        &self,
        conn: &mut diesel::PgConnection,
        hash: [u8; 32],
    ) -> Result<Option<Row>, Error> {
        let rows: Result<Vec<Row>, _> = diesel::RunQueryDsl::load(self.one(hash), conn);
        Ok(rows.map_err(Error::Database)?.pop())
    }

    /// Removes all rows that have expired, and says how many. Acquisitions do it too, a few at a time; call this nightly if a table
    /// that was large once should shrink soon.
    ///
    /// # Locking
    ///
    /// `DELETE` of at most 10,000 rows in each statement, until none is left. Rows that somebody has locked are passed over.
    ///
    /// # Errors
    ///
    /// As [`renew`](Self::renew).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: some are removed and some are not.
    pub async fn sweep<C: Connection>(&self, conn: &mut C) -> Result<usize, Error> {
        let conn = conn.pg();
        require_no_transaction(conn, || self.name().into())?;
        let mut all = 0;
        loop {
            match count(conn, &self.named.texts.sweep, [Value::Number(SWEPT)]).await {
                Ok(0) => return Ok(all),
                Ok(rows) => all += rows,
                Err(error) if is_conflict(&error) => {}
                Err(error) => return Err(self.explain(conn, error, self.name().into()).await),
            }
        }
    }

    /// What a refused statement means.
    pub(super) async fn explain(
        &self,
        conn: &mut AsyncPgConnection,
        error: DieselError,
        lock: Cow<'static, str>,
    ) -> Error {
        let DieselError::DatabaseError(kind, _) = &error else {
            return Error::Database(error);
        };
        let question = match kind {
            DatabaseErrorKind::ReadOnlyTransaction => IS_STANDBY,
            DatabaseErrorKind::Unknown => &self.named.texts.is_missing,
            _ => return Error::Database(error),
        };
        let is_so = match count(conn, question, []).await {
            Ok(rows) => rows > 0,
            // The server has ended the session, as at a restart.
            Err(lost) if is_connection_lost(&lost) => return Error::Database(lost),
            Err(_) => false,
        };
        match kind {
            DatabaseErrorKind::ReadOnlyTransaction if is_so => Error::Standby { lock },
            DatabaseErrorKind::Unknown if is_so => {
                let (table, source) = (self.name(), error);
                Error::MissingTable { table, source }
            }
            _ => Error::Database(error),
        }
    }
}

fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by_key(|row| row.expires_at);
    rows
}
