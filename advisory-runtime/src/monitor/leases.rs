//! Which leases are held, and which keys are kept?

use super::names::{Name, Names};
use crate::lease::{Row, Table};
use crate::{Connection, Error};

/// A lease that somebody holds, or a key that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lease {
    /// Who holds it, its pattern and token, and when it expires.
    pub row: Row,
    /// The locks it can be, of those that the inventory has.
    pub names: Vec<Name>,
}

/// Lists every lease of a table that is held and every key that is kept, soonest to expire first. It reads the whole table.
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
    let leases = rows.into_iter().map(|row| Lease {
        names: names.of_lease(&row),
        row,
    });
    leases.collect()
}
