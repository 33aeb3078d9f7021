//! What is known of a lock's key before the program runs?

use std::borrow::Cow;

use crate::pattern::{Part, Pattern, Placeholder};
use crate::shape::Shape;

/// Holds what is known of a lock's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockedKey {
    /// A pattern whose placeholders have their shapes: see [`Pattern::shaped`].
    Pattern(Pattern),
    /// A fixed number of the `bigint` key space.
    BigInt(i64),
    /// Two numbers of the `(int, int)` key space, as far as they are fixed.
    IntInt(Option<i32>, Option<i32>),
}

impl LockedKey {
    /// Gives the key as text, as a lease has it: a number as its digits, `42`, `(7, 3)`.
    #[must_use]
    pub fn text(&self) -> Cow<'_, Pattern> {
        let (first, second) = match self {
            Self::Pattern(pattern) => return Cow::Borrowed(pattern),
            Self::BigInt(number) => {
                let parts = vec![Part::Text(number.to_string())];
                return Cow::Owned(Pattern { parts });
            }
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
