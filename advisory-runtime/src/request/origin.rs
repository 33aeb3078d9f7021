//! Where a request was made, and the pattern of each of its keys: for the order of locks, in debug builds.
//!
//! In a release build it is empty.

use crate::key::Key;
use std::panic::Location;

/// The place of a request in the program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin {
    #[cfg(debug_assertions)]
    place: Option<&'static Location<'static>>,
    /// Of several keys, where it is known.
    #[cfg(debug_assertions)]
    patterns: Vec<(Key, &'static str)>,
}

#[cfg_attr(
    not(debug_assertions),
    allow(
        unused_variables,
        unused_mut,
        clippy::unused_self,
        clippy::needless_pass_by_value,
        reason = "it is empty in a release build"
    )
)]
impl Origin {
    /// The caller's place, through every function that is marked in the same way.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) const fn here() -> Self {
        Self {
            #[cfg(debug_assertions)]
            place: Some(Location::caller()),
            #[cfg(debug_assertions)]
            patterns: Vec::new(),
        }
    }

    /// The other's place where this one has none.
    pub(crate) fn or(mut self, there: &Self) -> Self {
        #[cfg(debug_assertions)]
        {
            self.place = self.place.or(there.place);
        }
        self
    }

    /// Without a place.
    pub(crate) fn without_place(mut self) -> Self {
        #[cfg(debug_assertions)]
        {
            self.place = None;
        }
        self
    }

    /// With the pattern of each key.
    pub(crate) fn with_patterns(
        mut self,
        patterns: impl Iterator<Item = (Key, &'static str)>,
    ) -> Self {
        #[cfg(debug_assertions)]
        {
            self.patterns = patterns.collect();
        }
        self
    }

    pub(crate) fn place(&self) -> Option<&'static Location<'static>> {
        #[cfg(debug_assertions)]
        let place = self.place;
        #[cfg(not(debug_assertions))]
        let place = None;
        place
    }

    /// Empty for a number; `None` where it is not known.
    pub(crate) fn pattern_of(&self, key: Key) -> Option<&'static str> {
        #[cfg(debug_assertions)]
        let patterns = &self.patterns;
        #[cfg(not(debug_assertions))]
        let patterns: &[(Key, &'static str)] = &[];
        let mut of = patterns.iter().filter(|(known, _)| *known == key);
        of.next().map(|(_, pattern)| *pattern)
    }
}
