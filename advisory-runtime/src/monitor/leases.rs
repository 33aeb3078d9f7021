//! The leases beside the locks.

use super::names::{Name, Names};
use crate::lease::{Row, Table};
use crate::{Connection, Error};

/// A lease that somebody holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lease {
    /// Who holds it, its token, and when it expires.
    pub row: Row,
    /// What it is called: known where its key has no placeholders, or where the table keeps the keys' text.
    pub names: Vec<Name>,
}

/// Lists every lease of a table that is held, soonest to expire first. It reads the whole table.
///
/// # Errors
///
/// Those of [`Table::list`].
///
/// # Cancel safety
///
/// Cancel safe: it only reads.
pub async fn leases<C: Connection>(
    conn: &mut C,
    table: &Table,
    names: &Names,
) -> Result<Vec<Lease>, Error> {
    Ok(named(table.list(conn).await?, names))
}

pub(super) fn named(rows: Vec<Row>, names: &Names) -> Vec<Lease> {
    let shown = rows.into_iter().map(|row| Lease {
        names: names.of_lease(row.key_hash, row.key.as_deref()),
        row,
    });
    shown.collect()
}
