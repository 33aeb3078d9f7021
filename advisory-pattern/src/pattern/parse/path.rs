//! A path from a parameter: a name, then `.name` or `.0`.
//!
//! Accepts Rust's names as far as the standard library's tables define them; the compiler checks
//! them when the macro emits them.

/// The keywords of every edition that can be written as raw identifiers.
const KEYWORDS: [&str; 46] = [
    "abstract", "as", "async", "become", "box", "break", "const", "continue", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "if", "impl", "in", "let", "loop", "macro",
    "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "static", "struct",
    "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where",
    "while", "yield",
];
/// No value has one of these names: most cannot be raw, and `await` cannot be a field.
const RESERVED: [&str; 6] = ["_", "Self", "await", "crate", "self", "super"];

/// The names of the path; `None` if the text is not a path.
pub(super) fn read(text: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for name in text.split('.').map(str::trim) {
        let fits = if names.is_empty() {
            name == "self" || is_name(name)
        } else {
            is_index(name) || is_name(name)
        };
        if !fits {
            return None;
        }
        names.push(name.to_owned());
    }
    Some(names)
}

/// The first keyword among the path's names, which a raw identifier could replace.
pub(super) fn keyword(text: &str) -> Option<&str> {
    let mut names = text.split('.').map(str::trim);
    names.find(|name| KEYWORDS.contains(name))
}

fn is_name(name: &str) -> bool {
    let bare = name.strip_prefix("r#").unwrap_or(name);
    is_identifier(bare) && !RESERVED.contains(&bare) && (bare != name || !KEYWORDS.contains(&bare))
}

fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && chars.all(|c| c.is_alphanumeric() || c == '_')
}

fn is_index(name: &str) -> bool {
    let digits = name.bytes().all(|byte| byte.is_ascii_digit());
    digits && !name.is_empty() && (name == "0" || !name.starts_with('0'))
}
