//! Reads the lease table, removes expired rows, and explains a failed statement.

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
    /// Returns the row of a key that is held or kept; `None` if it is free. The answer may be outdated at once: to act on it, acquire
    /// the lease.
    ///
    /// # Locking
    ///
    /// None: `SELECT … WHERE key_hash = $1 AND expires_at > clock_timestamp()`.
    ///
    /// # Errors
    ///
    /// [`Error::MissingTable`] (42P01), [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn find<C: Connection>(
        &self,
        conn: &mut C,
        key: impl Into<Request>,
    ) -> Result<Option<Row>, Error> {
        self.find_hash(conn.pg(), key.into().key_hash()).await
    }

    /// Lists every held lease and kept key, the soonest to expire first. It reads the whole table.
    /// [`monitor::leases`](crate::monitor::leases) adds names.
    ///
    /// # Locking
    ///
    /// None: `SELECT … WHERE expires_at > clock_timestamp()`.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn list<C: Connection>(&self, conn: &mut C) -> Result<Vec<Row>, Error> {
        self.rows(conn.pg(), &self.named.texts.list, &[]).await
    }

    async fn rows(
        &self,
        conn: &mut AsyncPgConnection,
        text: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, Error> {
        let statement = Statement::<RowColumns>::new(text, values);
        match RunQueryDsl::load(statement, conn).await {
            Ok(rows) => Ok(rows),
            Err(error) => Err(self.explain(conn, error, self.name().into()).await),
        }
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn list_blocking(&self, conn: &mut diesel::PgConnection) -> Result<Vec<Row>, Error> {
        let statement = Statement::<RowColumns>::new(&self.named.texts.list, &[]);
        diesel::RunQueryDsl::load(statement, conn).map_err(Error::Database)
    }

    pub(crate) async fn find_hash(
        &self,
        conn: &mut AsyncPgConnection,
        hash: [u8; 32],
    ) -> Result<Option<Row>, Error> {
        let values = &[Value::Hash(hash)];
        let rows = self.rows(conn, &self.named.texts.find, values).await;
        Ok(rows?.pop())
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn find_hash_blocking(
        &self,
        conn: &mut diesel::PgConnection,
        hash: [u8; 32],
    ) -> Result<Option<Row>, Error> {
        let values = &[Value::Hash(hash)];
        let statement = Statement::<RowColumns>::new(&self.named.texts.find, values);
        let rows: Result<Vec<Row>, _> = diesel::RunQueryDsl::load(statement, conn);
        Ok(rows.map_err(Error::Database)?.pop())
    }

    /// Removes all expired rows, and returns how many. Acquisitions remove a few at a time; call this to shrink a table at once.
    ///
    /// # Locking
    ///
    /// `DELETE` of at most 10,000 rows in each statement, until none is left. It skips locked rows.
    ///
    /// # Errors
    ///
    /// As [`renew`](Self::renew).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: some rows may be removed and others not.
    pub async fn sweep<C: Connection>(&self, conn: &mut C) -> Result<usize, Error> {
        let conn = conn.pg();
        require_no_transaction(conn, || self.name().into())?;
        let mut all = 0;
        loop {
            match count(conn, &self.named.texts.sweep, &[Value::Number(SWEPT)]).await {
                Ok(0) => return Ok(all),
                Ok(rows) => all += rows,
                Err(error) if is_conflict(&error) => {}
                Err(error) => return Err(self.explain(conn, error, self.name().into()).await),
            }
        }
    }

    /// Asks the server what a failed statement means.
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
        let is_so = match count(conn, question, &[]).await {
            Ok(rows) => rows > 0,
            // The server has ended the session.
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
