//! The statements of a run other than Diesel's own.

/// The name of Diesel's table, if it exists where Diesel would create it: in the first schema of
/// the search path. Where only a later schema has one, Diesel creates another and applies
/// everything.
pub(super) const TABLE: &str = "SELECT CAST(pg_catalog.to_regclass(\
     pg_catalog.quote_ident(pg_catalog.current_schema()) \
     OPERATOR(pg_catalog.||) '.__diesel_schema_migrations') AS pg_catalog.text)";

/// The separator of two versions in the answer to [`versions`].
pub(super) const SEPARATOR: char = '\u{1f}';

/// The versions in a table, as one text. The table's name is the answer to [`TABLE`], which is
/// quoted where necessary.
pub(super) fn versions(table: &str) -> String {
    format!("SELECT pg_catalog.string_agg(version,pg_catalog.chr(31)) FROM {table}")
}

pub(super) const SAVE_SEARCH_PATH: &str = "SELECT pg_catalog.set_config('advisory.search_path',\
     pg_catalog.current_setting('search_path'),false)";

/// Restores the search path, unless the migration has reset all settings, the search path included.
pub(super) const RESTORE_SEARCH_PATH: &str = "SELECT pg_catalog.set_config('search_path',path,false),\
     pg_catalog.set_config('advisory.search_path','',false) \
     FROM pg_catalog.current_setting('advisory.search_path',true) AS path \
     WHERE path OPERATOR(pg_catalog.<>) ''";
