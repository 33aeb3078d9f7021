//! Detection of another language's placeholders.
//!
//! `{name}` of `format!`, `$name` and `${name}` of a shell, `$1` and `?` of SQL, `%s` of `printf`,
//! `:name` of a route. In a key pattern they are text, so each key would be one lock for all
//! values.

use super::path;

/// The placeholder at the start of `from`, and the name of its value if it says one; `before` is
/// the text in front of it.
pub(super) fn read<'a>(from: &'a str, before: &str) -> Option<(&'a str, Option<&'a str>)> {
    let rest = from.get(1..)?;
    match from.as_bytes().first()? {
        b'{' => brace(from, rest),
        b'$' | b'#' if rest.starts_with('{') => {
            let (whole, name) = brace(rest, &rest[1..])?;
            Some((&from[..=whole.len()], name))
        }
        b'$' => {
            let word = word(rest);
            let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
            let name = path::read(word).map(|_| word);
            (is_number || name.is_some()).then_some((&from[..=word.len()], name))
        }
        b'%' => printf(from, rest),
        // After a `/` or at the start: elsewhere `:` separates.
        b':' if before.is_empty() || before.ends_with('/') => {
            let word = word(rest);
            path::read(word).map(|_| (&from[..=word.len()], Some(word)))
        }
        b'?' => {
            let is_separate =
                |next: Option<char>| next.is_none_or(|next| matches!(next, ':' | '/' | '-' | '_'));
            let (last, next) = (before.chars().last(), rest.chars().next());
            (is_separate(last) && is_separate(next)).then_some((&from[..1], None))
        }
        _ => None,
    }
}

/// `{name}`, `{name:?}`, `{}`, `{0}`.
fn brace<'a>(from: &'a str, inner: &'a str) -> Option<(&'a str, Option<&'a str>)> {
    let end = inner.find(['}', '{', '<'])?;
    if !inner[end..].starts_with('}') {
        return None;
    }
    let name = inner[..end].split(':').next().unwrap_or_default().trim();
    let is_index = name.bytes().all(|byte| byte.is_ascii_digit());
    let fits = is_index || path::read(name).is_some();
    fits.then(|| (&from[..end + 2], (!is_index).then_some(name)))
}

/// `%s`, `%d`, `%ld`, `%(name)s`.
fn printf<'a>(from: &'a str, rest: &'a str) -> Option<(&'a str, Option<&'a str>)> {
    if let Some(named) = rest.strip_prefix('(') {
        let (name, after) = named.split_once(')')?;
        let fits = after.starts_with(['s', 'd', 'i', 'u']) && path::read(name).is_some();
        return fits.then(|| (&from[..name.len() + 4], Some(name)));
    }
    let word = word(rest);
    let is_conversion = matches!(
        word,
        "s" | "d" | "i" | "u" | "x" | "v" | "ld" | "lu" | "lld" | "llu"
    );
    is_conversion.then(|| (&from[..=word.len()], None))
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}
