//! The facts about a lock's key that are known before the program runs.

use std::borrow::Cow;

use crate::derivation::Derivation;
use crate::pattern::shape::Shape;
use crate::pattern::{Part, Pattern, Placeholder};

/// A lock's key, as far as it is known before the program runs.
///
/// # Examples
///
/// ```
/// use advisory_pattern::{Derivation, LockedKey, parse};
///
/// let pair = LockedKey::IntPattern(7, parse("nightly")?);
/// assert_eq!(pair.first_half(), Some(7));
/// let half = Derivation::Hashtext.half("nightly");
/// assert_eq!(pair.pair(Derivation::Hashtext), Some((7, half)));
/// assert_eq!(LockedKey::BigInt(42).text().to_string(), "42");
/// # Ok::<(), Vec<advisory_pattern::PatternError>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockedKey {
    /// A pattern in which every placeholder has its shape: see [`Pattern::shaped`].
    Pattern(Pattern),
    /// A fixed number of the `bigint` key space.
    BigInt(i64),
    /// Two numbers of the `(int, int)` key space, as far as they are fixed.
    IntInt(Option<i32>, Option<i32>),
    /// A fixed number, and a number that is derived from a pattern in which every placeholder has
    /// its shape.
    IntPattern(i32, Pattern),
}

impl LockedKey {
    /// Returns the pattern that the number, or the second half of a pair, is derived from.
    #[must_use]
    pub fn derived(&self) -> Option<&Pattern> {
        match self {
            Self::Pattern(pattern) | Self::IntPattern(_, pattern) => Some(pattern),
            Self::BigInt(_) | Self::IntInt(..) => None,
        }
    }

    /// Returns the first half of a pair with a derived second half.
    #[must_use]
    pub fn first_half(&self) -> Option<i32> {
        match self {
            Self::IntPattern(first, _) => Some(*first),
            Self::Pattern(_) | Self::BigInt(_) | Self::IntInt(..) => None,
        }
    }

    /// Returns the two numbers of a pair, if both are known before the program runs.
    #[must_use]
    pub fn pair(&self, derivation: Derivation) -> Option<(i32, i32)> {
        match self {
            Self::IntInt(first, second) => Some(((*first)?, (*second)?)),
            Self::IntPattern(first, pattern) => {
                Some((*first, derivation.half(&pattern.constant()?)))
            }
            Self::Pattern(_) | Self::BigInt(_) => None,
        }
    }

    /// Returns the key with one name for all placeholders.
    #[must_use]
    pub fn without_names(&self) -> Self {
        match self {
            Self::Pattern(pattern) => Self::Pattern(pattern.without_names()),
            Self::IntPattern(first, pattern) => Self::IntPattern(*first, pattern.without_names()),
            number => number.clone(),
        }
    }

    /// Returns the key as text, as a lease has it: a number as its digits, `42`, `(7, 3)`; a
    /// derived half as its pattern, in quotes.
    #[must_use]
    pub fn text(&self) -> Cow<'_, Pattern> {
        let (first, second) = match self {
            Self::Pattern(pattern) => return Cow::Borrowed(pattern),
            Self::BigInt(number) => {
                let parts = vec![Part::Text(number.to_string())];
                return Cow::Owned(Pattern { parts });
            }
            Self::IntPattern(first, pattern) => return Cow::Owned(pair(*first, pattern)),
            Self::IntInt(first, second) => (first, second),
        };
        let (mut parts, mut text) = (Vec::new(), "(".to_owned());
        for (half, name, end) in [(first, "first", ", "), (second, "second", ")")] {
            if let Some(number) = half {
                text.push_str(&number.to_string());
            } else {
                parts.push(Part::Text(std::mem::take(&mut text)));
                parts.push(Part::Placeholder(Placeholder {
                    source: format!("{name}: int"),
                    path: vec![name.to_owned()],
                    shape: Some(Shape::Int),
                    filters: Vec::new(),
                    slice: false,
                }));
            }
            text.push_str(end);
        }
        parts.push(Part::Text(text));
        Cow::Owned(Pattern { parts })
    }
}

fn pair(first: i32, second: &Pattern) -> Pattern {
    let mut parts = Vec::new();
    let mut text = pair_text(first, "");
    let end = text.split_off(text.len() - 2);
    for part in &second.parts {
        match part {
            Part::Text(more) => text.push_str(more),
            Part::Placeholder(_) => {
                let before = std::mem::take(&mut text);
                parts.extend((!before.is_empty()).then_some(Part::Text(before)));
                parts.push(part.clone());
            }
        }
    }
    text.push_str(&end);
    parts.push(Part::Text(text));
    Pattern { parts }
}

/// Returns the text of a pair with a derived second half, `(23405,"<announcement>")`: its first
/// half, and the pattern or the rendered text that its second half is derived from.
///
/// Messages, query comments and the inventory show the key in this form, and the rendered key has
/// it too. No space follows the comma, because `, ` separates the texts of several keys.
#[must_use]
pub fn pair_text(first: i32, second: &str) -> String {
    format!("({first},\"{second}\")")
}

/// Splits what [`pair_text`] gives into its halves; also with spaces around them, as people write
/// it.
#[must_use]
pub fn split_pair_text(text: &str) -> Option<(i32, &str)> {
    let pair = text.trim().strip_prefix('(')?.strip_suffix(')')?;
    let (first, second) = pair.split_once(',')?;
    let second = second.trim().strip_prefix('"')?.strip_suffix('"')?;
    Some((first.trim().parse().ok()?, second))
}

/// The start of a pair with a pattern as its second half; since version 2.
pub(crate) const HALF: &str = "half ";

/// Returns the key as a record holds it: `pattern …`, `number 42`, `number (7,?)`; `half 7 …` for a
/// pair with a pattern as its second half; `?` for an unknown key, that of an expression.
#[must_use]
pub fn encode_key(key: Option<&LockedKey>) -> String {
    let half =
        |number: &Option<i32>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
    match key {
        Some(LockedKey::Pattern(pattern)) => format!("pattern {pattern}"),
        Some(LockedKey::BigInt(number)) => format!("number {number}"),
        Some(LockedKey::IntInt(first, second)) => {
            format!("number ({},{})", half(first), half(second))
        }
        Some(LockedKey::IntPattern(first, pattern)) => format!("{HALF}{first} {pattern}"),
        None => "?".to_owned(),
    }
}
