//! Reads and changes the rows of the lease table.

use super::explain::outside_transaction;
use super::request::{name_of_hash, wrong_data};
use super::sql::{Form, SWEPT};
use super::statement::{RowColumns, Statement, Value, count};
use super::{Error, Lease, Request, Row, Table};
use crate::Connection;
use crate::driver::Queries;
use crate::error::is_conflict;
use crate::random::random;
use diesel::sql_types::{BigInt, Nullable, Text};
use diesel_async::AsyncPgConnection;
use std::time::Duration;

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
            Value::Hashes(hashes.to_vec()),
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

    /// Frees the key of a row that [`find`](Self::find) or [`list`](Self::list) has shown, held or
    /// done; `false` if the row has another token by now, or has expired. For operators: it needs
    /// no key, and grants nothing.
    ///
    /// The holder loses the lease: its fenced writes and its next renewal are refused. Work that
    /// was done runs again. Inside a transaction all this takes effect when the transaction
    /// commits.
    ///
    /// # Locking
    ///
    /// One statement: `SELECT … FOR UPDATE` of the row if it has this token, which waits for the
    /// transaction of a fenced write, at most for the session's `lock_timeout`; then
    /// `UPDATE … SET expires_at = clock_timestamp()`. `synchronous_commit` is forced.
    ///
    /// # Errors
    ///
    /// Those of [`Table`], such as 55P03 after `lock_timeout`.
    pub async fn free<C: Connection>(&self, conn: &mut C, row: &Row) -> Result<bool, Error> {
        self.free_on(conn.pg(), row).await
    }

    pub(crate) async fn free_on<D: Queries>(&self, conn: &mut D, row: &Row) -> Result<bool, Error> {
        let values = [
            Value::Hash(row.key_hash),
            Value::Number(random().cast_signed()),
            Value::Number(row.token.0),
        ];
        let lock = || match &row.pattern {
            Some(pattern) => pattern.clone().into(),
            None => name_of_hash(&row.key_hash).into(),
        };
        self.affects(conn, Form::Free, &values, lock).await
    }

    /// Sets the holder's data; `None` erases it. Returns `false` if the lease was lost.
    ///
    /// # Locking
    ///
    /// One statement locks the row (`SELECT … FOR NO KEY UPDATE`), then runs
    /// `UPDATE … SET data = …` if this grant holds it.
    ///
    /// # Errors
    ///
    /// Those of [`Table`]; [`Error::InTransaction`] inside a transaction; [`Error::Invalid`] for more
    /// than 1,024 bytes, and for NUL.
    pub async fn set_data<C: Connection>(
        &self,
        conn: &mut C,
        lease: &Lease,
        data: Option<&str>,
    ) -> Result<bool, Error> {
        self.set_data_on(conn.pg(), lease, data).await
    }

    pub(crate) async fn set_data_on<D: Queries>(
        &self,
        conn: &mut D,
        lease: &Lease,
        data: Option<&str>,
    ) -> Result<bool, Error> {
        if let Some(reason) = data.and_then(wrong_data) {
            let lock = lease.name();
            return Err(Error::Invalid { lock, reason });
        }
        outside_transaction(conn, || lease.name())?;
        let [hash, grant, token] = lease.values();
        let values = [hash, grant, token, Value::Text(data)];
        let lock = || lease.name();
        let is_held = self.affects(conn, Form::SetData, &values, lock).await?;
        if !is_held {
            lease.hold.lose();
        }
        Ok(is_held)
    }

    /// Releases a lease; `false` if the row is gone, done, or another grant's. A second release
    /// returns the same.
    ///
    /// # Locking
    ///
    /// `UPDATE … SET expires_at = clock_timestamp(), key = NULL, data = NULL` if the row is this
    /// grant's. It does not wait for the disk: if the server crashes and loses the release, the key
    /// stays taken until the ttl is over.
    ///
    /// # Errors
    ///
    /// Those of [`Table`]; [`Error::InTransaction`] inside a transaction, which could undo it.
    pub async fn release<C: Connection>(&self, conn: &mut C, lease: &Lease) -> Result<bool, Error> {
        self.release_on(conn.pg(), lease).await
    }

    pub(crate) async fn release_on<D: Queries>(
        &self,
        conn: &mut D,
        lease: &Lease,
    ) -> Result<bool, Error> {
        outside_transaction(conn, || lease.name())?;
        let (text, values) = (self.texts.get(Form::Release), lease.acquisition());
        let released = if self.is_default() {
            let statement: Statement<'_, (), 2> = Statement::new(text, &values);
            conn.count(statement).await
        } else {
            count(conn, text, &values).await
        };
        let released = self.explained(conn, released, || lease.name()).await;
        lease.hold.lose();
        Ok(released? > 0)
    }

    /// Ends the lease, and marks its key as done for `keep` from now. Returns `false` if the lease
    /// was no longer held.
    pub(super) async fn keep_on<D: Queries>(
        &self,
        conn: &mut D,
        lease: &Lease,
        keep: Duration,
    ) -> Result<bool, Error> {
        outside_transaction(conn, || lease.name())?;
        let values = lease.values_for(keep);
        let lock = || lease.name();
        let kept = self.affects(conn, Form::Keep, &values, lock).await;
        lease.hold.lose();
        kept
    }

    /// Asks the server whether the lease is held: `SELECT … WHERE expires_at > clock_timestamp()`.
    pub(crate) async fn holds_on<D: Queries>(
        &self,
        conn: &mut D,
        lease: &Lease,
    ) -> Result<bool, Error> {
        self.affects(conn, Form::Holds, &lease.values(), || lease.name())
            .await
    }
}
