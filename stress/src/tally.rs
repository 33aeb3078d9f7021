//! Progress of a run, and its minimum.

use crate::way::Way;
use std::fmt;

/// The counts of workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Operations that were begun.
    pub(crate) begun: i64,
    /// Bookings that were confirmed.
    pub(crate) booked: i64,
    /// Slots that were found booked.
    pub(crate) taken: i64,
    /// Operations that held their lock to the end, by [`Way::index`].
    pub(crate) granted: [i64; Way::ALL.len()],
}

/// The minimum that each run has to show. A run continues until then.
const BOOKED: i64 = 10;
const TAKEN: i64 = 10;
const GRANTED: i64 = 2;

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.begun += other.begun;
        self.booked += other.booked;
        self.taken += other.taken;
        for (all, one) in self.granted.iter_mut().zip(other.granted) {
            *all += one;
        }
    }

    /// Parses the output of [`Display`](fmt::Display).
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(' ').map(|word| word.parse().ok());
        let mut next = || numbers.next()?;
        let mut tally = Self {
            begun: next()?,
            booked: next()?,
            taken: next()?,
            ..Self::default()
        };
        for granted in &mut tally.granted {
            *granted = next()?;
        }
        Some(tally)
    }

    /// What is missing for a run to count.
    pub(crate) fn missing(&self, is_pooled: bool) -> Vec<String> {
        let ways = Way::ALL.into_iter();
        let ways = ways.filter(|way| !is_pooled || way.is_for_poolers());
        let ways = ways.map(|way| (way.name(), self.granted[way.index()], GRANTED));
        let slots = [
            ("bookings", self.booked, BOOKED),
            ("slots taken", self.taken, TAKEN),
        ];
        let all = slots.into_iter().chain(ways);
        all.filter(|(_, count, least)| count < least)
            .map(|(what, count, least)| format!("{what}: {count} of {least}"))
            .collect()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.begun, self.booked, self.taken)?;
        self.granted
            .iter()
            .try_for_each(|granted| write!(f, " {granted}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{BOOKED, GRANTED, TAKEN, Tally};
    use crate::way::Way;

    fn enough() -> Tally {
        Tally {
            begun: 7,
            booked: BOOKED,
            taken: TAKEN,
            granted: [GRANTED; Way::ALL.len()],
        }
    }

    #[test]
    fn a_tally_is_read_as_a_worker_prints_it() {
        let tally = enough();
        assert_eq!(Tally::parse(&tally.to_string()), Some(tally));
        assert_eq!(Tally::parse("7 1"), None);
    }

    #[test]
    fn whatever_is_missing_is_named() {
        assert_eq!(enough().missing(false), [""; 0]);
        let mut tally = enough();
        tally.taken -= 1;
        tally.granted[Way::Migrate.index()] = 0;
        assert_eq!(
            tally.missing(false),
            ["slots taken: 9 of 10", "migrate: 0 of 2"]
        );
        assert_eq!(tally.missing(true), ["slots taken: 9 of 10"]);
    }

    #[test]
    fn each_way_has_its_own_place() {
        for (place, way) in Way::ALL.into_iter().enumerate() {
            assert_eq!(way.index(), place);
            assert_eq!(way.name().parse(), Ok(way));
        }
    }
}
