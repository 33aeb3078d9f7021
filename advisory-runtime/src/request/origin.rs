//! The place in the program that made a request, and the pattern of each of its keys, for the
//! checks of debug builds.
//!
//! Empty in a release build.

use crate::key::Key;
use std::fmt;
use std::panic::Location;

/// A place in the program: `src/a.rs:3`, or `` `book` (src/a.rs:3)`` in a function under the
/// attribute; empty if it is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallSite {
    location: Option<&'static Location<'static>>,
    function: Option<&'static str>,
}

impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(location) = self.location else {
            return Ok(());
        };
        let (file, line) = (location.file(), location.line());
        match self.function {
            Some(function) => write!(f, "`{function}` ({file}:{line})"),
            None => write!(f, "{file}:{line}"),
        }
    }
}

/// The place of a request in the program, and its patterns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin {
    #[cfg(debug_assertions)]
    place: CallSite,
    /// The patterns of several keys, where they are known.
    #[cfg(debug_assertions)]
    patterns: Vec<(Key, &'static str)>,
    /// True if the request has waited in the queues of its keys.
    #[cfg(debug_assertions)]
    has_turn: bool,
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
    /// The caller's place, through every `track_caller` function.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) const fn here() -> Self {
        Self {
            #[cfg(debug_assertions)]
            place: CallSite {
                location: Some(Location::caller()),
                function: None,
            },
            #[cfg(debug_assertions)]
            patterns: Vec::new(),
            #[cfg(debug_assertions)]
            has_turn: false,
        }
    }

    pub(crate) fn note_turn(&mut self) {
        #[cfg(debug_assertions)]
        {
            self.has_turn = true;
        }
    }

    pub(crate) fn has_turn(&self) -> bool {
        #[cfg(debug_assertions)]
        let has_turn = self.has_turn;
        #[cfg(not(debug_assertions))]
        let has_turn = false;
        has_turn
    }

    /// The other's place where this one has none.
    pub(crate) fn or(mut self, there: &Self) -> Self {
        #[cfg(debug_assertions)]
        {
            let CallSite { location, function } = there.place;
            self.place.location = self.place.location.or(location);
            self.place.function = self.place.function.or(function);
        }
        self
    }

    pub(crate) fn without_place(mut self) -> Self {
        #[cfg(debug_assertions)]
        {
            self.place = CallSite::default();
        }
        self
    }

    pub(crate) const fn in_function(mut self, function: &'static str) -> Self {
        #[cfg(debug_assertions)]
        {
            self.place.function = Some(function);
        }
        self
    }

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

    pub(crate) fn place(&self) -> CallSite {
        #[cfg(debug_assertions)]
        let place = self.place;
        #[cfg(not(debug_assertions))]
        let place = CallSite::default();
        place
    }

    /// The key's pattern, empty for a number; `None` if it is not known.
    pub(crate) fn pattern_of(&self, key: Key) -> Option<&'static str> {
        #[cfg(debug_assertions)]
        let patterns = &self.patterns;
        #[cfg(not(debug_assertions))]
        let patterns: &[(Key, &'static str)] = &[];
        let mut of = patterns.iter().filter(|(known, _)| *known == key);
        of.next().map(|(_, pattern)| *pattern)
    }
}
