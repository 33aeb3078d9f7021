//! Text in HTML.

use crate::text::printable;

/// A text without markup, and without characters that change the direction of the text after them.
pub(super) fn escaped(text: &str) -> String {
    // The first one is also in the others.
    let safe = printable(text).replace('&', "&amp;");
    let safe = safe.replace('<', "&lt;").replace('>', "&gt;");
    safe.replace('"', "&quot;").replace('\'', "&#39;")
}

pub(super) fn code(text: &str) -> String {
    format!("<code>{}</code>", escaped(text))
}

/// A message; the parts in backticks are code.
pub(super) fn with_code(message: &str) -> String {
    let parts = message.split('`').enumerate();
    let parts = parts.map(|(at, part)| match at % 2 {
        0 => escaped(part),
        _ => code(part),
    });
    parts.collect()
}

/// The id of an element of the page.
pub(super) fn id(title: &str) -> String {
    // Different titles have different ids.
    let letters = title.chars().map(|letter| match letter {
        plain if plain.is_ascii_alphanumeric() => plain.to_string(),
        other => format!("-{:x}", u32::from(other)),
    });
    format!("c{}", letters.collect::<String>())
}
