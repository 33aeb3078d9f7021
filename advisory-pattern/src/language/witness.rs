//! A key that two patterns can both render, and the values that do so.
//!
//! The shortest key is rarely the clearest one. So the search tries words first, such as `"t1"` and
//! `"x"` for the texts of one side, then values that begin and end with a letter or digit, and only
//! then any key.

use std::fmt;

use crate::language::Language;
use crate::language::overlap::overlap;
use crate::language::shortest_key::{Goal, shortest_key};
use crate::pattern::atom::Atom;
use crate::pattern::char_set::CharSet;

/// A proof that two patterns overlap: one key, and the values with which each side renders it.
///
/// Values are in the form that the key has, with the placeholder's name, in the pattern's order;
/// [`unescape`](crate::escape::unescape) gives the original text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    /// The key that both render.
    pub key: String,
    /// The left side's placeholders and their values.
    pub left: Vec<(String, String)>,
    /// The right side's placeholders and their values.
    pub right: Vec<(String, String)>,
}

/// ``both can render "t1:x": here tenant = "t1", slot = "x"; there account = "t1", month = "x"``
impl fmt::Display for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "both can render {:?}", self.key)?;
        for (joint, side, values) in [(":", "here", &self.left), (";", "there", &self.right)] {
            if !values.is_empty() {
                write!(f, "{joint} {side} {}", values_text(values))?;
            }
        }
        Ok(())
    }
}

/// `tenant = "t1", slot = "x"`
pub(crate) fn values_text(values: &[(String, String)]) -> String {
    let texts = values
        .iter()
        .map(|(name, value)| format!("{name} = {value:?}"));
    texts.collect::<Vec<_>>().join(", ")
}

/// Finds a key that both patterns can render; there is one exactly when they [`overlap`].
///
/// # Examples
///
/// ```
/// use advisory_pattern::{Shape, parse, witness};
///
/// let language = |text| parse(text).map(|pattern| pattern.language(|_| Shape::Int));
/// let (room, any) = (language("room:<id>")?, language("<kind: text>:7")?);
/// assert_eq!(witness(&room, &any).map(|found| found.key), Some("room:7".into()));
/// assert_eq!(witness(&room, &language("desk:<id>")?), None);
/// # Ok::<(), Vec<advisory_pattern::PatternError>>(())
/// ```
#[must_use]
pub fn witness(left: &Language, right: &Language) -> Option<Witness> {
    if !overlap(left, right) {
        return None;
    }
    let tries = [
        (spelled(left), readable(right)),
        (readable(left), spelled(right)),
        (readable(left), readable(right)),
    ];
    let found = tries.iter().find_map(|(left, right)| find(left, right));
    found.or_else(|| find(left, right))
}

fn find(left: &Language, right: &Language) -> Option<Witness> {
    let (key, [left, right]) = shortest_key(left, right, Goal::Shared)?;
    Some(Witness { key, left, right })
}

/// The language with a fixed word for each text.
fn spelled(language: &Language) -> Language {
    const WORDS: [&str; 8] = ["t1", "x", "y", "z", "u", "v", "w", "s"];
    language.narrowed(|free, _| {
        let word = WORDS[free % WORDS.len()].chars();
        word.map(|c| Atom::one(CharSet::only(c))).collect()
    })
}

/// The language without texts that are empty, or begin or end with anything but a letter or digit.
pub(crate) fn readable(language: &Language) -> Language {
    let edge = Atom::one(CharSet::of("abcdefghijklmnopqrstuvwxyz0123456789"));
    language.narrowed(|_, chars| vec![edge, Atom::branch(2), Atom::star(chars), edge])
}
