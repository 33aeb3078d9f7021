//! The nights of a stay: from the day of arrival up to, and without, the day of departure.

use chrono::{Days, NaiveDate};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nights {
    pub arrives: NaiveDate,
    pub departs: NaiveDate,
}

impl Nights {
    /// `None` for a stay that ends before it begins, or is longer than the longest one.
    #[must_use]
    pub fn new(arrives: NaiveDate, departs: NaiveDate) -> Option<Self> {
        let nights = (departs - arrives).num_days();
        (1..=Self::LONGEST)
            .contains(&nights)
            .then_some(Self { arrives, departs })
    }

    /// This many nights from this day on.
    #[must_use]
    pub fn from(arrives: NaiveDate, count: u64) -> Option<Self> {
        Self::new(arrives, arrives.checked_add_days(Days::new(count))?)
    }

    /// The longest stay that we accept.
    pub const LONGEST: i64 = 42;

    #[must_use]
    pub fn count(self) -> i64 {
        (self.departs - self.arrives).num_days()
    }

    pub fn each(self) -> impl Iterator<Item = NaiveDate> {
        self.arrives
            .iter_days()
            .take_while(move |day| *day < self.departs)
    }

    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.arrives < other.departs && other.arrives < self.departs
    }
}
