//! The numbers of the permits of one lock.
//!
//! They never change, like derivations: a program of another release, or in another language, must
//! lock the same numbers.

use crate::derivation::leading;
use sha2::{Digest, Sha256};
use std::fmt;

/// The maximum of permits: a try may have to go through all of them.
pub const MOST_PERMITS: u32 = 1_000;

/// Precedes the hashed text. UTF-8 text never contains this byte, so no key pattern renders the
/// input of a permit's hash.
const MARK: u8 = 0xFF;

/// The number of calls that can hold a lock at a time, as its site says it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permits {
    /// From 1 to [`MOST_PERMITS`].
    Number(u32),
    /// An expression. Only the running program knows its value.
    Expression(String),
}

impl Permits {
    /// The default: one holder.
    pub const ONE: Self = Self::Number(1);

    /// Reads what [`Display`](fmt::Display) writes. `None` for a number that no lock can have.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some(Self::Expression(text.to_owned()));
        }
        let number = text.parse().ok();
        let number = number.filter(|number| (1..=MOST_PERMITS).contains(number));
        number.map(Self::Number)
    }

    /// Returns `true` if both can be one number. The value of an expression is unknown, and assumed
    /// to be more than 1.
    #[must_use]
    pub fn can_equal(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Number(one), Self::Number(two)) => one == two,
            (Self::Number(number), Self::Expression(_))
            | (Self::Expression(_), Self::Number(number)) => *number > 1,
            (Self::Expression(_), Self::Expression(_)) => true,
        }
    }
}

impl fmt::Display for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Expression(expression) => f.write_str(expression),
        }
    }
}

/// Returns the number of a lock's second permit, or of a later one. The first permit is the lock's
/// own key.
///
/// The first 8 bytes, big-endian, of the SHA-256 of the byte `FF` and `<permit>:<key>`, where `key`
/// is the lock's own key in digits: `42`, `(7, 3)`. A permit does not depend on how many there are,
/// so the permits of a smaller number are among those of a larger one.
#[must_use]
pub fn permit_key(key: &str, permit: u32) -> i64 {
    let digest = Sha256::new().chain_update([MARK]);
    leading(&digest.chain_update(format!("{permit}:{key}")).finalize())
}
