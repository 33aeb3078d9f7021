//! The characters and words that frame a record and its fields, the keys in it, and errors of reading
//! them.

use std::fmt::{self, Write};

use crate::pattern::locked_key::{HALF, LockedKey};
use crate::pattern::parse::parse;
use crate::pattern::permit::Permits;

const START: char = '\u{1e}';
const FIELD: char = '\u{1f}';
const PART: char = '\u{1c}';
const END: char = '\u{1d}';
/// Follows [`START`] in the record of a lock site.
pub(super) const MAGIC: &str = "advisory lock site";
/// Follows it in the record of a claim.
pub(super) const CLAIM_MAGIC: &str = "advisory claim";
/// The newest version of the format that this crate writes; a reader refuses a newer one.
///
/// A record has the lowest version that its content needs. Version 2 has pairs with a pattern as
/// the second half, and the derivation `fnv1a64`.
pub const RECORD_VERSION: u32 = 2;
const LONGEST: usize = 64 * 1024;

/// Marks the place of the module's path, which only the compiler knows: the macro inserts
/// `module_path!()` there.
pub const MODULE_PATH: &str = "\u{1a}";

/// The reason why bytes that start like a record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordError {
    /// The record has no end: the file is cut short.
    Truncated,
    /// The record has a newer format than this reader knows.
    Newer(String),
    /// A field does not have the form that the format requires.
    Malformed(String),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => write!(f, "a record has no end: the file is cut short"),
            Self::Newer(version) => write!(
                f,
                "a record has format {version}, which this reader does not know: update it"
            ),
            Self::Malformed(field) => write!(f, "a record has a wrong field: {field}"),
        }
    }
}

impl std::error::Error for RecordError {}

/// A field's value in a record.
pub(super) enum Field<'r> {
    Text(&'r mut String),
    /// The module's path, which can be [`MODULE_PATH`].
    Module(&'r mut String),
    Optional(&'r mut Option<String>),
    Number(&'r mut u32),
    Permits(&'r mut Option<Permits>),
    /// One field that has all texts, and is missing without any.
    Joined(&'r mut Vec<String>),
    /// A field for each text.
    Each(&'r mut Vec<String>),
    Pairs(&'r mut Vec<(String, String)>),
}

impl Field<'_> {
    fn values(&self) -> Vec<String> {
        let part = PART.to_string();
        match self {
            Self::Module(value) if *value == MODULE_PATH => vec![MODULE_PATH.to_owned()],
            Self::Text(value) | Self::Module(value) => vec![clean(value)],
            Self::Optional(value) => value.iter().map(|value| clean(value)).collect(),
            Self::Number(value) => vec![value.to_string()],
            Self::Permits(value) => value
                .iter()
                .map(|value| clean(&value.to_string()))
                .collect(),
            // An empty list, which has no text, would be read as one empty text.
            Self::Joined(values) if values.is_empty() => Vec::new(),
            Self::Joined(values) => {
                let values: Vec<_> = values.iter().map(|value| clean(value)).collect();
                vec![values.join(&part)]
            }
            Self::Each(values) => values.iter().map(|value| clean(value)).collect(),
            Self::Pairs(pairs) => {
                let pairs = pairs.iter();
                pairs
                    .map(|(one, other)| clean(one) + &part + &clean(other))
                    .collect()
            }
        }
    }

    fn read(&mut self, name: &str, value: &str) -> Result<(), RecordError> {
        let malformed = || RecordError::Malformed(format!("{name} `{value}`"));
        let text = clean(value);
        match self {
            Self::Module(slot) if value == MODULE_PATH => MODULE_PATH.clone_into(slot),
            Self::Text(slot) | Self::Module(slot) => **slot = text,
            Self::Optional(slot) => **slot = Some(text),
            Self::Number(slot) => **slot = value.parse().map_err(|_| malformed())?,
            // Each permit has a key to compare.
            Self::Permits(slot) => **slot = Some(Permits::parse(&text).ok_or_else(malformed)?),
            Self::Joined(slot) => **slot = value.split(PART).map(clean).collect(),
            Self::Each(slot) => slot.push(text),
            Self::Pairs(slot) => {
                let (one, other) = value.split_once(PART).unwrap_or((value, ""));
                slot.push((clean(one), clean(other)));
            }
        }
        Ok(())
    }
}

pub(super) fn encode<const N: usize>(
    magic: &str,
    version: u32,
    fields: [(&str, Field<'_>); N],
) -> String {
    let mut text = format!("{START}{magic}{FIELD}{version}");
    for (name, field) in fields {
        for value in field.values() {
            // Writing to a `String` cannot fail.
            let _ = write!(text, "{FIELD}{name}={value}");
        }
    }
    text.push(END);
    text
}

/// Reads the text between a record's start and end. Fields of a later release are skipped.
pub(super) fn decode<R: Default, const N: usize>(
    text: &str,
    newest: u32,
    fields: fn(&mut R) -> [(&'static str, Field<'_>); N],
) -> Result<R, RecordError> {
    let mut written = text.split(FIELD).skip(1);
    let version = written.next().unwrap_or_default();
    match version.parse::<u32>() {
        Ok(version) if version <= newest => {}
        Ok(_) => return Err(RecordError::Newer(version.to_owned())),
        Err(_) => return Err(RecordError::Malformed(format!("version `{version}`"))),
    }
    let mut record = R::default();
    let mut fields = fields(&mut record);
    for field in written {
        let Some((name, value)) = field.split_once('=') else {
            return Err(RecordError::Malformed(format!("`{field}`")));
        };
        if let Some((_, field)) = fields.iter_mut().find(|(known, _)| *known == name) {
            field.read(name, value)?;
        }
    }
    Ok(record)
}

/// Replaces control characters. Values are printed to terminals, which they must not control, and
/// must not end the record.
fn clean(value: &str) -> String {
    value.replace(char::is_control, " ")
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
        let ends = |byte: &u8| *byte == END as u8 || *byte == START as u8;
        let end = reach.iter().position(ends);
        let end = end.filter(|end| reach[*end] == END as u8);
        let end = end.ok_or(RecordError::Truncated)?;
        let text = std::str::from_utf8(&reach[..end]);
        texts.push(text.map_err(|_| RecordError::Malformed("text that is not UTF-8".to_owned()))?);
        rest = &rest[1 + end..];
    }
    Ok(texts)
}

/// Reads the text that [`encode_key`](crate::encode_key) writes; `None` for an unknown key, that of
/// an expression.
///
/// # Errors
/// A key that this version cannot read.
pub fn decode_key(text: &str) -> Result<Option<LockedKey>, RecordError> {
    let malformed = || RecordError::Malformed(format!("key `{text}`"));
    if text == "?" {
        return Ok(None);
    }
    if let Some(pattern) = text.strip_prefix("pattern ") {
        let pattern = parse(pattern).map_err(|_| malformed())?;
        return Ok(Some(LockedKey::Pattern(pattern)));
    }
    if let Some(pair) = text.strip_prefix(HALF) {
        let (first, pattern) = pair.split_once(' ').ok_or_else(malformed)?;
        let first = first.parse().map_err(|_| malformed())?;
        let pattern = parse(pattern).map_err(|_| malformed())?;
        return Ok(Some(LockedKey::IntPattern(first, pattern)));
    }
    let number = text.strip_prefix("number ").ok_or_else(malformed)?;
    let Some(pair) = number.strip_prefix('(') else {
        let number = number.parse().map_err(|_| malformed())?;
        return Ok(Some(LockedKey::BigInt(number)));
    };
    let pair = pair.strip_suffix(')').and_then(|pair| pair.split_once(','));
    let (first, second) = pair.ok_or_else(malformed)?;
    let half = |half: &str| match half {
        "?" => Ok(None),
        digits => digits.parse().map(Some).map_err(|_| malformed()),
    };
    Ok(Some(LockedKey::IntInt(half(first)?, half(second)?)))
}
