//! The set of characters that can be at one position of a key.
//!
//! Each ASCII character is a bit. Of the others a set has none, one (a letter of a pattern's own
//! text) or all. Shapes and literal text need no more, and a set takes two machine words and a
//! `char`.

/// A set of characters: some of ASCII, and none, one or all of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CharSet {
    ascii: u128,
    other: Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    None,
    Only(char),
    Any,
}

/// The order of choice where few characters are possible. `t`, `r`, `u`, `e` in turn spell a
/// `bool`.
const PREFERRED: &str = "1true0";
/// The order of choice where any letter is possible, so that neighbours differ.
const LETTERS: &[u8] = b"xyzuvwabcdefghijklmnopqrst";

impl CharSet {
    /// The empty set, for an atom that reads nothing.
    pub const NONE: Self = Self {
        ascii: 0,
        other: Other::None,
    };
    /// The set of all characters.
    pub const ANY: Self = Self {
        ascii: u128::MAX,
        other: Other::Any,
    };

    /// Creates the set of the ASCII characters in `text`. Other characters are ignored.
    #[must_use]
    pub const fn of(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut ascii = 0;
        let mut i = 0;
        while i < bytes.len() {
            if bytes[i] < 128 {
                ascii |= 1 << bytes[i];
            }
            i += 1;
        }
        let other = Other::None;
        Self { ascii, other }
    }

    /// Creates the set of one character.
    #[must_use]
    pub const fn only(c: char) -> Self {
        let (ascii, other) = if c.is_ascii() {
            (1 << c as u32, Other::None)
        } else {
            (0, Other::Only(c))
        };
        Self { ascii, other }
    }

    /// Creates the set of all characters except for the ASCII ones in `text`.
    #[must_use]
    pub const fn all_but(text: &str) -> Self {
        Self {
            ascii: !Self::of(text).ascii,
            other: Other::Any,
        }
    }

    /// Returns `true` if the character is in the set.
    #[must_use]
    pub const fn contains(self, c: char) -> bool {
        self.intersects(Self::only(c))
    }

    /// Returns `true` if a character is in both sets.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.ascii & other.ascii != 0
            || match (self.other, other.other) {
                (Other::None, _) | (_, Other::None) => false,
                (Other::Any, _) | (_, Other::Any) => true,
                (Other::Only(a), Other::Only(b)) => a as u32 == b as u32,
            }
    }

    /// Returns the characters that are in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self {
            ascii: self.ascii & other.ascii,
            other: match (self.other, other.other) {
                (Other::Any, other) | (other, Other::Any) => other,
                (Other::Only(a), Other::Only(b)) if a as u32 == b as u32 => Other::Only(a),
                (Other::None, _) | (_, Other::None) | (Other::Only(_), Other::Only(_)) => {
                    Other::None
                }
            },
        }
    }

    pub(crate) const fn has_words(self) -> bool {
        let words = Self::of("abcdefghijklmnopqrstuvwxyz0123456789").ascii;
        self.ascii & words == words
    }

    /// Chooses a character that reads well; `turn` varies the letter where any would do.
    pub(crate) fn pick(self, turn: usize) -> Option<char> {
        if self.has_words() {
            return Some(char::from(LETTERS[turn % LETTERS.len()]));
        }
        let printable = (0x21..0x7f_u8).chain(0..0x21).chain([0x7f]).map(char::from);
        let ascii = PREFERRED
            .chars()
            .chain(printable)
            .find(|&c| self.contains(c));
        ascii.or(match self.other {
            Other::None => None,
            Other::Only(c) => Some(c),
            Other::Any => Some('é'),
        })
    }
}
