//! One step of a language.

use crate::pattern::char_set::CharSet;

/// How often an atom's characters are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Once.
    One,
    /// At most once.
    Optional,
    /// Any number of times, including none.
    Star,
    /// Never: continue at the next atom, or skip that many. The characters are not used.
    Branch(u8),
    /// Never: skip that many atoms. The characters are not used.
    Skip(u8),
}

/// One step of a language: a set of characters, and how often one of them is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atom {
    /// The characters that are read.
    pub chars: CharSet,
    /// The number of repetitions.
    pub repeat: Repeat,
}

impl Atom {
    /// Reads one character of the set.
    #[must_use]
    pub const fn one(chars: CharSet) -> Self {
        let repeat = Repeat::One;
        Self { chars, repeat }
    }

    /// Reads at most one character of the set.
    #[must_use]
    pub const fn optional(chars: CharSet) -> Self {
        let repeat = Repeat::Optional;
        Self { chars, repeat }
    }

    /// Reads any number of characters of the set.
    #[must_use]
    pub const fn star(chars: CharSet) -> Self {
        let repeat = Repeat::Star;
        Self { chars, repeat }
    }

    /// Continues at the next atom, or skips `atoms`: a choice between two texts.
    #[must_use]
    pub const fn branch(atoms: u8) -> Self {
        let (chars, repeat) = (CharSet::NONE, Repeat::Branch(atoms));
        Self { chars, repeat }
    }

    /// Skips `atoms`: the end of a choice's first text.
    #[must_use]
    pub const fn skip(atoms: u8) -> Self {
        let (chars, repeat) = (CharSet::NONE, Repeat::Skip(atoms));
        Self { chars, repeat }
    }
}
