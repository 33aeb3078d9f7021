//! The claimed rows of a table that is known by its name, and by the claims of an inventory.

use super::sql::{CLAIM_TABLES, claimed, quoted};
use crate::Connection;
use crate::claim::Error;
use crate::inventory::ClaimSite;
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
    /// How long the claim lasts unless it is renewed; zero if it has expired and nobody has taken it over, [`Duration::MAX`] if
    /// `locked_until` is `infinity`.
    pub remaining: Duration,
    /// How long ago it has expired; zero if it has not.
    pub expired: Duration,
}

#[derive(diesel::QueryableByName)]
#[diesel(check_for_backend(diesel::pg::Pg))]
struct Answer {
    #[diesel(sql_type = Nullable<Text>)]
    key: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    locked_by: Option<String>,
    /// In microseconds; `NULL` is forever.
    #[diesel(sql_type = Nullable<BigInt>)]
    remaining: Option<i64>,
}

/// A table whose rows are claimed, and the columns that a claim is written into.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimTable {
    name: String,
    locked_until: String,
    locked_by: String,
    /// The columns that are `NULL` while a row can be claimed.
    ends: Vec<String>,
}

impl ClaimTable {
    /// The table `jobs` or `shop.jobs`, with the columns `locked_until` and `locked_by`.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            locked_until: "locked_until".to_owned(),
            locked_by: "locked_by".to_owned(),
            ends: Vec::new(),
        }
    }

    /// The table of this name, with the columns of a claim of the [inventory](crate::inventory::claims).
    #[must_use]
    pub fn of(name: impl Into<String>, claim: &ClaimSite) -> Self {
        let table = Self::new(name);
        let column = |argument: &str| claim.column(argument).map(str::to_owned);
        Self {
            locked_until: column("locked_until").unwrap_or(table.locked_until),
            locked_by: column("locked_by").unwrap_or(table.locked_by),
            ends: ["completed_at", "failed_at"]
                .into_iter()
                .filter_map(column)
                .collect(),
            name: table.name,
        }
    }

    /// The table's name, as it was given.
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
struct Found {
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Bool)]
    is_visible: bool,
}

/// Finds the tables that a claim of the [inventory](crate::inventory::claims) can be on, which has no schema: the table of its name that
/// the search path has, or else those of other schemas, at most a hundred. Each has the claim's two columns.
///
/// # Errors
///
/// [`Error::Database`].
///
/// # Cancel safety
///
/// Cancel safe: it only reads.
pub async fn claim_tables<C: Connection>(
    conn: &mut C,
    claim: &ClaimSite,
) -> Result<Vec<ClaimTable>, Error> {
    let table = ClaimTable::of(claim.table_name(), claim);
    let query = diesel::sql_query(CLAIM_TABLES)
        .bind::<Text, _>(table.name)
        .bind::<Text, _>(table.locked_until)
        .bind::<Text, _>(table.locked_by);
    let found: Result<Vec<Found>, _> = query.load(conn.pg()).await;
    let found = found.map_err(Error::Database)?;
    let is_visible = found.iter().any(|table| table.is_visible);
    let tables = found.into_iter().filter(|it| it.is_visible == is_visible);
    Ok(tables.map(|it| ClaimTable::of(it.name, claim)).collect())
}

/// Lists the claimed rows of a table, soonest to expire first, at most a thousand: of a [`ClaimTable`], or of the table `jobs` or
/// `shop.jobs` with the columns `locked_until` and `locked_by`. Without an index on them it reads the whole table: for administrators.
///
/// # Errors
///
/// [`Error::Database`], such as for a table without these columns.
///
/// # Cancel safety
///
/// Cancel safe: it only reads.
pub async fn claimed_rows<C: Connection>(
    conn: &mut C,
    table: impl Into<ClaimTable>,
) -> Result<Vec<ClaimedRow>, Error> {
    let table = table.into();
    let parts: Vec<String> = table.name.splitn(2, '.').map(quoted).collect();
    let name = parts.join(".");
    let text = claimed(&name, &table.locked_until, &table.locked_by, &table.ends);
    let query = diesel::sql_query(text).bind::<Text, _>(&name);
    // Negative counts as zero.
    let micros = |time: i64| Duration::from_micros(u64::try_from(time).unwrap_or(0));
    let rows: Result<Vec<Answer>, _> = query.load(conn.pg()).await;
    let rows = rows.map_err(Error::Database)?.into_iter();
    let rows = rows.map(|row| ClaimedRow {
        key: row.key.unwrap_or_default(),
        locked_by: row.locked_by.unwrap_or_default(),
        remaining: row.remaining.map_or(Duration::MAX, micros),
        expired: row.remaining.map_or(Duration::ZERO, |remaining| {
            micros(remaining.saturating_neg())
        }),
    });
    Ok(rows.collect())
}
