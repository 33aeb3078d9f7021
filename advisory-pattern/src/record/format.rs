//! The characters and words that frame a record and its fields.

use super::error::RecordError;

pub(super) const START: char = '\u{1e}';
pub(super) const FIELD: char = '\u{1f}';
pub(super) const PART: char = '\u{1c}';
pub(super) const END: char = '\u{1d}';
/// Follows [`START`] in the record of a lock site.
pub(super) const MAGIC: &str = "advisory lock site";
/// Follows it in the record of a claim.
pub(super) const CLAIM_MAGIC: &str = "advisory claim";
/// The newest version of the format that this crate writes; a reader refuses a newer one.
///
/// A record has the lowest version that its content needs. Version 2 has pairs whose second half is
/// a pattern, and the derivation `fnv1a64`.
pub const RECORD_VERSION: u32 = 2;
const LONGEST: usize = 64 * 1024;

/// Replaces control characters. Values are printed to terminals, which they must not control, and
/// must not end the record.
pub(super) fn clean(value: &str) -> String {
    value.replace(char::is_control, " ")
}

pub(super) fn join_parts<T: AsRef<str>>(values: impl IntoIterator<Item = T>) -> String {
    let values: Vec<String> = values
        .into_iter()
        .map(|value| clean(value.as_ref()))
        .collect();
    values.join(&PART.to_string())
}

/// The records that have these first words, sorted and without duplicates, from bytes that can be
/// anything.
pub(super) fn records_of<R: Ord>(
    magic: &str,
    bytes: &[u8],
    decode: impl Fn(&str) -> Result<R, RecordError>,
) -> Result<Vec<R>, RecordError> {
    let texts = texts_of(magic, bytes)?;
    let records: Result<Vec<R>, RecordError> = texts.into_iter().map(decode).collect();
    let mut records = records?;
    records.sort();
    records.dedup();
    Ok(records)
}

/// The text of each, without its start and end.
fn texts_of<'b>(magic: &str, bytes: &'b [u8]) -> Result<Vec<&'b str>, RecordError> {
    // Built here: as a constant it would be found as a record in every program that contains this
    // reader.
    let start: Vec<u8> = std::iter::once(START as u8)
        .chain(magic.bytes())
        .chain([FIELD as u8])
        .collect();
    let mut texts = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == START as u8) {
        rest = &rest[at..];
        if !rest.starts_with(&start) {
            rest = &rest[1..];
            continue;
        }
        let reach = &rest[1..rest.len().min(LONGEST)];
        // The next start ends it too: a record that lost its end must not include the next one.
        let Some(end) = reach
            .iter()
            .position(|byte| *byte == END as u8 || *byte == START as u8)
        else {
            return Err(RecordError::Truncated);
        };
        if reach[end] != END as u8 {
            return Err(RecordError::Truncated);
        }
        let text = std::str::from_utf8(&reach[..end]);
        texts.push(text.map_err(|_| RecordError::Malformed("text that is not UTF-8".to_owned()))?);
        rest = &rest[1 + end..];
    }
    Ok(texts)
}
