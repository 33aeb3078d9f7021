//! Days, times and instants keep their text, the same in every crate and time zone.

use crate::{rendered, renders};
use chrono::{DateTime, FixedOffset, NaiveDate, NaiveDateTime, NaiveTime, TimeZone, Utc};
use jiff::tz::{Offset, TimeZone as Zone};
use jiff::{Timestamp, Zoned, civil};
use proptest::prelude::*;
use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time, UtcDateTime, UtcOffset};

fn chrono_day(year: i32, month: u32, day: u32) -> NaiveDate {
    NaiveDate::from_ymd_opt(year, month, day).expect("a day")
}

fn time_day(year: i32, month: Month, day: u8) -> Date {
    Date::from_calendar_date(year, month, day).expect("a day")
}

#[test]
fn days_are_year_month_day() {
    let text = "x:2025-01-15";
    let (chrono, time) = (chrono_day(2025, 1, 15), time_day(2025, Month::January, 15));
    renders!("x:<v: date>", NaiveDate: chrono => text);
    renders!("x:<v: date>", Date: time => text);
    let jiff = civil::date(2025, 1, 15);
    renders!("x:<v: date>", civil::Date: jiff => text);
}

#[test]
fn years_of_other_than_four_digits_have_a_sign() {
    let cases = [
        (0, "0000-12-01"),
        (9999, "9999-12-01"),
        (-1, "-0001-12-01"),
        (-9999, "-9999-12-01"),
    ];
    for (year, text) in cases {
        let (chrono, time) = (chrono_day(year, 12, 1), time_day(year, Month::December, 1));
        renders!("<v: date>", NaiveDate: chrono => text);
        renders!("<v: date>", Date: time => text);
        let jiff = civil::date(year.try_into().expect("in range"), 12, 1);
        renders!("<v: date>", civil::Date: jiff => text);
    }
    let late = chrono_day(10_000, 1, 1);
    renders!("<v: date>", NaiveDate: late => "+10000-01-01");
    renders!("<v: date>", NaiveDate: NaiveDate::MAX => "+262142-12-31");
    renders!("<v: date>", NaiveDate: NaiveDate::MIN => "-262143-01-01");
}

#[test]
fn times_have_no_colons_and_no_trailing_zeros() {
    let cases = [
        ((0, 0, 0, 0), "000000"),
        ((9, 30, 0, 0), "093000"),
        ((9, 30, 0, 500_000_000), "093000.5"),
        ((9, 30, 0, 10), "093000.00000001"),
        ((23, 59, 59, 999_999_999), "235959.999999999"),
        ((10, 20, 30, 102_000_000), "102030.102"),
    ];
    for ((hour, minute, second, nanosecond), text) in cases {
        let chrono =
            NaiveTime::from_hms_nano_opt(hour.into(), minute.into(), second.into(), nanosecond);
        let chrono = chrono.expect("a time");
        renders!("<v: time>", NaiveTime: chrono => text);
        let time = Time::from_hms_nano(hour, minute, second, nanosecond).expect("a time");
        renders!("<v: time>", Time: time => text);
        let [hour, minute, second] = [hour, minute, second].map(u8::cast_signed);
        let jiff = civil::time(hour, minute, second, nanosecond.cast_signed());
        renders!("<v: time>", civil::Time: jiff => text);
    }
}

#[test]
fn local_date_times_are_joined_by_a_t() {
    let text = "x:2025-01-15T093000.25";
    let chrono = chrono_day(2025, 1, 15).and_hms_milli_opt(9, 30, 0, 250);
    let chrono = chrono.expect("a time");
    renders!("x:<v: datetime>", NaiveDateTime: chrono => text);
    let time = time_day(2025, Month::January, 15).with_hms_milli(9, 30, 0, 250);
    let time = time.expect("a time");
    renders!("x:<v: datetime>", PrimitiveDateTime: time => text);
    let jiff = civil::date(2025, 1, 15).at(9, 30, 0, 250_000_000);
    renders!("x:<v: datetime>", civil::DateTime: jiff => text);
    // `DateTime` is an instant in chrono: without a written shape it is any text.
    renders!("x:<v>", civil::DateTime: jiff => text);
}

/// The texts of one instant, in every crate, at UTC and at the offset where the crate has offsets.
fn instants(second: i64, nanosecond: u32, offset: i32) -> Vec<String> {
    let utc = DateTime::from_timestamp(second, nanosecond).expect("in range");
    let zone = FixedOffset::east_opt(offset).expect("in range");
    let east = zone.from_utc_datetime(&utc.naive_utc());

    let since = i128::from(second) * 1_000_000_000 + i128::from(nanosecond);
    let of_time = OffsetDateTime::from_unix_timestamp_nanos(since).expect("in range");
    let time_zone = UtcOffset::from_whole_seconds(offset).expect("in range");
    let time_utc = UtcDateTime::from_unix_timestamp_nanos(since).expect("in range");

    let of_jiff = Timestamp::from_nanosecond(since).expect("in range");
    let jiff_zone = Zone::fixed(Offset::from_seconds(offset).expect("in range"));
    vec![
        rendered!("x:<v: timestamp>", DateTime<Utc>: utc),
        rendered!("x:<v: timestamp>", DateTime<FixedOffset>: east),
        rendered!("x:<v: timestamp>", OffsetDateTime: of_time),
        rendered!("x:<v: timestamp>", OffsetDateTime: of_time.to_offset(time_zone)),
        rendered!("x:<v: timestamp>", UtcDateTime: time_utc),
        rendered!("x:<v: timestamp>", Timestamp: of_jiff),
        rendered!("x:<v: timestamp>", Zoned: of_jiff.to_zoned(jiff_zone)),
    ]
}

#[test]
fn instants_are_in_utc() {
    let cases = [
        (1_736_933_400, 0, 3_600, "x:2025-01-15T093000Z"),
        (
            1_736_933_400,
            250_000_000,
            -18_000,
            "x:2025-01-15T093000.25Z",
        ),
        (0, 0, 0, "x:1970-01-01T000000Z"),
        (-1, 999_999_999, 1, "x:1969-12-31T235959.999999999Z"),
        (951_782_400, 0, 43_200, "x:2000-02-29T000000Z"),
        (-62_167_219_201, 0, -1, "x:-0001-12-31T235959Z"),
    ];
    for (second, nanosecond, offset, text) in cases {
        for rendered in instants(second, nanosecond, offset) {
            assert_eq!(rendered, text);
        }
    }
}

#[test]
fn instants_whose_day_in_utc_is_out_of_range_have_a_text() {
    let last = PrimitiveDateTime::MAX
        .replace_nanosecond(0)
        .expect("a time");
    let west = last.assume_offset(UtcOffset::from_hms(-12, 0, 0).expect("in range"));
    renders!("<v: timestamp>", OffsetDateTime: west => "+10000-01-01T115959Z");
}

#[test]
fn leap_seconds_are_not_a_separate_second() {
    let time = |nanosecond| NaiveTime::from_hms_nano_opt(23, 59, 59, nanosecond).expect("a time");
    let leap = time(1_500_000_000);
    renders!("<v: time>", NaiveTime: leap => "235960.5");
    renders!("<v: time>", NaiveTime: time(1_000_000_000) => "235960");
    renders!("<v: time>", NaiveTime: time(500_000_000) => "235959.5");

    let utc = chrono_day(2016, 12, 31).and_time(leap).and_utc();
    let text = "2016-12-31T235960.5Z";
    renders!("<v: timestamp>", DateTime<Utc>: utc => text);
    // chrono keeps it a leap second at an offset that moves it off the minute's end.
    let odd = FixedOffset::east_opt(29).expect("in range");
    let local = odd.from_utc_datetime(&utc.naive_utc());
    renders!("<v: timestamp>", DateTime<FixedOffset>: local => text);
    let local = local.naive_local();
    renders!("<v: datetime>", NaiveDateTime: local => "2017-01-01T240028.5");
}

proptest! {
    #[test]
    fn one_instant_has_one_text(
        second in -377_705_023_201_i64..=253_402_207_200,
        nanosecond in prop_oneof![Just(0), 0..1_000_000_000_u32],
        offset in -86_399..86_400,
    ) {
        // A day from either end, so that every offset is in every crate's range.
        let second = second.clamp(-377_705_023_201 + 93_600, 253_402_207_200 - 93_600);
        let mut texts = instants(second, nanosecond, offset);
        texts.dedup();
        prop_assert_eq!(texts.len(), 1, "{:?}", texts);
    }

    #[test]
    fn an_instants_text_is_that_of_its_date_and_time_in_utc(second in -8_334_601_228_800_i64..=8_210_266_876_799) {
        let utc = DateTime::from_timestamp(second, 0).expect("in range");
        let local = rendered!("<v: datetime>", NaiveDateTime: utc.naive_utc());
        prop_assert_eq!(rendered!("<v: timestamp>", DateTime<Utc>: utc), local + "Z");
    }
}
