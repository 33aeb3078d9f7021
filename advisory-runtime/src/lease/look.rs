//! Who holds what: what anybody may ask of the lease table.

use super::sql::Answer;
use super::statement::{Statement, Value};
use super::table::sha256;
use super::{Row, Table};
use crate::{Connection, Error, LockKey};
use diesel_async::AsyncPgConnection;

impl Table {
    /// Who holds the lease on a key; `None` when nobody does. To act on the answer acquire the lease: a moment later it can be
    /// another's.
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
    /// # use advisory_runtime::{Error, lease::Table};
    /// # use diesel_async::AsyncPgConnection;
    /// async fn who(conn: &mut AsyncPgConnection) -> Result<Option<String>, Error> {
    ///     let row = Table::new().find_text(conn, "report:2026-11").await?;
    ///     Ok(row.map(|row| format!("{} for {:?}", row.holder, row.remaining)))
    /// }
    /// ```
    pub async fn find<C: Connection>(
        &self,
        conn: &mut C,
        key: impl LockKey,
    ) -> Result<Option<Row>, Error> {
        self.find_text(conn, &key.rendered()).await
    }

    /// As [`find`](Self::find), by the key's text, byte for byte as the pattern renders it.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn find_text<C: Connection>(
        &self,
        conn: &mut C,
        key: &str,
    ) -> Result<Option<Row>, Error> {
        let hash = [Value::Hash(sha256(key))];
        let rows = self.read(conn.pg(), &self.0.texts.find, hash).await?;
        Ok(rows.into_iter().next())
    }

    /// Whether anybody holds the lease on a key, by the server's clock.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn is_held<C: Connection>(
        &self,
        conn: &mut C,
        key: impl LockKey,
    ) -> Result<bool, Error> {
        Ok(self.find(conn, key).await?.is_some())
    }

    /// Every lease that is held, soonest to expire first. It reads the whole table: for administrators. With names beside the rows it is
    /// [`monitor::leases`](crate::monitor::leases).
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
        self.read(conn.pg(), &self.0.texts.list, []).await
    }

    /// As [`list`](Self::list), those of one holder. There is no index on it, which would cost each renewal.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn list_of<C: Connection>(
        &self,
        conn: &mut C,
        holder: &str,
    ) -> Result<Vec<Row>, Error> {
        let holder = [Value::Text(holder)];
        self.read(conn.pg(), &self.0.texts.list_of, holder).await
    }

    /// Erases the texts of keys whose holders died without a release. Rows and tokens stay. It reads the whole table: for a
    /// nightly job, where [`with_text`](Self::with_text) is used.
    ///
    /// # Locking
    ///
    /// `UPDATE … SET key = NULL WHERE key IS NOT NULL AND expires_at <= clock_timestamp()`, in a transaction of its own.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: they are erased or not.
    pub async fn erase<C: Connection>(&self, conn: &mut C) -> Result<(), Error> {
        let statement = Statement {
            text: &self.0.texts.erase,
            values: [],
            answer: Answer::Committed,
            outcome: "''",
        };
        let conn = conn.pg();
        match self.rows(conn, statement).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.explain(conn, error, self.name().into()).await),
        }
    }

    async fn read<const N: usize>(
        &self,
        conn: &mut AsyncPgConnection,
        text: &str,
        values: [Value<'_>; N],
    ) -> Result<Vec<Row>, Error> {
        let statement = Statement {
            text,
            values,
            answer: Answer::Rows,
            outcome: "",
        };
        match self.rows(conn, statement).await {
            Ok(rows) => {
                let mut rows: Vec<Row> = rows.iter().filter_map(|row| Row::parse(row)).collect();
                rows.sort_by_key(|row| row.expires_at);
                Ok(rows)
            }
            Err(error) => Err(self.explain(conn, error, self.name().into()).await),
        }
    }
}

#[cfg(feature = "postgres")]
impl Table {
    /// [`list`](Self::list) on a connection of Diesel's own.
    pub(crate) fn list_blocking(&self, conn: &mut diesel::PgConnection) -> Result<Vec<Row>, Error> {
        use diesel::RunQueryDsl;
        use diesel::sql_types::{Nullable, Text};
        let rows = diesel::dsl::sql::<Nullable<Text>>(&self.0.texts.list).load(conn);
        let rows: Vec<Option<String>> = rows.map_err(Error::Database)?;
        let rows = rows.iter().flatten();
        let mut rows: Vec<Row> = rows.filter_map(|row| Row::parse(row)).collect();
        rows.sort_by_key(|row| row.expires_at);
        Ok(rows)
    }
}
