//! A granted lease, whose writes are on blocking connections.

use super::Error;
use crate::blocking::Connection;
use crate::driver::block_on;
use crate::lease;
use std::ops::Deref;

/// A granted lease, as [`lease::Lease`](crate::lease::Lease): its token, and the
/// [`fence`](Self::fence) for blocking connections.
///
/// A clone is the same lease.
///
/// ```no_run
/// use advisory_runtime::blocking::lease::Lease;
/// use advisory_runtime::lease::Error;
/// use diesel::PgConnection;
///
/// fn publish(conn: &mut PgConnection, lease: &Lease) -> Result<(), Error> {
///     conn.transaction(|conn| {
///         lease.fence(conn)?;
///         let publish = "UPDATE reports SET is_public = true WHERE month = '2026-11'";
///         diesel::sql_query(publish).execute(conn)?;
///         Ok(())
///     })
/// }
/// # use diesel::prelude::*;
/// ```
#[derive(Clone, Debug)]
pub struct Lease(pub(super) lease::Lease);

impl Lease {
    /// Checks in the open transaction that the token is current; as
    /// [`lease::Lease::fence`](crate::lease::Lease::fence).
    pub fn fence<C: Connection>(&self, conn: &mut C) -> Result<(), Error> {
        block_on(self.0.fence_on(conn.pg()))
    }

    /// Marks the work as done in the transaction that writes its results; as
    /// [`lease::Lease::complete`](crate::lease::Lease::complete).
    pub fn complete<C: Connection>(&self, conn: &mut C) -> Result<(), Error> {
        block_on(self.0.complete_on(conn.pg()))
    }
}

/// The token, the remaining time, and what else does not need a connection.
impl Deref for Lease {
    type Target = lease::Lease;

    fn deref(&self) -> &lease::Lease {
        &self.0
    }
}
