//! The statements of a run other than Diesel's own.

use crate::sql::qualify::qualify;

/// The name of Diesel's table, if it exists where Diesel would create it: in the first schema of
/// the search path. If only a later schema has one, Diesel creates another and applies everything.
pub(super) fn table() -> String {
    qualify(
        "SELECT to_regclass(quote_ident(current_schema()) || '.__diesel_schema_migrations')::text",
    )
}

/// The separator of two versions in the answer to [`versions`].
pub(super) const SEPARATOR: char = '\u{1f}';

/// The versions in a table, as one text. The table's name is the answer to [`table`], which is
/// quoted where necessary.
pub(super) fn versions(table: &str) -> String {
    qualify("SELECT string_agg(version, chr(31))") + " FROM " + table
}

pub(super) fn save_search_path() -> String {
    qualify("SELECT set_config('advisory.search_path', current_setting('search_path'), false)")
}

/// Restores the search path, unless the migration has reset all settings, the search path included.
pub(super) fn restore_search_path() -> String {
    qualify(
        "SELECT set_config('search_path', path, false), set_config('advisory.search_path', '', false) \
         FROM current_setting('advisory.search_path', true) AS path WHERE path <> ''",
    )
}
