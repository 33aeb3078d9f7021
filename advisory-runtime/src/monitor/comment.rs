//! The comment in front of a backend's query, which names the lock that it asks for.
//!
//! `/*advisory:booking:<tenant_id>*/;SELECT pg_catalog.pg_advisory_lock(42)`: the comment names the
//! lock, and the number after it says which one that is.

use crate::Key;
use crate::query_comment::{ELLIPSIS, LONGEST, START, TRACE_END, TRACE_START, printable};
use advisory_pattern::{Derivation, split_pair_text};
use std::borrow::Cow;

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

/// The longest arguments that are read; two numbers with casts have 80 characters.
const LONGEST_ARGUMENTS: usize = 256;

/// The comment by which a locked call names its lock in front of its query.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Comment {
    /// The key pattern, or the rendered key if the program [shows](super::show) keys; several keys
    /// are joined by `, `. Characters other than printable ASCII are `?`.
    pub text: String,
    /// True if the text is incomplete: the program shortens it, and the server cuts queries at
    /// `track_activity_query_size`.
    pub is_cut: bool,
    /// The trace of the caller, in the form of the header `traceparent`, if the program
    /// [shows](super::show_trace) it.
    pub traceparent: Option<String>,
    /// The locks that the query asks for, as far as the server shows the query.
    keys: Vec<Key>,
    /// True if the query may ask for further locks, after the part that the server shows.
    is_query_cut: bool,
}

pub(super) struct KeyText<'c> {
    pub(super) text: &'c str,
    pub(super) is_cut: bool,
    /// The number of the query that a rendered key becomes, and its derivation.
    pub(super) derived: Option<(Key, Derivation)>,
}

impl Comment {
    /// Reads a query as the server shows it. `is_query_cut` is true if the query has the greatest
    /// length that the server keeps.
    pub(super) fn read(query: &str, is_query_cut: bool) -> Option<Self> {
        let rest = query.strip_prefix(START)?;
        let (text, statements, is_closed) = match rest.split_once("*/") {
            // A space keeps a final `/` from ending the comment early.
            Some((text, statements)) => {
                let ends_in_slash = text.strip_suffix(' ').filter(|text| text.ends_with('/'));
                (ends_in_slash.unwrap_or(text), statements, true)
            }
            None => (rest.trim_end_matches(['*', ' ', ',']), "", false),
        };
        let keys = keys_of(statements);
        // Another program's comment can have any length, and no lock after it.
        let has_lock = !keys.is_empty() || is_query_cut;
        if text.is_empty() || text.len() > LONGEST || !has_lock {
            return None;
        }
        let shortened = (text.len() >= LONGEST).then(|| text.strip_suffix(ELLIPSIS));
        let shortened = shortened.flatten();
        Some(Self {
            text: shortened.unwrap_or(text).to_owned(),
            is_cut: shortened.is_some() || !is_closed,
            traceparent: traceparent_of(statements),
            keys,
            is_query_cut,
        })
    }

    pub(super) fn asks_for(&self, key: Key) -> bool {
        self.keys.contains(&key)
    }

    /// Returns `true` if the query asks for this lock, or may do so after the part that the server
    /// shows.
    pub(super) fn may_ask_for(&self, key: Key) -> bool {
        self.is_query_cut || self.asks_for(key)
    }

    /// Returns the texts of its keys, each once, in alphabetical order.
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
        let pair = split_pair_text(text);
        let pairs = Derivation::ALL.into_iter().filter_map(|derivation| {
            let (first, second) = pair.filter(|_| derivation.bits() == 32)?;
            Some((Key::IntInt(first, derivation.half(second)), derivation))
        });
        let derived = Derivation::ALL.map(|derivation| (derivation.key(text).into(), derivation));
        let mut derived = pairs.chain(derived);
        derived.find(|(key, _)| self.asks_for(*key))
    }
}

fn traceparent_of(statements: &str) -> Option<String> {
    let rest = statements.strip_prefix(';')?.strip_prefix(TRACE_START)?;
    let (trace, _) = rest.split_once(TRACE_END)?;
    let digits = trace.split('-').map(|digits| {
        let are_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        are_hex.then_some(digits.len())
    });
    let is_one = digits.eq([2, 32, 16, 2].map(Some));
    is_one.then(|| trace.to_owned())
}

impl KeyText<'_> {
    pub(super) fn shows(&self, pattern: &str) -> bool {
        let pattern = printable(pattern);
        self.text == pattern || self.is_cut && pattern.starts_with(self.text)
    }

    pub(super) fn marked(&self) -> String {
        let mark = if self.is_cut { "…" } else { "" };
        format!("{}{mark}", self.text)
    }
}

/// Finds the keys that statements give to `pg_advisory_lock` and its variants, in the text that the
/// server's log and `pg_stat_activity` show. A call with a parameter, such as `$1`, one that is cut
/// off, or one with more than 256 characters of arguments yields none.
///
/// # Examples
///
/// ```
/// use advisory_runtime::{Key, monitor};
///
/// let logged = "SELECT pg_catalog.pg_advisory_xact_lock(42), pg_advisory_lock($1)";
/// assert_eq!(monitor::keys_of(logged), [Key::BigInt(42)]);
/// ```
#[must_use]
pub fn keys_of(statements: &str) -> Vec<Key> {
    let mut keys: Vec<Key> = calls(statements).map(|(_, key)| key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

pub(super) fn calls(statements: &str) -> impl Iterator<Item = (&str, Key)> {
    statements.match_indices('(').filter_map(|(at, _)| {
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let name = statements[..at].rsplit(|letter| !is_name(letter)).next()?;
        if !LOCK_FUNCTIONS.contains(&name) {
            return None;
        }
        Some((name, key_of(arguments(&statements[at + 1..])?)?))
    })
}

/// The words of the casts around a number.
const AROUND_NUMBERS: &[&str] = &[
    "cast", "as", "else", "end", "int", "int4", "int8", "integer", "bigint",
];

/// Returns the text before the bracket that closes a call.
fn arguments(text: &str) -> Option<&str> {
    let mut depth = 1;
    // A log can have any number of calls that are never closed.
    let mut letters = text.char_indices().take(LONGEST_ARGUMENTS);
    let (end, _) = letters.find(|(_, letter)| {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth == 0
    })?;
    Some(&text[..end])
}

/// Reads the key in the arguments, one number or two: `7`, `7,-3`, `CAST(7 AS pg_catalog.int4),-3`.
/// In a session-level lock, the first number follows a comparison of process ids,
/// `CAST(CASE WHEN … 31247 THEN 'advisory:…' ELSE '7' END AS int),-3`. Returns `None` for an
/// expression that has to be computed, such as `hashtext('42')` or `40 + 2`.
fn key_of(arguments: &str) -> Option<Key> {
    let arguments: Cow<'_, str> = match arguments.split_once(" THEN ") {
        Some((_, compared)) => {
            let (before, marker) = compared.split_once("'advisory:")?;
            let (_, after) = marker.split_once('\'')?;
            format!("{before}{after}").into()
        }
        None => arguments.into(),
    };
    let is_between = |letter: char| letter.is_whitespace() || "(),:'".contains(letter);
    let mut numbers: Vec<i64> = Vec::new();
    for word in arguments.split(is_between).filter(|word| !word.is_empty()) {
        let lowercase = word.to_ascii_lowercase();
        let name = lowercase.strip_prefix("pg_catalog.").unwrap_or(&lowercase);
        match word.parse() {
            Ok(number) => numbers.push(number),
            Err(_) if AROUND_NUMBERS.contains(&name) => {}
            Err(_) => return None,
        }
    }
    match numbers[..] {
        [number] => Some(number.into()),
        [first, second] => Some(Key::IntInt(first.try_into().ok()?, second.try_into().ok()?)),
        _ => None,
    }
}
