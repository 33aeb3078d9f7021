//! Progress of a run, and its minimum.

use crate::operation_kind::OperationKind;
use std::fmt;

/// The counts of workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Operations that were begun.
    pub(crate) begun: i64,
    /// Bookings that were confirmed.
    pub(crate) booked: i64,
    /// Slots that were found booked.
    pub(crate) taken: i64,
    /// Operations that held their lock to the end, by [`OperationKind::index`].
    pub(crate) granted: [i64; OperationKind::ALL.len()],
}

/// The minimum that each run has to show. A run continues until then.
const BOOKED: i64 = 10;
const TAKEN: i64 = 10;
const GRANTED: i64 = 2;

impl Progress {
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
        let mut progress = Self {
            begun: next()?,
            booked: next()?,
            taken: next()?,
            ..Self::default()
        };
        for granted in &mut progress.granted {
            *granted = next()?;
        }
        Some(progress)
    }

    /// What is missing for a run to count.
    pub(crate) fn missing(&self, is_pooled: bool) -> Vec<String> {
        let kinds = OperationKind::ALL.into_iter();
        let kinds = kinds.filter(|kind| !is_pooled || kind.is_for_poolers());
        let kinds = kinds.map(|kind| (kind.name(), self.granted[kind.index()], GRANTED));
        let slots = [
            ("bookings", self.booked, BOOKED),
            ("slots taken", self.taken, TAKEN),
        ];
        let all = slots.into_iter().chain(kinds);
        all.filter(|(_, count, least)| count < least)
            .map(|(what, count, least)| format!("{what}: {count} of {least}"))
            .collect()
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.begun, self.booked, self.taken)?;
        self.granted
            .iter()
            .try_for_each(|granted| write!(f, " {granted}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{BOOKED, GRANTED, Progress, TAKEN};
    use crate::operation_kind::OperationKind;

    fn enough() -> Progress {
        Progress {
            begun: 7,
            booked: BOOKED,
            taken: TAKEN,
            granted: [GRANTED; OperationKind::ALL.len()],
        }
    }

    #[test]
    fn progress_is_read_as_a_worker_prints_it() {
        let progress = enough();
        assert_eq!(Progress::parse(&progress.to_string()), Some(progress));
        assert_eq!(Progress::parse("7 1"), None);
    }

    #[test]
    fn whatever_is_missing_is_named() {
        assert_eq!(enough().missing(false), [""; 0]);
        let mut progress = enough();
        progress.taken -= 1;
        progress.granted[OperationKind::Migrate.index()] = 0;
        assert_eq!(
            progress.missing(false),
            ["slots taken: 9 of 10", "migrate: 0 of 2"]
        );
        assert_eq!(progress.missing(true), ["slots taken: 9 of 10"]);
    }

    #[test]
    fn each_kind_has_its_own_index() {
        for (index, kind) in OperationKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), index);
            assert_eq!(kind.name().parse(), Ok(kind));
        }
    }
}
