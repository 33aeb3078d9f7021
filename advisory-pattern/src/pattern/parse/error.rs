//! Errors of a pattern: what is wrong, where, and what to write instead.

use std::{fmt, ops::Range};

/// A mistake in a pattern: what is wrong, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError {
    message: String,
    range: Range<usize>,
}

impl PatternError {
    /// Returns the bytes of the pattern's text that are wrong.
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

pub(super) struct Errors<'a> {
    text: &'a str,
    pub(super) list: Vec<PatternError>,
}

impl<'a> Errors<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let list = Vec::new();
        Self { text, list }
    }

    /// Adds a mistake; `at` is the slice of the text that is wrong.
    pub(super) fn at(&mut self, at: &str, message: impl Into<String>) {
        // Addresses show where a slice is in its text; the bounds hold for any other slice too.
        let start = at.as_ptr().addr().saturating_sub(self.text.as_ptr().addr());
        let start = start.min(self.text.len());
        let end = self.text.len().min(start + at.len());
        let range = start..end;
        // It quotes the text, and is printed to terminals.
        let message = message.into().replace(char::is_control, " ");
        self.list.push(PatternError { message, range });
    }

    /// Adds a mistake with a message that begins with the wrong slice.
    pub(super) fn about(&mut self, at: &str, message: &str) {
        self.at(at, format!("`{}` {message}", short(at)));
    }
}

/// ``unknown shape `uid`: did you mean `uuid`?``
pub(super) fn unknown(noun: &str, given: &str, meant: Option<&str>, known: &[&str]) -> String {
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

/// The part of a long text that a message quotes.
pub(super) fn short(text: &str) -> String {
    const LONGEST: usize = 40;
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    let start: String = text.chars().take(LONGEST).collect();
    format!("{start}…")
}
