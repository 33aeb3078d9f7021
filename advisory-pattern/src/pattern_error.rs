//! What is wrong with a pattern, where, and what should be written instead?

use std::{fmt, ops::Range};

/// Says what is wrong with a pattern and what to write instead, one fact each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError {
    message: String,
    range: Range<usize>,
}

impl PatternError {
    /// `at` is the slice of `text` that is wrong.
    pub(crate) fn new(text: &str, at: &str, message: String) -> Self {
        // Addresses tell where a slice lies in its text; the bounds hold for any other slice too.
        let start = at.as_ptr().addr().saturating_sub(text.as_ptr().addr());
        let start = start.min(text.len());
        let end = text.len().min(start + at.len());
        let range = start..end;
        Self { message, range }
    }

    /// Gives the bytes of the pattern's text that are wrong.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for PatternError {}

/// ``unknown shape `uid`: did you mean `uuid`?``
pub(crate) fn unknown(noun: &str, given: &str, meant: Option<&str>, known: &[&str]) -> String {
    let known = known.join("`, `");
    if given.is_empty() {
        return format!("missing {noun}: write one of `{known}`");
    }
    let given = short(given);
    match meant {
        Some(meant) => format!("unknown {noun} `{given}`: did you mean `{meant}`?"),
        None => format!("unknown {noun} `{given}`: write one of `{known}`"),
    }
}

/// What a message quotes of a text that may be long.
pub(crate) fn short(text: &str) -> String {
    const MOST: usize = 40;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    let start: String = text.chars().take(MOST).collect();
    format!("{start}…")
}
