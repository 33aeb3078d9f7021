//! The days from one date to another.

use jiff::ToSpan;
use jiff::civil::Date;

/// Every day from one to the other, both included, as `2026-11-30`; `None` if one is not a date.
pub(super) fn days(from: &str, to: &str) -> Option<Vec<String>> {
    let (from, to) = (date(from)?, date(to)?);
    let days = from.series(1.day()).take_while(|day| *day <= to);
    Some(days.map(|day| day.to_string()).collect())
}

fn date(text: &str) -> Option<Date> {
    let date: Date = text.parse().ok()?;
    // Other forms of a date are not what is in a key.
    (date.to_string() == text).then_some(date)
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
        for wrong in [
            "2026-02-29",
            "2026-13-01",
            "2026-1-1",
            "20260101",
            "x",
            "2026-01-01-01",
        ] {
            assert_eq!(days(wrong, "2026-12-31"), None, "{wrong}");
        }
    }
}
