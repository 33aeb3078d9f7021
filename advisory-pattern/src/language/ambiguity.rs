//! Search for two lists of values that render one key under one pattern.
//!
//! If so, two callers with different arguments share a lock. The search reads a key twice in
//! parallel, and looks for a character that the two readings give to different placeholders.

use std::fmt;

use crate::language::Language;
use crate::language::shortest_key::{Goal, shortest_key};
use crate::language::witness::{readable, values_text};
use crate::pattern::{Part, Pattern};

/// A proof that a pattern is ambiguous: one key, two lists of values that render it, and what to
/// write instead.
///
/// Values are in the form that the key has, with the placeholder's name, in the pattern's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ambiguity {
    /// The key that both render.
    pub key: String,
    /// The placeholders and their values, split one way.
    pub first: Vec<(String, String)>,
    /// The placeholders and their values, split another way.
    pub second: Vec<(String, String)>,
    /// What to write: ``"`-` cannot separate `<a>` from `<b>`: use `:`"``.
    pub help: String,
}

/// ``"x-y-z" is both a = "x", b = "y-z" and a = "x-y", b = "z"``
impl fmt::Display for Ambiguity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, second) = (values_text(&self.first), values_text(&self.second));
        write!(f, "{:?} is both {first} and {second}", self.key)
    }
}

/// Finds a key that splits into the placeholders' values in two ways; `language` is the pattern's
/// own.
///
/// Exact for the language, which is a superset where a shape is one and counts a placeholder
/// written twice as two. An escaped text has no `:`, so `<a>:<b>` is never ambiguous. The test for
/// an ambiguous automaton:
/// <https://en.wikipedia.org/wiki/Unambiguous_finite_automaton>.
///
/// # Examples
///
/// ```
/// use advisory_pattern::{Shape, ambiguity, parse};
///
/// let is_ambiguous = |text, shape| {
///     parse(text).map(|pattern| ambiguity(&pattern, &pattern.language(|_| shape)).is_some())
/// };
/// assert!(is_ambiguous("<a>-<b>", Shape::Text)?);
/// assert!(!is_ambiguous("<a>:<b>", Shape::Text)?);
/// assert!(!is_ambiguous("<a>-<b>", Shape::Uint)?);
/// # Ok::<(), Vec<advisory_pattern::PatternError>>(())
/// ```
#[must_use]
pub fn ambiguity(pattern: &Pattern, language: &Language) -> Option<Ambiguity> {
    let narrow = readable(language);
    let found = shortest_key(&narrow, &narrow, Goal::Diverged);
    let (key, mut readings) = found.or_else(|| shortest_key(language, language, Goal::Diverged))?;
    // The search finds the readings in any order; the one with the shorter value is easier to read
    // first.
    readings.sort();
    let [first, second] = readings;
    let differs = |(a, b): (&(String, String), &(String, String))| a.1 != b.1;
    let nth = first.iter().zip(&second).position(differs).unwrap_or(0);
    Some(Ambiguity {
        key,
        help: help(pattern, nth),
        first,
        second,
    })
}

fn help(pattern: &Pattern, nth: usize) -> String {
    let places = pattern.parts.iter().enumerate();
    let mut places = places.filter_map(|(i, part)| match part {
        Part::Placeholder(placeholder) => Some((i, placeholder)),
        Part::Text(_) => None,
    });
    let (Some((from, left)), Some((to, right))) = (places.nth(nth), places.next()) else {
        return String::from("separate placeholders with `:`");
    };
    let between = pattern.parts[from + 1..to].iter().map(|part| match part {
        Part::Text(text) => text.as_str(),
        Part::Placeholder(_) => "",
    });
    let between: String = between.collect();
    if between.is_empty() {
        return format!("put `:` between `<{left}>` and `<{right}>`");
    }
    if !between.contains(':') {
        return format!("`{between}` cannot separate `<{left}>` from `<{right}>`: use `:`");
    }
    // Only raw text can contain `:`, and without it the left value would end at the first one in
    // both readings.
    format!(
        "`<{left}>` can hold `:` itself: leave out `raw`, or give the other placeholder a shape"
    )
}
