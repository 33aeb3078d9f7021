//! Text in HTML.

use std::fmt::Write;

use crate::text::printable;

/// A text without markup, and without characters that change the direction of the text after them.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in printable(text).chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

pub(super) fn code(text: &str) -> String {
    format!("<code>{}</code>", escaped(text))
}

/// A message; the parts in backticks are code.
pub(super) fn with_code(message: &str) -> String {
    let mut text = String::new();
    for (at, part) in message.split('`').enumerate() {
        let _ = match at % 2 {
            0 => write!(text, "{}", escaped(part)),
            _ => write!(text, "{}", code(part)),
        };
    }
    text
}

/// The id of an element of the page.
pub(super) fn id(title: &str) -> String {
    let mut id = "c".to_owned();
    for letter in title.chars() {
        // Different titles have different ids.
        let _ = match letter {
            letter if letter.is_ascii_alphanumeric() => write!(id, "{letter}"),
            other => write!(id, "-{:x}", u32::from(other)),
        };
    }
    id
}

#[cfg(test)]
mod tests {
    use super::{code, escaped, id, with_code};

    #[test]
    fn no_text_is_markup() {
        assert_eq!(
            escaped("<a href='x'>&\"</a>"),
            "&lt;a href=&#39;x&#39;&gt;&amp;&quot;&lt;/a&gt;"
        );
        assert_eq!(code("<id>"), "<code>&lt;id&gt;</code>");
        assert_eq!(
            with_code("write `<b>` now"),
            "write <code>&lt;b&gt;</code> now"
        );
        assert_ne!(id("a b"), id("a-b"));
        assert!(!escaped("\u{202e}x").contains('\u{202e}'));
    }
}
