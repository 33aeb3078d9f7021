//! Writes dates, times of day and instants into keys, in one form for all crates.
//!
//! The form is ISO 8601 without colons: `:` is the pattern's own. Dates are in the extended format,
//! times in the basic one. Every number is read by an accessor and written here; an instant is read
//! as its Unix time, so that it has one text in every crate and every time zone.

use super::digits::Digits;
use super::{KeyPart, KeyText, shape};

struct CivilDay {
    year: i64,
    month: u64,
    day: u64,
}

struct Clock {
    hour: u64,
    minute: u64,
    second: u64,
    /// From 1,000,000,000 on for chrono's leap seconds, which it counts as a part of the second
    /// before.
    nanosecond: u64,
}

/// Seconds since 1970-01-01T000000Z, rounded down, and nanoseconds since then, as in a [`Clock`].
struct Instant {
    second: i64,
    nanosecond: u64,
}

const NANOSECONDS: u64 = 1_000_000_000;
const SECONDS_OF_DAY: i64 = 86_400;

impl CivilDay {
    fn new(year: impl Into<i64>, month: impl Into<u64>, day: impl Into<u64>) -> Self {
        Self {
            year: year.into(),
            month: month.into(),
            day: day.into(),
        }
    }

    /// The day that is this many days after 1970-01-01, for every 64-bit number, unlike the ranges
    /// of the crates:
    /// <https://howardhinnant.github.io/date_algorithms.html#civil_from_days>.
    const fn of_unix_day(days: i64) -> Self {
        let days = days + 719_468;
        let era = days.div_euclid(146_097);
        let day = days.rem_euclid(146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        // Counted from March, so that the day of the leap year is its last.
        let month = (5 * day + 2) / 153;
        let january = month >= 10;
        Self {
            year: year + era * 400 + if january { 1 } else { 0 },
            month: (if january { month - 9 } else { month + 3 }).unsigned_abs(),
            day: (day - (153 * month + 2) / 5 + 1).unsigned_abs(),
        }
    }

    fn write(&self, text: &mut Digits) {
        match self.year {
            0..=9999 => {}
            ..0 => text.push(b'-'),
            _ => text.push(b'+'),
        }
        text.number(self.year.unsigned_abs(), 4);
        text.push(b'-');
        text.number(self.month, 2);
        text.push(b'-');
        text.number(self.day, 2);
    }
}

impl Clock {
    fn new(
        hour: impl Into<u64>,
        minute: impl Into<u64>,
        second: impl Into<u64>,
        nanosecond: impl Into<u64>,
    ) -> Self {
        Self {
            hour: hour.into(),
            minute: minute.into(),
            second: second.into(),
            nanosecond: nanosecond.into(),
        }
    }

    const fn of_second(second: i64, nanosecond: u64) -> Self {
        let second = second.unsigned_abs();
        Self {
            hour: second / 3_600,
            minute: second / 60 % 60,
            second: second % 60,
            nanosecond,
        }
    }

    fn write(&self, text: &mut Digits) {
        // Each value has a text of its own, so a leap second must differ from the seconds beside
        // it.
        let (hour, second, nanosecond) = match self.nanosecond.checked_sub(NANOSECONDS) {
            None => (self.hour, self.second, self.nanosecond),
            Some(rest) if self.second == 59 => (self.hour, 60, rest),
            // An offset of odd seconds moved it away from the end of the minute.
            Some(rest) => (self.hour + 24, self.second, rest),
        };
        text.number(hour, 2);
        text.number(self.minute, 2);
        text.number(second, 2);
        if nanosecond > 0 {
            let (mut fraction, mut width) = (nanosecond, 9);
            while fraction % 10 == 0 {
                fraction /= 10;
                width -= 1;
            }
            text.push(b'.');
            text.number(fraction, width);
        }
    }
}

impl Instant {
    fn new(second: i64, nanosecond: impl Into<u64>) -> Self {
        let nanosecond = nanosecond.into();
        Self { second, nanosecond }
    }

    fn write(&self, text: &mut Digits) {
        CivilDay::of_unix_day(self.second.div_euclid(SECONDS_OF_DAY)).write(text);
        text.push(b'T');
        Clock::of_second(self.second.rem_euclid(SECONDS_OF_DAY), self.nanosecond).write(text);
        text.push(b'Z');
    }
}

/// `KeyPart` by what a value is read as: a `CivilDay`, a `Clock`, both, or an `Instant`.
macro_rules! key_part {
    ($([$($generics:tt)*] $type:ty: $shape:ident = |$value:ident| $first:expr $(, $second:expr)?;)*) => { $(
        impl<$($generics)*> KeyPart for $type {
            type Shape = shape::$shape;

            fn render(&self, text: &mut KeyText<'_>) {
                let $value = self;
                let mut digits = Digits::new();
                $first.write(&mut digits);
                $(
                    digits.push(b'T');
                    $second.write(&mut digits);
                )?
                text.push_digits(&digits);
            }
        }
    )* };
}

#[cfg(feature = "chrono")]
mod of_chrono {
    use super::{CivilDay, Clock, Digits, Instant, KeyPart, KeyText, shape};
    use chrono::{Datelike, NaiveDate, NaiveTime, Timelike};

    key_part! {
        [] NaiveDate: Date = |date| day(date);
        [] NaiveTime: Time = |time| clock(time);
        [] chrono::NaiveDateTime: DateTime = |value| day(value), clock(value);
        [Tz: chrono::TimeZone] chrono::DateTime<Tz>: Timestamp = |value|
            Instant::new(value.timestamp(), value.timestamp_subsec_nanos());
    }

    fn day(date: &impl Datelike) -> CivilDay {
        CivilDay::new(date.year(), date.month(), date.day())
    }

    fn clock(time: &impl Timelike) -> Clock {
        Clock::new(time.hour(), time.minute(), time.second(), time.nanosecond())
    }
}

#[cfg(feature = "time")]
mod of_time {
    use super::{CivilDay, Clock, Digits, Instant, KeyPart, KeyText, shape};
    use time::{Date, OffsetDateTime, PrimitiveDateTime, Time, UtcDateTime};

    key_part! {
        [] Date: Date = |date| day(*date);
        [] Time: Time = |time| clock(*time);
        [] PrimitiveDateTime: DateTime = |value| day(value.date()), clock(value.time());
        // Not by `to_offset`, which panics if the UTC day is outside of the crate's range.
        [] OffsetDateTime: Timestamp = |value|
            Instant::new(value.unix_timestamp(), value.nanosecond());
        [] UtcDateTime: Timestamp = |value|
            Instant::new(value.unix_timestamp(), value.nanosecond());
    }

    fn day(date: Date) -> CivilDay {
        CivilDay::new(date.year(), u8::from(date.month()), date.day())
    }

    fn clock(time: Time) -> Clock {
        Clock::new(time.hour(), time.minute(), time.second(), time.nanosecond())
    }
}

#[cfg(feature = "jiff")]
mod of_jiff {
    use super::{CivilDay, Clock, Digits, Instant, KeyPart, KeyText, NANOSECONDS, shape};
    use jiff::civil::{Date, DateTime, Time};
    use jiff::{Timestamp, Zoned};

    key_part! {
        [] Date: Date = |date| day(*date);
        [] Time: Time = |time| clock(*time);
        [] DateTime: DateTime = |value| day(value.date()), clock(value.time());
        [] Timestamp: Timestamp = |value| instant(*value);
        [] Zoned: Timestamp = |value| instant(value.timestamp());
    }

    fn day(date: Date) -> CivilDay {
        let (month, day) = (date.month(), date.day());
        CivilDay::new(date.year(), month.unsigned_abs(), day.unsigned_abs())
    }

    fn clock(time: Time) -> Clock {
        Clock::new(
            time.hour().unsigned_abs(),
            time.minute().unsigned_abs(),
            time.second().unsigned_abs(),
            time.subsec_nanosecond().unsigned_abs(),
        )
    }

    /// Before 1970 jiff counts both numbers down from zero.
    fn instant(timestamp: Timestamp) -> Instant {
        let second = timestamp.as_second();
        let nanosecond = timestamp.subsec_nanosecond();
        let below = u64::from(nanosecond.unsigned_abs());
        if nanosecond < 0 {
            Instant::new(second - 1, NANOSECONDS - below)
        } else {
            Instant::new(second, below)
        }
    }
}
