//! The days from one date to another.

/// Every day from one to the other, both included, as `2026-11-30`; `None` if one is not a date.
pub(super) fn days(from: &str, to: &str) -> Option<Vec<String>> {
    let (mut day, last) = (Date::read(from)?, Date::read(to)?);
    let mut days = Vec::new();
    while day <= last {
        days.push(format!("{:04}-{:02}-{:02}", day.year, day.month, day.day));
        day = day.next();
    }
    Some(days)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Date {
    year: u16,
    month: u16,
    day: u16,
}

impl Date {
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('-').map(|part| part.parse().ok());
        let day = Self {
            year: parts.next()??,
            month: parts.next()??,
            day: parts.next()??,
        };
        let is_day = text.len() == 10 && (1..=12).contains(&day.month);
        let is_day = is_day && (1..=day.last_of_month()).contains(&day.day);
        (is_day && parts.next().is_none()).then_some(day)
    }

    const fn last_of_month(self) -> u16 {
        let is_leap = self.year.is_multiple_of(4) && !self.year.is_multiple_of(100)
            || self.year.is_multiple_of(400);
        match self.month {
            2 if is_leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }

    const fn next(self) -> Self {
        let Self { year, month, day } = self;
        if day < self.last_of_month() {
            return Self {
                year,
                month,
                day: day + 1,
            };
        }
        if month < 12 {
            return Self {
                year,
                month: month + 1,
                day: 1,
            };
        }
        Self {
            year: year + 1,
            month: 1,
            day: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::days;

    #[test]
    fn a_range_has_the_days_of_the_calendar() {
        let all = days("2024-02-27", "2024-03-02").unwrap();
        assert_eq!(
            all,
            [
                "2024-02-27",
                "2024-02-28",
                "2024-02-29",
                "2024-03-01",
                "2024-03-02"
            ]
        );
        assert_eq!(days("2025-12-31", "2026-01-01").unwrap().len(), 2);
        assert_eq!(days("1900-01-01", "1900-12-31").unwrap().len(), 365);
        for wrong in ["2026-02-29", "2026-13-01", "2026-1-1", "x", "2026-01-01-01"] {
            assert_eq!(days(wrong, "2026-12-31"), None, "{wrong}");
        }
    }
}
