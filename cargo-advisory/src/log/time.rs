//! The time of a record, by the log's own clock.

/// The time of a record: `2026-11-22 07:06:19.026 UTC`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Time {
    /// As written in the log.
    pub(super) text: String,
    /// Milliseconds for comparing two times of one log, without the time zone.
    pub(super) millis: i64,
}

impl Time {
    /// Finds a date and a time of day in a text.
    pub(super) fn find(text: &str) -> Option<Self> {
        let is_start = |at: &usize| {
            let before = text[..*at].chars().next_back();
            text.as_bytes()[*at].is_ascii_digit() && !before.is_some_and(|c| c.is_ascii_digit())
        };
        let mut starts = (0..text.len())
            .filter(|at| text.is_char_boundary(*at))
            .filter(is_start);
        starts.find_map(|at| Self::read(&text[at..]))
    }

    /// Parses a text that begins with a date and a time.
    fn read(text: &str) -> Option<Self> {
        let clock = text.get(..19)?;
        let shape: String = clock
            .chars()
            .map(|c| if c.is_ascii_digit() { '0' } else { c })
            .collect();
        if shape != "0000-00-00 00:00:00" {
            return None;
        }
        let part = |range: std::ops::Range<usize>| clock.get(range)?.parse::<i64>().ok();
        let (year, month, day) = (part(0..4)?, part(5..7)?, part(8..10)?);
        let seconds = (part(11..13)? * 60 + part(14..16)?) * 60 + part(17..19)?;
        let rest = &text[19..];
        let fraction = rest.strip_prefix('.').map_or("", |rest| {
            let end = rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len());
            &rest[..end]
        });
        let millis: i64 = format!("{fraction:0<3.3}").parse().ok()?;
        let behind = &rest[if fraction.is_empty() {
            0
        } else {
            fraction.len() + 1
        }..];
        // The zone, such as `UTC` or `+02`.
        let zone = behind.strip_prefix(' ').map_or("", |zone| {
            let end = zone.find(|c: char| !(c.is_ascii_alphanumeric() || "+-".contains(c)));
            &zone[..end.unwrap_or(zone.len())]
        });
        let length = text.len() - behind.len() + if zone.is_empty() { 0 } else { zone.len() + 1 };
        Some(Self {
            text: text[..length].to_owned(),
            millis: (days(year, month, day) * 86_400 + seconds) * 1_000 + millis,
        })
    }
}

/// Days since 1970-01-01 in the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Counts years from March, so that the leap day is at their end.
    let (year, month) = if month < 3 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 719_469
}

#[cfg(test)]
mod tests {
    use super::{Time, days};

    #[test]
    fn days_are_counted_from_1970() {
        for (year, month, day, count) in [
            (1970, 1, 1, 0),
            (1970, 3, 1, 59),
            (2000, 2, 29, 11_016),
            (2026, 11, 22, 20_779),
        ] {
            assert_eq!(days(year, month, day), count, "{year}-{month}-{day}");
        }
    }

    #[test]
    fn a_time_is_found_wherever_it_stands() {
        for (text, time, millis) in [
            (
                "2026-11-22 07:06:19.026 UTC [1] ",
                "2026-11-22 07:06:19.026 UTC",
                26,
            ),
            (
                "2026-11-22 07:06:19 CET:[local]:",
                "2026-11-22 07:06:19 CET",
                0,
            ),
            (
                "pid=12,2026-11-22 07:06:19.5 +02 x",
                "2026-11-22 07:06:19.5 +02",
                500,
            ),
            ("2026-11-22 07:06:19.026", "2026-11-22 07:06:19.026", 26),
        ] {
            let found = Time::find(text).unwrap();
            assert_eq!(found.text, time);
            let seconds = (7 * 60 + 6) * 60 + 19;
            assert_eq!(found.millis, (20_779 * 86_400 + seconds) * 1_000 + millis);
        }
        for text in [
            "",
            "2026-11-22",
            "é2026",
            "no time [13595] at all",
            "07:06:19",
        ] {
            assert_eq!(Time::find(text), None, "{text}");
        }
    }
}
