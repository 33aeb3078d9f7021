//! Which lock did a backend ask for, by the comment in front of its query?
//!
//! `/*advisory:booking:<tenant_id>*/;SELECT pg_catalog.pg_advisory_lock(42)`: the comment names the lock, and the number behind it
//! says which one that is.

use crate::Key;
use crate::query_comment::{ELLIPSIS, LONGEST, START, printable};
use advisory_pattern::Derivation;

/// What separates the texts of several keys.
const SEPARATOR: &str = ", ";

const LOCK_FUNCTIONS: [&str; 8] = [
    "pg_advisory_lock",
    "pg_advisory_lock_shared",
    "pg_advisory_xact_lock",
    "pg_advisory_xact_lock_shared",
    "pg_try_advisory_lock",
    "pg_try_advisory_lock_shared",
    "pg_try_advisory_xact_lock",
    "pg_try_advisory_xact_lock_shared",
];

/// The comment by which a locked call names its lock in front of its query.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Comment {
    /// The key pattern, or the rendered key where the program [shows](super::show) keys; of several keys joined by `, `. Characters
    /// that are not printable ASCII are `?`.
    pub text: String,
    /// Whether the text goes on: the program shortens it, and the server cuts queries at `track_activity_query_size`.
    pub is_cut: bool,
    /// The locks that the query asks for, as far as the server shows the query.
    keys: Vec<Key>,
    /// Whether the query may ask for further locks, behind what the server shows of it.
    is_query_cut: bool,
}

/// The text of one key in a comment.
pub(super) struct KeyText<'c> {
    pub(super) text: &'c str,
    pub(super) is_cut: bool,
    /// Of a rendered key: its number among those of the query, and how the text becomes that.
    pub(super) derived: Option<(Key, Derivation)>,
}

impl Comment {
    /// Reads a query as the server shows it; `is_query_cut` tells whether it is as long as the server keeps any.
    pub(super) fn read(query: &str, is_query_cut: bool) -> Option<Self> {
        let rest = query.strip_prefix(START)?;
        let (text, keys, is_closed) = match rest.split_once("*/") {
            // A space keeps a final `/` from ending the comment early.
            Some((text, statements)) => {
                let ends_in_slash = text.strip_suffix(' ').filter(|text| text.ends_with('/'));
                (ends_in_slash.unwrap_or(text), keys_of(statements), true)
            }
            None => (rest.trim_end_matches(['*', ' ', ',']), Vec::new(), false),
        };
        // Another program's comment can have any length, and no lock behind it.
        let has_lock = !keys.is_empty() || is_query_cut;
        if text.is_empty() || text.len() > LONGEST || !has_lock {
            return None;
        }
        let shortened = (text.len() >= LONGEST).then(|| text.strip_suffix(ELLIPSIS));
        let shortened = shortened.flatten();
        Some(Self {
            text: shortened.unwrap_or(text).to_owned(),
            is_cut: shortened.is_some() || !is_closed,
            keys,
            is_query_cut,
        })
    }

    /// Whether the query asks for this lock.
    pub(super) fn asks_for(&self, key: Key) -> bool {
        self.keys.contains(&key)
    }

    /// Whether it does, or may: behind what the server shows of the query.
    pub(super) fn may_ask_for(&self, key: Key) -> bool {
        self.is_query_cut || self.asks_for(key)
    }

    /// The texts of its keys: each once, in no order that says which number is whose.
    pub(super) fn key_texts(&self) -> Vec<KeyText<'_>> {
        let mut texts: Vec<&str> = if self.keys.len() == 1 && !self.is_query_cut {
            vec![&self.text]
        } else {
            self.text.split(SEPARATOR).collect()
        };
        let last = texts.last().copied().filter(|_| self.is_cut);
        texts.sort_unstable();
        texts.dedup();
        let texts = texts.into_iter().map(|text| KeyText {
            text,
            is_cut: last == Some(text),
            derived: self.derived(text),
        });
        texts.collect()
    }

    fn derived(&self, text: &str) -> Option<(Key, Derivation)> {
        let derived = Derivation::ALL.map(|derivation| (derivation.key(text).into(), derivation));
        derived.into_iter().find(|(key, _)| self.asks_for(*key))
    }
}

impl KeyText<'_> {
    /// Whether this is how a comment shows the pattern.
    pub(super) fn shows(&self, pattern: &str) -> bool {
        let pattern = printable(pattern);
        self.text == pattern || self.is_cut && pattern.starts_with(self.text)
    }

    /// The text, with a mark where it is cut.
    pub(super) fn marked(&self) -> String {
        let mark = if self.is_cut { "…" } else { "" };
        format!("{}{mark}", self.text)
    }
}

/// Finds the keys that statements give to `pg_advisory_lock` and its relatives, as the server's log and `pg_stat_activity` show them. A
/// call with a parameter, such as `$1`, and one that is cut off give none.
#[must_use]
pub fn keys_of(statements: &str) -> Vec<Key> {
    let mut keys: Vec<Key> = statements
        .match_indices('(')
        .filter(|(at, _)| {
            let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            let name = statements[..*at].rsplit(|letter| !is_name(letter)).next();
            name.is_some_and(|name| LOCK_FUNCTIONS.contains(&name))
        })
        .filter_map(|(at, _)| key_of(arguments(&statements[at + 1..])?))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// What is before the bracket that closes a call.
fn arguments(text: &str) -> Option<&str> {
    let mut depth = 1;
    let end = text.find(|letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth == 0
    })?;
    Some(&text[..end])
}

/// The one number in the arguments, or the two: `7`, `7,-3`, `CAST(7 AS pg_catalog.int4),-3`.
fn key_of(arguments: &str) -> Option<Key> {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || "_-$.".contains(letter);
    let words = arguments.split(|letter| !is_word(letter));
    let numbers: Vec<i64> = words.filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [number] => Some(number.into()),
        [first, second] => Some(Key::IntInt(first.try_into().ok()?, second.try_into().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Comment, keys_of};
    use crate::Key;
    use crate::query_comment::printable;

    const NUMBERS: [i64; 5] = [i64::MIN, -1, 0, 42, i64::MAX];

    fn read(query: &str) -> Comment {
        Comment::read(query, false).unwrap()
    }

    /// The texts of the keys.
    fn texts(comment: &Comment) -> Vec<String> {
        let texts = comment.key_texts();
        texts.iter().map(super::KeyText::marked).collect()
    }

    #[test]
    fn every_form_of_message_is_read() {
        for number in NUMBERS {
            for query in [
                format!(
                    "/*advisory:a:<b>*/;SET TRANSACTION ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE;\
                     SELECT pg_catalog.pg_advisory_xact_lock({number});BEGIN"
                ),
                format!("/*advisory:a:<b>*/;SELECT pg_catalog.pg_advisory_lock({number})"),
                format!("/*advisory:a:<b>*/SELECT pg_catalog.pg_advisory_lock_shared({number})"),
                format!(
                    "/*advisory:a:<b>*/;SAVEPOINT advisory_savepoint_1;SET TRANSACTION ISOLATION LEVEL READ COMMITTED;\
                     SELECT pg_catalog.pg_advisory_xact_lock_shared({number})"
                ),
                format!("/*advisory:a:<b>*/SELECT pg_catalog.pg_try_advisory_xact_lock({number})"),
                format!(
                    "/*advisory:a:<b>*/;SELECT pg_catalog.set_config('lock_timeout','5000',true),\
                     pg_catalog.pg_advisory_xact_lock(CAST({number} AS pg_catalog.int8)),\
                     pg_catalog.set_config('lock_timeout',pg_catalog.current_setting('x'),true);BEGIN"
                ),
            ] {
                let comment = read(&query);
                assert_eq!(comment.text, "a:<b>", "{query}");
                assert_eq!(comment.keys, [Key::BigInt(number)], "{query}");
            }
        }
    }

    #[test]
    fn pairs_and_several_keys_are_read_and_other_numbers_are_not() {
        let pair = |first, second| Key::IntInt(first, second);
        for (statements, keys) in [
            ("pg_advisory_lock(7,3)", vec![pair(7, 3)]),
            (
                "pg_advisory_lock(CAST(-2147483648 AS pg_catalog.int4),3)",
                vec![pair(i32::MIN, 3)],
            ),
            ("pg_advisory_lock( 7 , CAST(3 AS int4) )", vec![pair(7, 3)]),
            (
                "pg_advisory_xact_lock(2),pg_advisory_xact_lock(1);SELECT pg_advisory_lock(2),pg_advisory_lock(1)",
                vec![1.into(), 2.into()],
            ),
            ("pg_advisory_lock(1),pg_advisory_lo", vec![1.into()]),
            ("pg_advisory_lock(1),pg_advisory_lock(2", vec![1.into()]),
            (
                "pg_advisory_unlock(1),my_pg_advisory_lock(2),f(3),4",
                vec![],
            ),
            ("pg_advisory_lock($1),pg_advisory_lock(1.5)", vec![]),
            ("pg_advisory_lock(1,2,3),pg_advisory_lock()", vec![]),
            ("pg_advisory_lock(3000000000,1)", vec![]),
            ("pg_advisory_lock(9223372036854775808)", vec![]),
        ] {
            assert_eq!(keys_of(statements), keys, "{statements}");
        }
    }

    #[test]
    fn longer_text_than_a_locked_call_writes_is_no_comment_of_one() {
        for (letters, is_comment) in [(200, true), (201, false)] {
            let text = "x".repeat(letters);
            let query = format!("/*advisory:{text}*/SELECT pg_advisory_lock(1)");
            assert_eq!(Comment::read(&query, false).is_some(), is_comment);
        }
    }

    #[test]
    fn what_is_no_locked_calls_query_has_no_comment() {
        for query in [
            "",
            "SELECT pg_advisory_lock(1)",
            "SELECT 1 /*advisory:a*/",
            " /*advisory:a*/SELECT pg_advisory_lock(1)",
            "/*advisory:a*/UPDATE t SET i = 1",
            "/*advisory:a*/SELECT pg_advisory_unlock(1)",
            "/*advisory:pg_advisory_lock(1)*/SELECT 1",
            "/* advisory:a*/SELECT pg_advisory_lock(1)",
            "<insufficient privilege>",
        ] {
            assert_eq!(Comment::read(query, false), None, "{query}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_back(text in "[a/* ,.é\u{0}'\"<>?-]{1,12}", number: i64) {
            let mut written = printable(&text);
            if written.ends_with('/') {
                written.push(' ');
            }
            proptest::prop_assert!(!written.contains("*/") && !written.contains("/*"));
            let comment = read(&format!("/*advisory:{written}*/;SELECT pg_advisory_lock({number})"));
            proptest::prop_assert_eq!(&comment.keys, &[Key::BigInt(number)]);
            let texts = comment.key_texts();
            proptest::prop_assert_eq!(texts.len(), 1);
            proptest::prop_assert!(texts[0].shows(&text) || text.ends_with("/ "));
        }

        /// Wherever the server cuts it, a query gives nothing wrong.
        #[test]
        fn a_query_that_is_cut_tells_what_is_left(at in 0_usize..84) {
            let query = "/*advisory:a:<b>, c:<d>/ */;SELECT pg_advisory_lock(123456789),pg_advisory_lock(42)";
            proptest::prop_assert_eq!(query.len(), 83);
            let query = &query[..at];
            let Some(comment) = Comment::read(query, true) else {
                proptest::prop_assert!(at <= 11);
                return Ok(());
            };
            let keys = [Key::BigInt(42), Key::BigInt(123_456_789)];
            proptest::prop_assert!(comment.keys.iter().all(|key| keys.contains(key)), "{:?}", comment);
            proptest::prop_assert!(keys.iter().all(|key| comment.may_ask_for(*key)));
            for text in comment.key_texts() {
                let is_known = text.shows("a:<b>") || text.shows("c:<d>/");
                proptest::prop_assert!(is_known, "{:?}", comment);
            }
        }
    }

    #[test]
    fn texts_of_several_keys_are_told_apart_and_that_of_one_is_whole() {
        let two =
            read("/*advisory:b:<x>, a:<y>, b:<x>*/SELECT pg_advisory_lock(1),pg_advisory_lock(2)");
        assert_eq!(texts(&two), ["a:<y>", "b:<x>"]);
        let one = read("/*advisory:a, b:<x>*/SELECT pg_advisory_lock(1)");
        assert_eq!(texts(&one), ["a, b:<x>"]);
    }

    #[test]
    fn text_that_the_program_has_shortened_shows_any_pattern_that_begins_so() {
        let long = "a:<b>".repeat(60);
        let query = format!("/*advisory:{}...*/SELECT pg_advisory_lock(1)", &long[..197]);
        let comment = read(&query);
        assert!(comment.is_cut);
        assert_eq!(texts(&comment), [format!("{}…", &long[..197])]);
        assert!(comment.key_texts()[0].shows(&long));
        let short = read("/*advisory:wait...*/SELECT pg_advisory_lock(1)");
        assert_eq!((&*short.text, short.is_cut), ("wait...", false));
    }
}
