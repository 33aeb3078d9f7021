//! Parsing of a literal into a pattern, with the errors it can have.
//!
//! Text; `<path>`, `<path: shape>`, `<path|filter>`, `<path: shape|filter|filter>`, `<path*>` for a
//! slice. `<<` is a literal `<`; a `>` alone is literal too. After a mistake the reader continues,
//! so that one compile shows all of them.

mod error;
mod foreign;
mod path;
mod placeholder;

use std::mem;

use crate::pattern::{Part, Pattern};
pub use error::PatternError;
use error::short;
use placeholder::PlaceholderReader;

/// The most bytes in a pattern: its text and paths, without white space, shapes and filters.
///
/// An accepted pattern is therefore accepted again in canonical form. PostgreSQL has no limit; a
/// longer key is a mistake.
pub const MAX_BYTES: usize = 512;

/// Reads a key pattern.
///
/// # Errors
/// Every mistake in the text, in the order of the text; at least one.
///
/// # Examples
///
/// ```
/// use advisory_pattern::parse;
///
/// let pattern = parse("booking:<tenant_id>:<req.day>")?;
/// assert_eq!(pattern.placeholders().count(), 2);
/// assert!(parse("booking:<").is_err());
/// # Ok::<(), Vec<advisory_pattern::PatternError>>(())
/// ```
pub fn parse(text: &str) -> Result<Pattern, Vec<PatternError>> {
    let mut reader = Reader {
        text,
        literal: String::new(),
        parts: Vec::new(),
        placeholders: PlaceholderReader::new(text),
    };
    reader.read();
    let (parts, errors) = (reader.parts, reader.placeholders.errors.list);
    if errors.is_empty() {
        Ok(Pattern { parts })
    } else {
        Err(errors)
    }
}

struct Reader<'a> {
    text: &'a str,
    /// The text since the last placeholder.
    literal: String,
    parts: Vec<Part>,
    placeholders: PlaceholderReader<'a>,
}

impl<'a> Reader<'a> {
    fn read(&mut self) {
        if self.text.is_empty() {
            let message = "the key pattern is empty: write a text such as `\"nightly-report\"`";
            self.refuse("", message);
        }
        if let Some(at) = self.text.find(char::is_control) {
            // A registry and a terminal cannot show it.
            let message =
                "a key pattern cannot contain a control character: pass it as a value, `<name>`";
            self.refuse(&self.text[at..], message);
        }
        let mut rest = self.text;
        while let Some(at) = rest.find(['<', '{', '$', '#', '%', ':', '/', '?']) {
            let (plain, special) = rest.split_at(at);
            self.literal.push_str(plain);
            let before = &self.text[..self.text.len() - special.len()];
            rest = if let Some(after) = special.strip_prefix("<<") {
                self.literal.push('<');
                after
            } else if special.starts_with('<') {
                self.bracket(special)
            } else if let Some((whole, name)) = foreign::read(special, before) {
                self.foreign(whole, name);
                &special[whole.len()..]
            } else {
                let mut characters = special.chars();
                self.literal.extend(characters.next());
                characters.as_str()
            };
        }
        self.literal.push_str(rest);
        self.end_literal();
        self.limit();
    }

    fn refuse(&mut self, at: &str, message: impl Into<String>) {
        self.placeholders.errors.at(at, message);
    }

    fn end_literal(&mut self) {
        if !self.literal.is_empty() {
            self.parts.push(Part::Text(mem::take(&mut self.literal)));
        }
    }

    fn limit(&mut self) {
        let bytes = |part: &Part| match part {
            Part::Text(text) => text.len(),
            Part::Placeholder(placeholder) => placeholder.name().len() + 2,
        };
        let bytes: usize = self.parts.iter().map(bytes).sum();
        if bytes > MAX_BYTES {
            let message = format!("the key pattern has {bytes} bytes: write at most {MAX_BYTES}");
            self.refuse(self.text, message);
        }
    }

    /// Reads a placeholder at the start of `from`; returns the text after it.
    fn bracket(&mut self, from: &'a str) -> &'a str {
        let inner = &from[1..];
        let Some(end) = inner.find(['<', '>']) else {
            let message = "is not closed: write `>` after the name, or `<<` for a literal `<`";
            self.placeholders.errors.about(from, message);
            return "";
        };
        let (source, after) = inner.split_at(end);
        if after.starts_with('<') {
            let open = &from[..=end];
            let message = "is not closed before the next `<`: write `>` after the name, or `<<` for a literal `<`";
            self.placeholders.errors.about(open, message);
            return after;
        }
        self.end_literal();
        if let Some(placeholder) = self.placeholders.read(&from[..end + 2], source) {
            self.parts.push(Part::Placeholder(placeholder));
        }
        &after[1..]
    }

    /// Refuses a placeholder of another language, which would be text; `name` is the value's, if it
    /// says one.
    fn foreign(&mut self, whole: &'a str, name: Option<&str>) {
        let name = match name {
            Some(name) => format!("`<{}>`", short(name)),
            None => "the value's name, such as `<tenant_id>`".to_owned(),
        };
        let message = format!("is plain text in a key pattern: write {name}");
        self.placeholders.errors.about(whole, &message);
    }
}
