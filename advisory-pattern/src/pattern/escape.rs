//! Escaping of text values in a key, so that every `:` belongs to the pattern.
//!
//! `%` becomes `%25` and `:` becomes `%3A`; nothing else changes. Nothing here allocates or uses
//! Unicode's tables, which change between releases; keys must not change.
//!
//! ```
//! use advisory_pattern::escape::{escape_into, unescape};
//!
//! let mut key = String::from("note:");
//! escape_into(&mut key, "10:30, 50%")?;
//! assert_eq!(key, "note:10%3A30, 50%25");
//! assert_eq!(unescape("10%3A30, 50%25"), "10:30, 50%");
//! # Ok::<(), std::fmt::Error>(())
//! ```

use std::fmt;

/// Passes the escaped text to `sink` in pieces: the longest runs without an escape, and the escapes
/// between them.
///
/// A text can also be escaped piece by piece, as the filters do: the result does not change.
pub fn escape(text: &str, mut sink: impl FnMut(&str)) {
    for run in text.split_inclusive(['%', ':']) {
        let (plain, escape) = if let Some(plain) = run.strip_suffix('%') {
            (plain, "%25")
        } else if let Some(plain) = run.strip_suffix(':') {
            (plain, "%3A")
        } else {
            (run, "")
        };
        for piece in [plain, escape] {
            if !piece.is_empty() {
                sink(piece);
            }
        }
    }
}

/// Writes the escaped text to `out`; where the writes cannot fail, [`escape`] is simpler.
///
/// # Errors
/// The first error of `out`; nothing is written after it.
pub fn escape_into(out: &mut impl fmt::Write, text: &str) -> fmt::Result {
    let mut result = Ok(());
    escape(text, |piece| {
        if result.is_ok() {
            result = out.write_str(piece);
        }
    });
    result
}

/// Returns the text before it was escaped, for people to read. A `%` that does not start an escape
/// is unchanged.
#[must_use]
pub fn unescape(rendered: &str) -> String {
    // In this order: `%253A` is an escaped `%3A`.
    rendered.replace("%3A", ":").replace("%25", "%")
}

/// Strips U+0020 from both ends, as SQL's `btrim(x)` does, but no other white space.
#[must_use]
pub fn trim(text: &str) -> &str {
    text.trim_matches(' ')
}

/// Passes the text to `sink` in pieces, with A to Z in lower case, as SQL's `lower(x COLLATE "C")`
/// does.
pub fn lower(text: &str, mut sink: impl FnMut(&str)) {
    let is_upper = |c: char| c.is_ascii_uppercase();
    for run in text.split_inclusive(is_upper) {
        let plain = run.trim_end_matches(is_upper);
        if !plain.is_empty() {
            sink(plain);
        }
        for letter in run[plain.len()..].chars() {
            sink(letter.to_ascii_lowercase().encode_utf8(&mut [0; 4]));
        }
    }
}
