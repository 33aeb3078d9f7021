//! Reads the lease table, and removes expired rows.

use super::sql::{Form, SWEPT};
use super::statement::{RowColumns, Statement, Value, count, outside_transaction};
use super::{Error, Request, Row, Table};
use crate::Connection;
use crate::driver::Queries;
use crate::rows::is_conflict;
use diesel::sql_types::{BigInt, Nullable, Text};
use diesel_async::AsyncPgConnection;

impl Table {
    /// Returns the row of a key that is held or done; `None` if it is free. The answer may be
    /// outdated at once: to act on it, acquire the lease.
    ///
    /// # Locking
    ///
    /// None: `SELECT … WHERE key_hash = $1 AND expires_at > clock_timestamp()`.
    pub async fn find<C: Connection>(
        &self,
        conn: &mut C,
        key: impl Into<Request>,
    ) -> Result<Option<Row>, Error> {
        self.find_hash(conn.pg(), key.into().key_hash).await
    }

    /// Lists every held lease and done key, the soonest to expire first. It reads the whole table.
    /// [`monitor::leases`](crate::monitor::leases) adds names.
    ///
    /// # Locking
    ///
    /// None: `SELECT … WHERE expires_at > clock_timestamp()`.
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
        let mut rows = self.rows(conn, Form::Some, &values).await?;
        rows.sort_by_key(|row| row.expires_at);
        let text = self.texts.get(Form::Counts);
        // A pattern, and how many of its leases are held and kept.
        let counts = Statement::<(Nullable<Text>, BigInt, BigInt)>::new(text, &values);
        let counts = conn.load(counts).await;
        let counts = self.explained(conn, counts, || self.name().into()).await?;
        Ok((rows, counts))
    }

    async fn rows<D: Queries>(
        &self,
        conn: &mut D,
        form: Form,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, Error> {
        let statement = Statement::<RowColumns>::new(self.texts.get(form), values);
        let rows = conn.load(statement).await;
        self.explained(conn, rows, || self.name().into()).await
    }

    pub(crate) async fn list_on<D: Queries>(&self, conn: &mut D) -> Result<Vec<Row>, Error> {
        self.rows(conn, Form::List, &[]).await
    }

    pub(crate) async fn find_hash<D: Queries>(
        &self,
        conn: &mut D,
        hash: [u8; 32],
    ) -> Result<Option<Row>, Error> {
        let found = self.rows(conn, Form::Find, &[Value::Hash(hash)]).await;
        Ok(found?.pop())
    }

    /// The first two rows of the keys whose hash is in this range.
    pub(crate) async fn between(
        &self,
        conn: &mut AsyncPgConnection,
        range: [[u8; 32]; 2],
    ) -> Result<Vec<Row>, Error> {
        self.rows(conn, Form::Between, &range.map(Value::Hash))
            .await
    }

    /// Removes all expired rows, and returns how many. Acquisitions remove a few at a time; call
    /// this to shrink a table at once.
    ///
    /// # Locking
    ///
    /// `DELETE` of at most 10,000 rows in each statement, until none is left. It skips locked rows.
    pub async fn sweep<C: Connection>(&self, conn: &mut C) -> Result<usize, Error> {
        self.sweep_on(conn.pg()).await
    }

    pub(crate) async fn sweep_on<D: Queries>(&self, conn: &mut D) -> Result<usize, Error> {
        let lock = || self.name().into();
        outside_transaction(conn, lock)?;
        let (text, limit) = (self.texts.get(Form::Sweep), [Value::Number(SWEPT)]);
        let mut all = 0;
        loop {
            match count(conn, text, &limit).await {
                Err(error) if is_conflict(&error) => {}
                swept => match self.explained(conn, swept, lock).await? {
                    0 => return Ok(all),
                    rows => all += rows,
                },
            }
        }
    }
}
