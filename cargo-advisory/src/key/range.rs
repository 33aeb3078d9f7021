//! The values of a range: numbers, days, times of day, days with a time, and instants.

use std::time::Duration;

use advisory_pattern::{Placeholder, Shape};
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};

use super::value::{date_text, date_time_text, time_text};
use crate::duration;
use crate::failure::{Failure, Result, bail};
use crate::text::one_line;

/// More texts than this are not tried.
pub(super) const MOST: usize = 50_000_000;

/// Refuses a range of this shape for a placeholder that can have none of its values.
pub(super) fn check(range: Shape, placeholder: &Placeholder) -> Result<()> {
    let Some(shape) = placeholder.shape else {
        return Ok(());
    };
    let placeholder = placeholder.name();
    let fits = match shape {
        Shape::Uint => range == Shape::Int,
        Shape::Timestamp => matches!(range, Shape::DateTime | Shape::Timestamp),
        Shape::Uuid => bail!(
            "`<{placeholder}>` has no range: there are too many UUIDs to try; write `NAME=FILE` or `NAME=SELECT …`"
        ),
        Shape::Bool => bail!(
            "`<{placeholder}>` has no range: leave its `--values` out, and both values are tried"
        ),
        same => range == same,
    };
    let (range, name) = (plural(range), shape.name());
    match example(shape) {
        Some(write) if !fits => {
            bail!("a range of {range} has no {name} for `<{placeholder}>`: write `{write}`")
        }
        _ => Ok(()),
    }
}

/// The values of a range of this shape.
const fn plural(shape: Shape) -> &'static str {
    match shape {
        Shape::Date => "days",
        Shape::Time => "times",
        Shape::DateTime => "days with a time",
        Shape::Timestamp => "instants",
        _ => "numbers",
    }
}

/// A range of values of this shape; `None` for a shape without ranges.
pub(super) const fn example(shape: Shape) -> Option<&'static str> {
    match shape {
        Shape::Int | Shape::Uint => Some("1..1000"),
        Shape::Date => Some("2026-11-01..2026-11-30"),
        Shape::Time => Some("08:00..18:00/15min"),
        Shape::DateTime => Some("2026-11-22T08:00..2026-11-22T18:00/15min"),
        Shape::Timestamp => Some("2026-11-22T08:00Z..2026-11-22T18:00Z/15min"),
        _ => None,
    }
}

/// The shape and the values of `1..1000`, `2026-11-01..2026-11-30`, or times with their step,
/// `08:00..18:00/15min`; `None` if the text is not a range.
pub(super) fn read(text: &str) -> Result<Option<(Shape, Vec<String>)>> {
    let Some((from, to)) = text.split_once("..") else {
        return Ok(None);
    };
    let range = |shape, values| Ok(Some((shape, values)));
    if let (Ok(from), Ok(to)) = (from.parse::<i64>(), to.parse::<i64>()) {
        let count = to.saturating_sub(from);
        if usize::try_from(count).is_ok_and(|count| count >= MOST) {
            return Err(too_many());
        }
        let values = (from..=to).map(|number| number.to_string());
        return range(Shape::Int, values.collect());
    }
    if let (Some(from), Some(to)) = (day(from), day(to)) {
        let days = from.series(1.day()).take_while(|day| *day <= to);
        return range(Shape::Date, days.map(date_text).collect());
    }
    let (to, step) = match to.split_once('/') {
        Some((to, step)) => (to, Some(step)),
        None => (to, None),
    };
    let (Some((shape, first)), Some((other, last))) = (time(from), time(to)) else {
        return Ok(None);
    };
    if shape != other {
        bail!(
            "`{}` begins with one of the {} and ends with one of the {}: write both in one form",
            one_line(text),
            plural(shape),
            plural(other)
        );
    }
    let has_seconds = has_seconds(from) || has_seconds(to);
    let step = match step {
        Some(step) => duration::parse(step).map_err(Failure::Input)?,
        None if has_seconds => Duration::from_secs(1),
        None => Duration::from_secs(60),
    };
    let values = times(first, last, step)?.map(|at| match shape {
        Shape::Time => time_text(at.time()),
        Shape::Timestamp => format!("{}Z", date_time_text(at)),
        _ => date_time_text(at),
    });
    range(shape, values.collect())
}

/// The times from one to another, if they are not too many.
fn times(
    first: DateTime,
    last: DateTime,
    step: Duration,
) -> Result<impl Iterator<Item = DateTime>> {
    let between = last.duration_since(first);
    let step = SignedDuration::try_from(step).ok();
    let Some(step) = step.filter(SignedDuration::is_positive) else {
        bail!("a step must be longer than zero");
    };
    let count = between.as_nanos() / step.as_nanos();
    if usize::try_from(count).is_ok_and(|count| count >= MOST) {
        return Err(too_many());
    }
    let next = move |at: &DateTime| at.checked_add(step).ok();
    let all = std::iter::successors(Some(first), next);
    Ok(all.take_while(move |at| *at <= last))
}

/// A day in the only form that keys have.
fn day(text: &str) -> Option<Date> {
    let date: Date = text.parse().ok()?;
    (date.to_string() == text).then_some(date)
}

/// A time of day, a day with a time, or an instant. It contains a colon, unlike a number.
fn time(text: &str) -> Option<(Shape, DateTime)> {
    if !text.contains(':') {
        return None;
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some((Shape::Timestamp, TimeZone::UTC.to_datetime(at)));
    }
    if text.contains('-') {
        return Some((Shape::DateTime, text.parse().ok()?));
    }
    let time: Time = text.parse().ok()?;
    Some((Shape::Time, Date::new(1970, 1, 1).ok()?.to_datetime(time)))
}

/// Returns `true` if a time is written with seconds: `08:00:00`, but not `08:00+02:00`.
fn has_seconds(text: &str) -> bool {
    let time = text.split(['T', 't', ' ']).next_back().unwrap_or(text);
    let clock = time.split(['+', '-', 'Z', 'z']).next().unwrap_or(time);
    clock.matches(':').count() > 1
}

pub(super) fn too_many() -> Failure {
    Failure::Input(format!(
        "more than {MOST} texts, each of them counted for each permit: give fewer values"
    ))
}
