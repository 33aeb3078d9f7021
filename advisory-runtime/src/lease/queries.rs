//! Reads the lease table, removes expired rows, and explains a failed statement.

use super::sql::{Form, IS_STANDBY, SWEPT};
use super::statement::{CountColumns, RowColumns, Statement, Value, count};
use super::{Error, Request, Row, Table};
use crate::Connection;
use crate::driver::Queries;
use crate::error::is_connection_lost;
use crate::rows::{is_conflict, require_no_transaction};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::sql_types::{Bool, Nullable};
use diesel_async::AsyncPgConnection;
use std::borrow::Cow;

impl Table {
    /// Returns the row of a key that is held or done; `None` if it is free. The answer may be
    /// outdated at once: to act on it, acquire the lease.
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

    /// Lists every held lease and done key, the soonest to expire first. It reads the whole table.
    /// [`monitor::leases`](crate::monitor::leases) adds names.
    ///
    /// # Locking
    ///
    /// None: `SELECT … WHERE expires_at > clock_timestamp()`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn list<C: Connection>(&self, conn: &mut C) -> Result<Vec<Row>, Error> {
        self.list_on(conn.pg()).await
    }

    /// The first held leases and the first done keys to expire, at most `limit` of each, and for
    /// each pattern how many are held and done. With a filter only those that have it in their
    /// holder or label, or are among these patterns and keys.
    pub(crate) async fn summary(
        &self,
        conn: &mut AsyncPgConnection,
        filter: Option<&str>,
        (patterns, hashes): (&[String], &[Vec<u8>]),
        limit: u32,
    ) -> Result<(Vec<Row>, Vec<(Option<String>, i64, i64)>), Error> {
        let values = [
            Value::Text(filter),
            Value::Texts(patterns),
            Value::Hashes(hashes),
            Value::Number(limit.into()),
        ];
        let mut rows = self
            .rows(conn, self.named.texts.get(Form::Some), &values)
            .await?;
        rows.sort_by_key(|row| row.expires_at);
        let counts = Statement::<CountColumns>::new(self.named.texts.get(Form::Counts), &values);
        match conn.load(counts).await {
            Ok(counts) => Ok((rows, counts)),
            Err(error) => Err(self.explain(conn, error, self.name().into()).await),
        }
    }

    async fn rows<D: Queries>(
        &self,
        conn: &mut D,
        text: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, Error> {
        let statement = Statement::<RowColumns>::new(text, values);
        match conn.load(statement).await {
            Ok(rows) => Ok(rows),
            Err(error) => Err(self.explain(conn, error, self.name().into()).await),
        }
    }

    pub(crate) async fn list_on<D: Queries>(&self, conn: &mut D) -> Result<Vec<Row>, Error> {
        self.rows(conn, self.named.texts.get(Form::List), &[]).await
    }

    pub(crate) async fn find_hash<D: Queries>(
        &self,
        conn: &mut D,
        hash: [u8; 32],
    ) -> Result<Option<Row>, Error> {
        let values = &[Value::Hash(hash)];
        let rows = self
            .rows(conn, self.named.texts.get(Form::Find), values)
            .await;
        Ok(rows?.pop())
    }

    /// The first two rows of the keys whose hash is in this range.
    pub(crate) async fn between(
        &self,
        conn: &mut AsyncPgConnection,
        first: [u8; 32],
        last: [u8; 32],
    ) -> Result<Vec<Row>, Error> {
        let values = &[Value::Hash(first), Value::Hash(last)];
        self.rows(conn, self.named.texts.get(Form::Between), values)
            .await
    }

    /// Removes all expired rows, and returns how many. Acquisitions remove a few at a time; call
    /// this to shrink a table at once.
    ///
    /// # Locking
    ///
    /// `DELETE` of at most 10,000 rows in each statement, until none is left. It skips locked rows.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: some rows may be removed and others not.
    pub async fn sweep<C: Connection>(&self, conn: &mut C) -> Result<usize, Error> {
        self.sweep_on(conn.pg()).await
    }

    pub(crate) async fn sweep_on<D: Queries>(&self, conn: &mut D) -> Result<usize, Error> {
        require_no_transaction(conn)
            .map_err(|unusable| Error::unusable(unusable, self.name().into()))?;
        let mut all = 0;
        loop {
            match count(
                conn,
                self.named.texts.get(Form::Sweep),
                &[Value::Number(SWEPT)],
            )
            .await
            {
                Ok(0) => return Ok(all),
                Ok(rows) => all += rows,
                Err(error) if is_conflict(&error) => {}
                Err(error) => return Err(self.explain(conn, error, self.name().into()).await),
            }
        }
    }

    /// Asks the server what a failed statement means.
    pub(super) async fn explain<D: Queries>(
        &self,
        conn: &mut D,
        error: DieselError,
        lock: Cow<'static, str>,
    ) -> Error {
        self.explain_with(conn, error, lock, Rights::Unchecked)
            .await
    }

    /// [`explain`](Self::explain), if the statement always needs these rights.
    pub(super) async fn explain_with<D: Queries>(
        &self,
        conn: &mut D,
        error: DieselError,
        lock: Cow<'static, str>,
        rights: Rights,
    ) -> Error {
        let answer = match &error {
            DieselError::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, _) => {
                let rows = count(conn, IS_STANDBY, &[]).await;
                rows.map(|rows| (rows > 0).then_some(Cause::Standby))
            }
            DieselError::DatabaseError(DatabaseErrorKind::Unknown, _) => {
                let values = [Value::Number(rights as i64)];
                let question =
                    Statement::<Nullable<Bool>>::new(self.named.texts.get(Form::Lacks), &values);
                let answer: Result<Vec<Option<bool>>, _> = conn.load(question).await;
                answer.map(|lacks| {
                    let cause = |is_table| {
                        if is_table {
                            Cause::Table
                        } else {
                            Cause::Rights
                        }
                    };
                    lacks.into_iter().flatten().next().map(cause)
                })
            }
            _ => Ok(None),
        };
        let table = || self.name();
        match answer {
            Ok(Some(Cause::Standby)) => Error::Standby { lock },
            Ok(Some(Cause::Table)) => Error::MissingTable {
                table: table(),
                source: error,
            },
            Ok(Some(Cause::Rights)) => Error::MissingRights {
                table: table(),
                source: error,
            },
            // The server has ended the session.
            Err(lost) if is_connection_lost(&lost) => Error::Database(lost),
            Ok(None) | Err(_) => Error::Database(error),
        }
    }
}

/// The rights without which a statement fails.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rights {
    Unchecked = 0,
    Grant = 1,
    MoveSequence = 2,
}

/// Why a statement failed.
enum Cause {
    Standby,
    Table,
    Rights,
}
