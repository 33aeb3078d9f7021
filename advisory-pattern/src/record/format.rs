//! The characters and words that frame a record and its fields.

/// Starts a record.
pub(super) const START: char = '\u{1e}';
/// Separates a record's fields.
pub(super) const FIELD: char = '\u{1f}';
/// Separates the parts of a field that has several.
pub(super) const PART: char = '\u{1c}';
/// Ends a record.
pub(super) const END: char = '\u{1d}';
/// Follows [`START`].
pub(super) const MAGIC: &str = "advisory lock site";
/// The newest version of the format that this crate writes; a reader refuses a newer one.
///
/// A record has the lowest version that its content needs. Version 2 has pairs whose second half is a pattern, and the
/// derivation `fnv1a64`.
pub const RECORD_VERSION: u32 = 2;
/// The longest record in bytes.
pub(super) const LONGEST: usize = 64 * 1024;

/// Replaces control characters. Values are printed to terminals, which they must not control, and must not end the record.
pub(super) fn clean(value: &str) -> String {
    value.replace(char::is_control, " ")
}

/// The parts of a field that has several, as one value.
pub(super) fn join_parts<T: AsRef<str>>(values: impl IntoIterator<Item = T>) -> String {
    let values: Vec<String> = values
        .into_iter()
        .map(|value| clean(value.as_ref()))
        .collect();
    values.join(&PART.to_string())
}
