//! The lease table on blocking connections.

use super::{Error, FencingToken, Lease, Request, Row};
use crate::blocking::Connection;
use crate::driver::block_on;
use crate::lease;
use std::ops::Deref;

/// A lease table on blocking connections, as [`lease::Table`]; from that one for another name or
/// holder.
///
/// ```
/// use advisory_runtime::{blocking, lease::Table};
///
/// let table = Table::new().named("locks.app_lease")?.held_by("worker-7")?;
/// let table = blocking::lease::Table::from(table);
/// assert_eq!(table.name(), "locks.app_lease");
/// # Ok::<_, advisory_runtime::lease::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Table(lease::Table);

impl Table {
    /// The table of the migration, `public.advisory_lease`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the table if it does not exist; as [`lease::Table::set_up`].
    pub fn set_up<C: Connection>(&self, conn: &mut C) -> Result<(), Error> {
        block_on(self.0.set_up_on(conn.pg()))
    }

    /// Returns the row of a key that is held or done; as [`lease::Table::find`].
    pub fn find<C: Connection>(
        &self,
        conn: &mut C,
        key: impl Into<Request>,
    ) -> Result<Option<Row>, Error> {
        block_on(self.0.find_hash(conn.pg(), key.into().key_hash))
    }

    /// Lists every held lease and done key; as [`lease::Table::list`].
    pub fn list<C: Connection>(&self, conn: &mut C) -> Result<Vec<Row>, Error> {
        block_on(self.0.list_on(conn.pg()))
    }

    /// Removes all expired rows; as [`lease::Table::sweep`].
    pub fn sweep<C: Connection>(&self, conn: &mut C) -> Result<usize, Error> {
        block_on(self.0.sweep_on(conn.pg()))
    }

    /// Takes over a lease whose token one has seen; as [`lease::Table::take_over`].
    pub fn take_over<C: Connection>(
        &self,
        conn: &mut C,
        request: impl Into<Request>,
        token: FencingToken,
    ) -> Result<Option<Lease>, Error> {
        let lease = block_on(self.0.take_over_on(conn.pg(), request.into(), token));
        Ok(lease?.map(Lease))
    }

    /// Frees the key of a row that has been shown; as [`lease::Table::free`].
    pub fn free<C: Connection>(&self, conn: &mut C, row: &Row) -> Result<bool, Error> {
        block_on(self.0.free_on(conn.pg(), row))
    }

    /// Sets the holder's data, or erases it; as [`lease::Table::set_data`].
    pub fn set_data<C: Connection>(
        &self,
        conn: &mut C,
        lease: &Lease,
        data: Option<&str>,
    ) -> Result<bool, Error> {
        block_on(self.0.set_data_on(conn.pg(), lease, data))
    }

    /// Releases a lease; as [`lease::Table::release`].
    pub fn release<C: Connection>(&self, conn: &mut C, lease: &Lease) -> Result<bool, Error> {
        block_on(self.0.release_on(conn.pg(), lease))
    }
}

impl From<lease::Table> for Table {
    fn from(table: lease::Table) -> Self {
        Self(table)
    }
}

impl From<Table> for lease::Table {
    fn from(Table(table): Table) -> Self {
        table
    }
}

/// The name and the migration.
impl Deref for Table {
    type Target = lease::Table;

    fn deref(&self) -> &lease::Table {
        &self.0
    }
}
