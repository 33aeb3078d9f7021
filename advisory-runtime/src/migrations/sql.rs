//! Which of Diesel's migrations are applied.

/// The name of Diesel's table, if it exists where Diesel would create it: in the first schema of the search path. Where only a later schema
/// has one, Diesel creates another and applies everything.
pub(crate) const TABLE: &str = "SELECT CAST(pg_catalog.to_regclass(pg_catalog.quote_ident(pg_catalog.current_schema()) \
     OPERATOR(pg_catalog.||) '.__diesel_schema_migrations') AS pg_catalog.text)";

/// What is between two versions in the answer to [`versions`].
pub(crate) const SEPARATOR: char = '\u{1f}';

/// The versions in a table, as one text. The name of the table is the answer to [`TABLE`], which is quoted where it has to be.
pub(crate) fn versions(table: &str) -> String {
    format!("SELECT pg_catalog.string_agg(version,pg_catalog.chr(31)) FROM {table}")
}
