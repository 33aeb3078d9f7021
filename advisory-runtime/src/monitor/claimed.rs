//! The claimed rows of a table that is known by its name alone.

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
    // A user's operator that comes first on the `search_path` must not change the answer.
    let query = diesel::sql_query(format!(
        "SELECT (SELECT pg_catalog.string_agg(pg_catalog.jsonb_extract_path_text(pg_catalog.to_jsonb(t.*),CAST(a.attname AS pg_catalog.text)),\
         ', ' ORDER BY k.n) FROM pg_catalog.pg_index AS i CROSS JOIN LATERAL pg_catalog.unnest(i.indkey) WITH ORDINALITY AS k (attnum,n) \
         JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) i.indrelid AND a.attnum OPERATOR(pg_catalog.=) k.attnum \
         WHERE i.indisprimary AND i.indrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)) AS key,locked_by,\
         CASE WHEN pg_catalog.isfinite(locked_until) THEN CAST(pg_catalog.date_part('epoch',\
         locked_until OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp()) \
         OPERATOR(pg_catalog.*) CAST(1000000 AS pg_catalog.float8) AS pg_catalog.int8) \
         WHEN locked_until OPERATOR(pg_catalog.<) pg_catalog.clock_timestamp() THEN -9223372036854775807 END AS remaining \
         FROM {table} AS t WHERE locked_until IS NOT NULL ORDER BY locked_until LIMIT 1000"
    ));
    let query = query.bind::<Text, _>(&table);
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
