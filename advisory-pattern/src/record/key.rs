//! The part of a record that holds what is known of a lock's key.

use super::format::RecordError;
use crate::pattern::locked_key::{HALF, LockedKey};
use crate::pattern::parse::parse;

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
