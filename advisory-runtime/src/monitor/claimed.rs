//! The claimed rows of a table that is given by its name or by a claim of the inventory.

use super::row::duration;
use super::sql::{CLAIM_TABLES, claimed};
use crate::Connection;
use crate::claim::Error;
use crate::inventory::ClaimSite;
use crate::sql::quoted;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};
use diesel_async::RunQueryDsl;
use std::time::Duration;

/// A row that a worker has claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClaimedRow {
    /// The values of its primary key.
    pub key: String,
    /// The worker's name, `#`, and a UUID of this claim.
    pub locked_by: String,
    /// The time until the claim expires unless it is renewed; zero if it has expired,
    /// [`Duration::MAX`] if `locked_until` is `infinity`.
    pub remaining: Duration,
    /// The time since the claim expired; zero if it has not.
    pub expired: Duration,
}

#[derive(diesel::QueryableByName)]
#[diesel(check_for_backend(diesel::pg::Pg))]
struct RawClaim {
    #[diesel(sql_type = Nullable<Text>)]
    key: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    locked_by: Option<String>,
    /// In microseconds; `NULL` is forever.
    #[diesel(sql_type = Nullable<BigInt>)]
    remaining: Option<i64>,
}

/// A table with claimed rows, and the columns of their claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimTable {
    name: String,
    quoted: String,
    locked_until: String,
    locked_by: String,
    /// The columns that are `NULL` while a row can be claimed.
    ends: Vec<String>,
}

impl ClaimTable {
    /// Describes the table `jobs` or `shop.jobs`, with the columns `locked_until` and `locked_by`.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        let parts: Vec<String> = name.splitn(2, '.').map(quoted).collect();
        Self {
            name,
            quoted: parts.join("."),
            locked_until: "locked_until".to_owned(),
            locked_by: "locked_by".to_owned(),
            ends: Vec::new(),
        }
    }

    /// Describes the table of this name, with the columns of a claim of the
    /// [inventory](crate::inventory::claims).
    #[must_use]
    pub fn of(name: impl Into<String>, claim: &ClaimSite) -> Self {
        let mut table = Self::new(name);
        let column = |argument: &str| claim.column(argument).map(str::to_owned);
        table.locked_until = column("locked_until").unwrap_or(table.locked_until);
        table.locked_by = column("locked_by").unwrap_or(table.locked_by);
        let ends = ["completed_at", "failed_at"].into_iter();
        table.ends = ends.filter_map(column).collect();
        table
    }

    fn in_schema(schema: &str, claim: &ClaimSite) -> Self {
        let name = claim.table_name();
        let mut table = Self::of(format!("{schema}.{name}"), claim);
        // A schema's name can have a dot.
        table.quoted = format!("{}.{}", quoted(schema), quoted(name));
        table
    }

    /// Adds the columns that end a row in `other`, if both have one table and one pair of claim
    /// columns: then one read gives the rows of both. Returns `true` if they do.
    pub fn merge(&mut self, other: &Self) -> bool {
        let is_same = self.quoted == other.quoted
            && self.locked_until == other.locked_until
            && self.locked_by == other.locked_by;
        if is_same {
            self.ends.extend_from_slice(&other.ends);
            self.ends.sort();
            self.ends.dedup();
        }
        is_same
    }

    /// Returns the table's name, as it was given, or with its schema.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl From<&str> for ClaimTable {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

#[derive(diesel::QueryableByName)]
#[diesel(check_for_backend(diesel::pg::Pg))]
struct FoundTable {
    #[diesel(sql_type = Text)]
    schema: String,
    #[diesel(sql_type = Bool)]
    is_visible: bool,
}

/// The tables that a claim can refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClaimTables {
    /// The one that the search path finds.
    pub visible: Option<ClaimTable>,
    /// Those of other schemas.
    pub others: Vec<ClaimTable>,
}

/// Finds the tables that a claim of the [inventory](crate::inventory::claims) can refer to. The
/// inventory does not have the schema, so these are all tables of the claim's name that have its
/// columns `locked_until` and `locked_by`.
///
/// # Errors
///
/// [`Error::Database`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_monitor!()]
/// for claim in advisory_runtime::inventory::claims()? {
///     if let Some(table) = monitor::claim_tables(conn, &claim).await?.visible {
///         println!("{}", table.name());
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub async fn claim_tables<C: Connection>(
    conn: &mut C,
    claim: &ClaimSite,
) -> Result<ClaimTables, Error> {
    let table = ClaimTable::of(claim.table_name(), claim);
    let query = diesel::sql_query(CLAIM_TABLES.as_str())
        .bind::<Text, _>(table.name)
        .bind::<Text, _>(table.locked_until)
        .bind::<Text, _>(table.locked_by);
    let found: Result<Vec<FoundTable>, _> = query.load(conn.pg()).await;
    let found = found.map_err(Error::Database)?;
    let mut tables = ClaimTables::default();
    for FoundTable { schema, is_visible } in found {
        let table = ClaimTable::in_schema(&schema, claim);
        if is_visible {
            tables.visible = Some(table);
        } else {
            tables.others.push(table);
        }
    }
    Ok(tables)
}

/// Lists the claimed rows of a table, soonest to expire first, at most a thousand. The table is a
/// [`ClaimTable`], or a name such as `shop.jobs` with the columns `locked_until` and `locked_by`.
/// Without an index on them this reads the whole table.
///
/// # Errors
///
/// [`Error::Database`], such as for a table without these columns.
pub async fn claimed_rows<C: Connection>(
    conn: &mut C,
    table: impl Into<ClaimTable>,
) -> Result<Vec<ClaimedRow>, Error> {
    let table = table.into();
    let name = &table.quoted;
    let text = claimed(name, &table.locked_until, &table.locked_by, &table.ends);
    let query = diesel::sql_query(text).bind::<Text, _>(name);
    let rows: Result<Vec<RawClaim>, _> = query.load(conn.pg()).await;
    let rows = rows.map_err(Error::Database)?.into_iter();
    let rows = rows.map(|row| ClaimedRow {
        key: row.key.unwrap_or_default(),
        locked_by: row.locked_by.unwrap_or_default(),
        remaining: row.remaining.map_or(Duration::MAX, duration),
        expired: duration(row.remaining.map_or(0, i64::saturating_neg)),
    });
    Ok(rows.collect())
}
