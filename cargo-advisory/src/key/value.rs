//! The texts that a value of a file or a query can have in a key.

use advisory_pattern::{Filter, Placeholder, Shape, escape};
use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;

/// The shapes that are tried if the pattern does not give one.
const GUESSES: [Option<Shape>; 7] = [
    Some(Shape::Text),
    None,
    Some(Shape::Bool),
    Some(Shape::Uuid),
    Some(Shape::Time),
    Some(Shape::DateTime),
    Some(Shape::Timestamp),
];

/// The texts of the placeholders of one value, in each way in which they can be rendered; none if
/// the value is not of their shape.
pub(super) fn rendered(placeholders: &[&Placeholder], value: &str) -> Vec<Vec<String>> {
    let mut ways: Vec<Vec<String>> = Vec::new();
    for guess in GUESSES {
        let texts = placeholders.iter().map(|one| render(one, value, guess));
        if let Some(texts) = texts.collect::<Option<Vec<String>>>()
            && !ways.contains(&texts)
        {
            ways.push(texts);
        }
    }
    ways
}

fn render(placeholder: &Placeholder, value: &str, guess: Option<Shape>) -> Option<String> {
    let has = |filter| placeholder.filters.contains(&filter);
    let mut text = if has(Filter::Trim) {
        escape::trim(value).to_owned()
    } else {
        value.to_owned()
    };
    if has(Filter::Lower) {
        text = text.to_ascii_lowercase();
    }
    match placeholder.shape.or(guess) {
        Some(Shape::Text | Shape::Char) if !has(Filter::Raw) => {
            let mut escaped = String::new();
            escape::escape(&text, |piece| escaped.push_str(piece));
            Some(escaped)
        }
        Some(shape) => of_shape(&text, shape),
        None => Some(text),
    }
}

/// The value as a placeholder of this shape renders it. It can be written like that, or as the
/// server or another program writes it.
fn of_shape(value: &str, shape: Shape) -> Option<String> {
    match shape {
        Shape::Int => Some(value.trim().parse::<i128>().ok()?.to_string()),
        Shape::Uint => Some(value.trim().parse::<u128>().ok()?.to_string()),
        Shape::Uuid => uuid(value.trim()),
        Shape::Date => date(value.trim()),
        Shape::Time => time(value.trim()),
        Shape::DateTime => date_time(value.trim()),
        Shape::Timestamp => timestamp(value.trim()),
        Shape::Bool => match value.trim() {
            "t" | "true" => Some("true".to_owned()),
            "f" | "false" => Some("false".to_owned()),
            _ => None,
        },
        _ => Some(value.to_owned()),
    }
}

fn uuid(value: &str) -> Option<String> {
    let text = value.replace(['-', '{', '}'], "").to_lowercase();
    let is_uuid = text.len() == 32 && text.chars().all(|digit| digit.is_ascii_hexdigit());
    let parts = [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)];
    is_uuid.then(|| parts.map(|(from, to)| &text[from..to]).join("-"))
}

fn date(value: &str) -> Option<String> {
    if is_date(value) {
        return Some(value.to_owned());
    }
    // jiff also finds the day in a day with a time.
    let parsed: Option<Date> = value.parse().ok();
    Some(date_text(parsed.filter(|_| !value.contains(':'))?))
}

fn time(value: &str) -> Option<String> {
    if is_time(value) {
        return Some(value.to_owned());
    }
    // jiff also finds the time in a day with a time, and an hour in two digits.
    let is_clock = value.contains(':') && !value.contains(['-', '+']);
    let parsed: Option<Time> = value.parse().ok();
    Some(time_text(parsed.filter(|_| is_clock)?))
}

fn date_time(value: &str) -> Option<String> {
    if is_date_time(value) {
        return Some(value.to_owned());
    }
    // A value with an offset is an instant, and one without a time is a day.
    let is_civil = value.contains(':') && value.parse::<Timestamp>().is_err();
    let parsed: Option<DateTime> = value.parse().ok();
    Some(date_time_text(parsed.filter(|_| is_civil)?))
}

/// A value without an offset is in UTC.
fn timestamp(value: &str) -> Option<String> {
    if value.strip_suffix('Z').is_some_and(is_date_time) {
        return Some(value.to_owned());
    }
    let civil = match value.parse::<Timestamp>() {
        Ok(at) => date_time_text(TimeZone::UTC.to_datetime(at)),
        Err(_) => date_time(value)?,
    };
    Some(format!("{civil}Z"))
}

/// Returns `true` if a text is a time as keys have it. In keys, a leap second is second 60.
fn is_time(text: &str) -> bool {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, "1"));
    let is_number = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
    clock.len() == 6
        && is_number(clock)
        && is_number(fraction)
        && !fraction.ends_with('0')
        && !fraction.is_empty()
}

fn is_date(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let parts: Vec<&str> = unsigned.split('-').collect();
    let has = |part: &str, count: usize| {
        part.len() >= count && part.bytes().all(|digit| digit.is_ascii_digit())
    };
    matches!(parts[..], [year, month, day] if has(year, 4) && has(month, 2) && has(day, 2) && month.len() + day.len() == 4)
}

fn is_date_time(text: &str) -> bool {
    text.split_once('T')
        .is_some_and(|(date, time)| is_date(date) && is_time(time))
}

/// A day as a key has it: `2026-11-22`, `-0044-03-15`.
pub(super) fn date_text(date: Date) -> String {
    let sign = if date.year() < 0 { "-" } else { "" };
    let (year, month, day) = (date.year().unsigned_abs(), date.month(), date.day());
    format!("{sign}{year:04}-{month:02}-{day:02}")
}

/// A time as a key has it: `093000`, `093000.25`.
pub(super) fn time_text(time: Time) -> String {
    time.strftime("%H%M%S%.f").to_string()
}

/// A day and a time as a key has them: `2026-11-22T093000`.
pub(super) fn date_time_text(at: DateTime) -> String {
    format!("{}T{}", date_text(at.date()), time_text(at.time()))
}
