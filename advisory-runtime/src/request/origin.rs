//! The place in the program that made a request, and the pattern of each of its keys, for the
//! checks of debug builds.

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

/// The place of a request in the program, and its patterns; `None` in a release build.
#[derive(Clone, Debug)]
pub(crate) struct Origin(Option<Box<Recorded>>);

#[derive(Clone, Debug, Default)]
struct Recorded {
    place: CallSite,
    /// The patterns of several keys, where they are known.
    patterns: Vec<(Key, &'static str)>,
    /// True if the request has waited in the queues of its keys.
    has_turn: bool,
}

impl Origin {
    /// The caller's place, through every `track_caller` function.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn here() -> Self {
        let place = CallSite {
            location: Some(Location::caller()),
            function: None,
        };
        Self(cfg!(debug_assertions).then(|| {
            Box::new(Recorded {
                place,
                ..Recorded::default()
            })
        }))
    }

    fn change(mut self, change: impl FnOnce(&mut Recorded)) -> Self {
        if let Some(recorded) = &mut self.0 {
            change(recorded);
        }
        self
    }

    pub(crate) fn note_turn(&mut self) {
        if let Some(recorded) = &mut self.0 {
            recorded.has_turn = true;
        }
    }

    pub(crate) fn has_turn(&self) -> bool {
        self.0.as_ref().is_some_and(|recorded| recorded.has_turn)
    }

    /// The other's place where this one has none.
    pub(crate) fn or(self, there: &Self) -> Self {
        let CallSite { location, function } = there.place();
        self.change(|recorded| {
            let place = &mut recorded.place;
            place.location = place.location.or(location);
            place.function = place.function.or(function);
        })
    }

    pub(crate) fn without_place(self) -> Self {
        self.change(|recorded| recorded.place = CallSite::default())
    }

    pub(crate) fn in_function(self, function: &'static str) -> Self {
        self.change(|recorded| recorded.place.function = Some(function))
    }

    pub(crate) fn with_patterns(self, patterns: impl Iterator<Item = (Key, &'static str)>) -> Self {
        self.change(|recorded| recorded.patterns = patterns.collect())
    }

    pub(crate) fn place(&self) -> CallSite {
        self.0
            .as_ref()
            .map(|recorded| recorded.place)
            .unwrap_or_default()
    }

    /// The key's pattern, empty for a number; `None` if it is not known.
    pub(crate) fn pattern_of(&self, key: Key) -> Option<&'static str> {
        let mut patterns = self.0.as_ref()?.patterns.iter();
        patterns
            .find(|(known, _)| *known == key)
            .map(|(_, pattern)| *pattern)
    }
}
