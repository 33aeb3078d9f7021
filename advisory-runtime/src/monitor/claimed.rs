//! The claimed rows of a table that is known by its name alone.

use super::sql::claimed;
use crate::Connection;
use crate::claim::Error;
use diesel::sql_types::{BigInt, Nullable, Text};
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

/// Lists the claimed rows of a table, `table` or `schema.table`, soonest to expire first, at most a thousand. The table has the
/// columns `locked_until` and `locked_by`. Without an index on them it reads the whole table: for administrators.
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
    table: &str,
) -> Result<Vec<ClaimedRow>, Error> {
    let quoted = |part: &str| format!("\"{}\"", part.replace('"', "\"\""));
    let parts: Vec<String> = table.splitn(2, '.').map(quoted).collect();
    let table = parts.join(".");
    let query = diesel::sql_query(claimed(&table)).bind::<Text, _>(&table);
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
