//! One message of the server's log, in any of the three formats, and its time.

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::strtime::BrokenDownTime;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) time: Option<Time>,
    pub(super) pid: Option<i32>,
    pub(super) user: Option<String>,
    pub(super) database: Option<String>,
    pub(super) application: Option<String>,
    /// True for `ERROR`, `FATAL` and `PANIC`, which end the statement.
    pub(super) is_error: bool,
    /// Its severity, or the name of its part, if it is in another language than English.
    pub(super) foreign_tag: Option<String>,
    pub(super) message: String,
    pub(super) detail: String,
    pub(super) statement: String,
}

/// The server writes `DEBUG` for all five levels.
pub(super) const SEVERITIES: [&str; 8] = [
    "DEBUG", "LOG", "INFO", "NOTICE", "WARNING", "ERROR", "FATAL", "PANIC",
];

pub(super) fn is_error(severity: &str) -> bool {
    matches!(severity, "ERROR" | "FATAL" | "PANIC")
}

impl Record {
    /// Builds a record from its values, by the column of `csvlog` or the member of `jsonlog`.
    /// `None` without a severity, because the server writes each record with one.
    pub(super) fn of(value: impl Fn(usize, &str) -> Option<String>) -> Option<Self> {
        let text = |column, member| value(column, member).unwrap_or_default();
        let severity = value(11, "error_severity")?;
        Some(Self {
            time: Time::find(&text(0, "timestamp")),
            pid: text(3, "pid").parse().ok(),
            user: value(1, "user"),
            database: value(2, "dbname"),
            application: value(22, "application_name"),
            is_error: is_error(&severity),
            message: text(13, "message"),
            detail: text(14, "detail"),
            statement: text(19, "statement"),
            foreign_tag: Some(severity).filter(|it| !SEVERITIES.contains(&it.as_str())),
        })
    }
}

/// The time of a record, by the log's own clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Time {
    pub(super) text: String,
    clock: DateTime,
}

impl Time {
    /// Finds a date and a time of day in a text.
    pub(super) fn find(text: &str) -> Option<Self> {
        let is_digit = |letter: char| letter.is_ascii_digit();
        let digits = text.match_indices(is_digit);
        let mut numbers = digits.filter(|(at, _)| !text[..*at].ends_with(is_digit));
        numbers.find_map(|(at, _)| Self::read(&text[at..]))
    }

    /// Parses a text that begins with a date and a time.
    fn read(text: &str) -> Option<Self> {
        // The parser also takes `7:6:9`, which the server never writes.
        let shape = text.get(..19)?.replace(|it: char| it.is_ascii_digit(), "0");
        if shape != "0000-00-00 00:00:00" {
            return None;
        }
        let (time, end) = BrokenDownTime::parse_prefix("%Y-%m-%d %H:%M:%S%.f", text).ok()?;
        let clock = time.to_datetime().ok()?;
        // The zone, such as `UTC` or `+02`.
        let zone = text[end..].strip_prefix(' ').map_or(0, |zone| {
            let is_zone = |letter: char| letter.is_ascii_alphanumeric() || "+-".contains(letter);
            zone.find(|letter| !is_zone(letter)).unwrap_or(zone.len())
        });
        let end = if zone == 0 { end } else { end + 1 + zone };
        Some(Self {
            text: text[..end].to_owned(),
            clock,
        })
    }

    /// The time since another one of this log.
    pub(super) fn since(&self, other: &Self) -> SignedDuration {
        self.clock.duration_since(other.clock)
    }
}
