//! The lease table as a Diesel migration, and as text for a table of another name.

use super::Table;
use crate::{Connection, Error, Request, xact};
use diesel_async::SimpleAsyncConnection;

/// Makes `public.advisory_lease`: the migration's `up.sql`, for `batch_execute` in a transaction.
///
/// Copy the crate's folder `migrations/2026-01-02-000000_advisory_lease` into your own `migrations/`; for a table of another name
/// write what [`Table::up`] gives.
pub const ADVISORY_LEASE_UP: &str =
    include_str!("../../migrations/2026-01-02-000000_advisory_lease/up.sql");

/// Drops it, and forgets every fencing token: the migration's `down.sql`.
pub const ADVISORY_LEASE_DOWN: &str =
    include_str!("../../migrations/2026-01-02-000000_advisory_lease/down.sql");

/// The lock under which two programs that start at once make the table: the first bytes of the SHA-256 of `advisory:lease:set_up`.
const SET_UP: &str = "advisory:lease:set_up";

impl Table {
    /// The SQL that makes this table: [`ADVISORY_LEASE_UP`] with its name.
    #[must_use]
    pub fn up(&self) -> String {
        self.named_in(ADVISORY_LEASE_UP)
    }

    /// The SQL that drops it: [`ADVISORY_LEASE_DOWN`] with its name.
    #[must_use]
    pub fn down(&self) -> String {
        self.named_in(ADVISORY_LEASE_DOWN)
    }

    fn named_in(&self, sql: &str) -> String {
        let inner = &self.0;
        let (schema, name) = (&inner.schema, &inner.name);
        sql.replace(
            "public.advisory_lease_stays",
            &format!("\"{schema}\".\"{name}_stays\""),
        )
        .replace("public.advisory_lease", &format!("\"{schema}\".\"{name}\""))
    }

    /// Makes the table where it is not there yet: for development and tests. In production run the migration, with the rights
    /// that programs should not have.
    ///
    /// # Locking
    ///
    /// A transaction-level advisory lock, so that two programs that start at once do not both make it.
    ///
    /// # Errors
    ///
    /// [`Error::Database`], such as for a schema that is not there or a role that may not; and those of [`xact::begin`] and
    /// [`xact::finish`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the table is there or not.
    pub async fn set_up<C: Connection>(&self, conn: &mut C) -> Result<(), Error> {
        let key = advisory_pattern::Derivation::Sha256.key(SET_UP);
        let mut held = xact::begin(conn, Request::new(key)).await?;
        let made = self.make(held.conn()).await;
        xact::finish(held, made).await
    }

    async fn make<C: Connection>(&self, conn: &mut C) -> Result<(), Error> {
        let conn = conn.pg();
        let question = super::answer::question_of(&self.0.texts.is_missing);
        let missing = self.rows(conn, question).await;
        if !missing.map_err(Error::Database)?.is_empty() {
            conn.batch_execute(&self.up())
                .await
                .map_err(Error::Database)?;
        }
        Ok(())
    }
}
