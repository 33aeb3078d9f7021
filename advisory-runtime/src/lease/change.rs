//! Changes the row of a grant, or asks for it, each in one round trip.

use super::request::{name_of_hash, wrong_data};
use super::sql::Form;
use super::statement::{Statement, Value, count, outside_transaction};
use super::{Error, Lease, Row, Table};
use crate::Connection;
use crate::driver::Queries;
use crate::random::random;
use std::time::Duration;

impl Table {
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
        let is_held = self
            .affects(conn, Form::SetData, &values, || lease.name())
            .await?;
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
