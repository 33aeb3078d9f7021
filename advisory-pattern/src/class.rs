//! Which characters may stand at one place of a key?
//!
//! ASCII is told apart character by character. Of the rest a class has none, all, or one (a letter of a pattern's own text),
//! which is all that shapes and literal text need and keeps a class in two machine words and a `char`.

/// Names a set of characters: some of ASCII, and none, one or all of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    ascii: u128,
    other: Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    None,
    Only(char),
    Any,
}

/// In this order where a place takes few characters. `t`, `r`, `u`, `e` in turn spell a `bool`.
const PREFERRED: &str = "1true0";
/// In this order where a place takes any letter, so that neighbours differ.
const LETTERS: &[u8] = b"xyzuvwabcdefghijklmnopqrst";

impl Class {
    /// Names the empty set, for an atom that reads nothing.
    pub const NONE: Self = Self {
        ascii: 0,
        other: Other::None,
    };
    /// Names the set of all characters.
    pub const ANY: Self = Self {
        ascii: u128::MAX,
        other: Other::Any,
    };

    /// Names the ASCII characters of `text`; others in it are passed over.
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
        Self {
            ascii,
            other: Other::None,
        }
    }

    /// Names one character.
    #[must_use]
    pub const fn only(c: char) -> Self {
        if c.is_ascii() {
            Self {
                ascii: 1 << c as u32,
                other: Other::None,
            }
        } else {
            Self {
                ascii: 0,
                other: Other::Only(c),
            }
        }
    }

    /// Names every character but the ASCII ones of `text`.
    #[must_use]
    pub const fn all_but(text: &str) -> Self {
        Self {
            ascii: !Self::of(text).ascii,
            other: Other::Any,
        }
    }

    /// Tells whether the character is in the set.
    #[must_use]
    pub const fn has(self, c: char) -> bool {
        self.meets(Self::only(c))
    }

    /// Tells whether the two sets share a character.
    #[must_use]
    pub const fn meets(self, with: Self) -> bool {
        self.ascii & with.ascii != 0
            || match (self.other, with.other) {
                (Other::None, _) | (_, Other::None) => false,
                (Other::Any, _) | (_, Other::Any) => true,
                (Other::Only(a), Other::Only(b)) => a as u32 == b as u32,
            }
    }

    /// Names what the two sets share.
    #[must_use]
    pub const fn and(self, with: Self) -> Self {
        Self {
            ascii: self.ascii & with.ascii,
            other: match (self.other, with.other) {
                (Other::Any, other) | (other, Other::Any) => other,
                (Other::Only(a), Other::Only(b)) if a as u32 == b as u32 => Other::Only(a),
                _ => Other::None,
            },
        }
    }

    /// Tells whether every lower-case letter and digit is in the set.
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
        let ascii = PREFERRED.chars().chain(printable).find(|&c| self.has(c));
        ascii.or(match self.other {
            Other::None => None,
            Other::Only(c) => Some(c),
            Other::Any => Some('é'),
        })
    }
}
