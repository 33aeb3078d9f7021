//! The comment in front of each lock's message, which names the lock wherever PostgreSQL shows a query.
//!
//! `/*advisory:booking:<tenant_id>:<day>*/`: seen in `pg_stat_activity` while the call waits, and in the server's log and deadlock
//! reports.

use crate::key::Key;
use crate::key::rendered;
use std::borrow::Cow;
use std::sync::atomic::{AtomicU8, Ordering};

/// What a lock shows of itself in the comment in front of its message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    /// Nothing: there is no comment.
    Nothing,
    /// The key pattern, which is the same for all its keys.
    #[default]
    Pattern,
    /// The rendered key. It can be personal data, such as an address, and whoever sees the queries of a server or its log sees it.
    Key,
}

static SHOWN: AtomicU8 = AtomicU8::new(1);

/// Says what the locks of this process show from now on; the default is the key pattern.
pub fn show(shown: Shown) {
    let number = match shown {
        Shown::Nothing => 0,
        Shown::Pattern => 1,
        Shown::Key => 2,
    };
    rendered::keep(shown == Shown::Key);
    SHOWN.store(number, Ordering::Relaxed);
}

/// What they show now.
#[must_use]
pub fn shown() -> Shown {
    match SHOWN.load(Ordering::Relaxed) {
        0 => Shown::Nothing,
        1 => Shown::Pattern,
        _ => Shown::Key,
    }
}

/// What a request for these keys shows.
pub(crate) fn name(pattern: &'static str, keys: &[Key]) -> Option<Cow<'static, str>> {
    let pattern: Option<Cow<'static, str>> = (!pattern.is_empty()).then_some(pattern.into());
    match shown() {
        Shown::Nothing => None,
        Shown::Pattern => pattern,
        Shown::Key => rendered::take(keys).map(Cow::Owned).or(pattern),
    }
}

/// What the comment begins with.
pub(crate) const START: &str = "/*advisory:";

/// The server cuts what it shows of a query, by default at 1,024 bytes; the keys behind the comment are to be seen too.
pub(crate) const LONGEST: usize = 200;

/// The end of a text that is longer.
pub(crate) const ELLIPSIS: &str = "...";

/// Appends the comment.
pub(crate) fn push(sql: &mut String, name: &str) {
    sql.push_str(START);
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'/';
    if name.len() <= LONGEST && name.bytes().all(is_plain) {
        sql.push_str(name);
    } else {
        let text = printable(name);
        match text.get(..LONGEST - ELLIPSIS.len()) {
            Some(start) if text.len() > LONGEST => {
                sql.push_str(start);
                sql.push_str(ELLIPSIS);
            }
            _ => sql.push_str(&text),
        }
        if text.ends_with('/') {
            sql.push(' ');
        }
    }
    sql.push_str("*/");
}

/// A text as the comment shows it.
///
/// Only printable ASCII goes into it, since a server of another encoding refuses a message with a letter that it does not have; and
/// no `*` beside a `/`, so that nothing in the text ends the comment or begins another. Everything else is a `?`.
pub(crate) fn printable(text: &str) -> String {
    let mut letters = text.chars().peekable();
    let (mut printable, mut before) = (String::with_capacity(text.len()), ':');
    while let Some(letter) = letters.next() {
        let touches_slash = before == '/' || letters.peek() == Some(&'/');
        before = match letter {
            '*' if touches_slash => '?',
            ' '..='~' => letter,
            _ => '?',
        };
        printable.push(before);
    }
    printable
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, push};

    fn comment(name: &str) -> String {
        let mut sql = String::new();
        push(&mut sql, name);
        sql
    }

    #[test]
    fn a_pattern_is_shown_as_it_is() {
        assert_eq!(
            comment("<tenant_id>:<date>, room:<ids*>"),
            "/*advisory:<tenant_id>:<date>, room:<ids*>*/"
        );
    }

    #[test]
    fn nothing_ends_the_comment_or_begins_another() {
        for name in [
            "*/",
            "/*",
            "/",
            "*",
            "a*/;DROP TABLE b;--",
            "//**//",
            "/*/",
            "**/",
            "*/*",
        ] {
            let comment = comment(name);
            let inside = comment
                .strip_prefix("/*advisory:")
                .and_then(|rest| rest.strip_suffix("*/"))
                .unwrap();
            assert!(
                !inside.contains("*/") && !inside.contains("/*"),
                "{comment}"
            );
            assert!(!inside.ends_with('/'), "{comment}");
        }
    }

    #[test]
    fn what_is_no_printable_ascii_is_a_question_mark() {
        assert_eq!(comment("é\0\n😀\u{7f}"), "/*advisory:?????*/");
        assert_eq!(comment("it's \"q\" \\"), "/*advisory:it's \"q\" \\*/");
    }

    #[test]
    fn a_long_text_is_cut() {
        let exact = "x".repeat(LONGEST);
        assert_eq!(comment(&exact), format!("/*advisory:{exact}*/"));
        let cut = comment(&"x".repeat(LONGEST + 1));
        assert_eq!(cut, format!("/*advisory:{}...*/", "x".repeat(LONGEST - 3)));
    }
}
