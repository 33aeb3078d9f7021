//! The channels through which guests come, and the seasons.

use advisory_runtime::KeyPart;
use chrono::{Datelike, NaiveDate};

/// Other firms that sell our nights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, KeyPart)]
pub enum Channel {
    // The texts are in keys of the running fleet: they do not change when a firm changes its name.
    #[key_part("bkg")]
    BookAway,
    #[key_part("nst")]
    Nestling,
    #[key_part("own")]
    OwnSite,
}

impl Channel {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BookAway => "book-away",
            Self::Nestling => "nestling",
            Self::OwnSite => "own-site",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, KeyPart)]
pub enum Season {
    Winter,
    Spring,
    Summer,
    Autumn,
}

impl Season {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Winter => "winter",
            Self::Spring => "spring",
            Self::Summer => "summer",
            Self::Autumn => "autumn",
        }
    }

    #[must_use]
    pub fn of(day: NaiveDate) -> Self {
        match day.month() {
            12 | 1 | 2 => Self::Winter,
            3..=5 => Self::Spring,
            6..=8 => Self::Summer,
            _ => Self::Autumn,
        }
    }
}
