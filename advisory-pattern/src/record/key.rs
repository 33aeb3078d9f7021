//! How is what is known of a lock's key written into a record?

use super::error::RecordError;
use crate::locked_key::LockedKey;
use crate::parse::parse;

/// Starts a pair whose second half is a pattern; since version 2.
pub(super) const HALF: &str = "half ";

/// The key as a record holds it: `pattern …`, `number 42`, `number (7,?)`, `half 7 …` for a pair whose second half is a pattern; `?` for
/// an expression, whose key is unknown.
#[must_use]
pub fn encode_key(key: Option<&LockedKey>) -> String {
    let half =
        |number: &Option<i32>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
    match key {
        Some(LockedKey::Pattern(pattern)) => format!("pattern {pattern}"),
        Some(LockedKey::BigInt(number)) => format!("number {number}"),
        Some(LockedKey::IntInt(first, second)) => {
            format!("number ({},{})", half(first), half(second))
        }
        Some(LockedKey::IntPattern(first, pattern)) => format!("{HALF}{first} {pattern}"),
        None => "?".to_owned(),
    }
}

/// Reads what [`encode_key`] writes; `None` for an expression, whose key is unknown.
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
