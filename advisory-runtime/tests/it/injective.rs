//! Every list of values has its own key, and every rendered value is in the language of its shape.
//!
//! Random patterns that the macro would accept, and values from small pools around what could go wrong: `%`, `:`, `-`, spaces,
//! nothing at all, digits next to digits. Small pools, so that two lists often render nearly the same key.

use crate::matcher::reads;
use advisory_pattern::{Filter, Part, Pattern, Placeholder, Shape, ambiguity, parse};
use advisory_runtime::__private::{Displayed, KeyWriter};
use advisory_runtime::{KeyPart, shape};
use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use proptest::prelude::*;
use std::collections::HashMap;
use uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Value {
    Int(i64),
    Uint(u64),
    Uuid(Uuid),
    Date(NaiveDate),
    Time(NaiveTime),
    DateTime(NaiveDateTime),
    Timestamp(DateTime<Utc>),
    Bool(bool),
    Char(char),
    Text(String),
}

/// A value of the type that stands for the shape.
fn value(shape: Shape) -> BoxedStrategy<Value> {
    let digits = || {
        prop_oneof![
            0..123_u64,
            prop::sample::select(vec![u64::MAX, 1 << 63, 10, 100])
        ]
    };
    match shape {
        Shape::Int => prop_oneof![
            (-123..123_i64).prop_map(Value::Int),
            Just(Value::Int(i64::MIN)),
            digits().prop_map(Value::Uint),
        ]
        .boxed(),
        Shape::Uint => digits().prop_map(Value::Uint).boxed(),
        Shape::Uuid => (0..40_u32)
            .prop_map(|bit| Value::Uuid(Uuid::from_u128((1 << bit) - 1)))
            .boxed(),
        Shape::Date => date().prop_map(Value::Date).boxed(),
        Shape::Time => time().prop_map(Value::Time).boxed(),
        Shape::DateTime => (date(), time())
            .prop_map(|(date, time)| Value::DateTime(date.and_time(time)))
            .boxed(),
        Shape::Timestamp => (date(), time())
            .prop_map(|(date, time)| Value::Timestamp(date.and_time(time).and_utc()))
            .boxed(),
        Shape::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        Shape::Char => prop::sample::select(vec!['%', ':', '-', '2', '5', 'A', 'é', ' '])
            .prop_map(Value::Char)
            .boxed(),
        _ => text().prop_map(Value::Text).boxed(),
    }
}

fn text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "%", ":", "%25", "%3A", "-", " ", "1", "2", "a", "A", "é", "T", "Z", "true",
    ]);
    prop_oneof![
        4 => prop::collection::vec(piece, 0..4).prop_map(|pieces| pieces.concat()),
        1 => any::<String>(),
    ]
}

fn date() -> impl Strategy<Value = NaiveDate> {
    let year = prop::sample::select(vec![-262_143, -9999, -1, 0, 1, 2025, 9999, 10_000, 262_142]);
    let month = prop::sample::select(vec![1, 12]);
    (year, month, 1..=2_u32).prop_filter_map("a day", |(year, month, day)| {
        NaiveDate::from_ymd_opt(year, month, day)
    })
}

fn time() -> impl Strategy<Value = NaiveTime> {
    let nanosecond =
        prop::sample::select(vec![0, 1, 10, 500_000_000, 1_000_000_000, 1_500_000_000]);
    // An offset of odd seconds moves a leap second to any second.
    (
        0..3_u32,
        prop::sample::select(vec![0, 29, 59]),
        nanosecond,
        0..60_i32,
    )
        .prop_filter_map("a time", |(hour, second, nanosecond, offset)| {
            let time = NaiveTime::from_hms_nano_opt(hour, 59, second, nanosecond)?;
            let offset = chrono::FixedOffset::east_opt(offset)?;
            Some(time + offset)
        })
}

/// A pattern as a user may write it; most of them are ambiguous.
fn pattern() -> impl Strategy<Value = String> {
    let between = prop_oneof![
        6 => Just(":"),
        4 => prop::sample::select(vec!["", "-", "%", "%3A", "2", "T", "Z", ".", " ", "é", "::", "a:", ":-"]),
    ];
    let words = Shape::ALL.map(Shape::name).to_vec();
    let filters = vec![
        "",
        "",
        "",
        "|trim",
        "|lower",
        "|raw",
        "|display",
        "|trim|lower",
        "|lower|display|raw",
    ];
    let placeholder = (prop::sample::select(words), prop::sample::select(filters));
    let shaped = prop_oneof![
        3 => placeholder,
        3 => (Just("text"), Just("")),
        1 => (Just("int"), Just("")),
    ];
    prop::collection::vec((between, shaped), 1..5).prop_map(|parts| {
        let part = |(i, (between, (shape, filters)))| format!("{between}<p{i}: {shape}{filters}>");
        parts.into_iter().enumerate().map(part).collect()
    })
}

fn accepted() -> impl Strategy<Value = Pattern> {
    pattern().prop_filter_map("ambiguous, or a filter does not fit", |text| {
        let pattern = parse(&text).ok()?;
        let language = pattern.language(|_| Shape::Text);
        ambiguity(&pattern, &language).is_none().then_some(pattern)
    })
}

fn shape_of(placeholder: &Placeholder) -> Shape {
    placeholder.shape.unwrap_or(Shape::Text)
}

fn pattern_and_values() -> impl Strategy<Value = (Pattern, Vec<Vec<Value>>)> {
    accepted().prop_flat_map(|pattern| {
        let list: Vec<_> = pattern
            .placeholders()
            .map(|placeholder| value(shape_of(placeholder)))
            .collect();
        (Just(pattern), prop::collection::vec(list, 2..60))
    })
}

/// The list with two neighbouring texts cut at another place: what is between them in the pattern is in the texts too.
fn cut_elsewhere(pattern: &Pattern, list: &[Value]) -> Vec<Vec<Value>> {
    let mut lists = Vec::new();
    let mut nth = 0;
    for (i, part) in pattern.parts.iter().enumerate() {
        let Part::Placeholder(_) = part else {
            continue;
        };
        nth += 1;
        let between = match pattern.parts.get(i + 1) {
            Some(Part::Text(text)) => text.as_str(),
            _ => "",
        };
        let Some([Value::Text(left), Value::Text(right)]) = list.get(nth - 1..=nth) else {
            continue;
        };
        let whole = format!("{left}{between}{right}");
        for (cut, _) in whole.char_indices() {
            let Some(right) = whole[cut..].strip_prefix(between) else {
                continue;
            };
            let mut list = list.to_vec();
            list[nth - 1] = Value::Text(whole[..cut].to_owned());
            list[nth] = Value::Text(right.to_owned());
            lists.push(list);
        }
    }
    lists
}

/// Writes the value as the macro's code does.
fn write(key: &mut KeyWriter, value: &Value, placeholder: &Placeholder) {
    let filters: Vec<_> = placeholder
        .filters
        .iter()
        .copied()
        .filter(|filter| *filter != Filter::Display)
        .collect();
    match value {
        Value::Text(v) if placeholder.filters.contains(&Filter::Display) => {
            part::<shape::Text, _>(key, &Displayed(v), &filters);
        }
        Value::Int(v) => part::<shape::Int, _>(key, v, &filters),
        Value::Uint(v) => part::<shape::Uint, _>(key, v, &filters),
        Value::Uuid(v) => part::<shape::Uuid, _>(key, v, &filters),
        Value::Date(v) => part::<shape::Date, _>(key, v, &filters),
        Value::Time(v) => part::<shape::Time, _>(key, v, &filters),
        Value::DateTime(v) => part::<shape::DateTime, _>(key, v, &filters),
        Value::Timestamp(v) => part::<shape::Timestamp, _>(key, v, &filters),
        Value::Bool(v) => part::<shape::Bool, _>(key, v, &filters),
        Value::Char(v) => part::<shape::Char, _>(key, v, &filters),
        Value::Text(v) => part::<shape::Text, _>(key, v, &filters),
    }
}

fn part<S: shape::Shape, T: KeyPart<Shape: shape::Within<S>>>(
    key: &mut KeyWriter,
    value: &T,
    filters: &[Filter],
) {
    if filters.is_empty() {
        key.part::<S, T>(value);
    } else {
        key.filtered::<S, T>(value, filters);
    }
}

fn rendered(pattern: &Pattern, values: &[Value]) -> String {
    let mut key = KeyWriter::text_only();
    let mut values = values.iter();
    for part in &pattern.parts {
        match part {
            Part::Text(text) => key.text(text),
            Part::Placeholder(placeholder) => {
                write(&mut key, values.next().expect("a value each"), placeholder);
            }
        }
    }
    key.into_text()
}

/// Returns what the filters leave of the value: lists that are equal here are one lock by intent.
fn meant(placeholder: &Placeholder, value: &Value) -> Value {
    match value {
        Value::Text(text) => {
            let mut text = text.clone();
            if placeholder.filters.contains(&Filter::Trim) {
                text = text.trim_matches(' ').to_owned();
            }
            if placeholder.filters.contains(&Filter::Lower) {
                text = text.to_ascii_lowercase();
            }
            Value::Text(text)
        }
        // One number, whichever integer type it comes in.
        Value::Uint(uint) => i64::try_from(*uint).map_or(Value::Uint(*uint), Value::Int),
        value => value.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, max_global_rejects: 100_000, max_local_rejects: 1_000_000, ..ProptestConfig::default() })]

    #[test]
    fn two_lists_render_one_key_only_if_they_are_equal((pattern, lists) in pattern_and_values()) {
        let mut keys: HashMap<String, Vec<Value>> = HashMap::new();
        let cut: Vec<_> = lists.iter().flat_map(|list| cut_elsewhere(&pattern, list)).collect();
        for list in lists.iter().chain(&cut) {
            let meant: Vec<_> = pattern.placeholders().zip(list).map(|(placeholder, value)| meant(placeholder, value)).collect();
            let key = rendered(&pattern, list);
            if let Some(other) = keys.insert(key.clone(), meant.clone()) {
                prop_assert_eq!(other, meant, "{} renders {:?}", pattern, key);
            }
        }
    }

    #[test]
    fn rendered_values_are_in_the_language_of_their_shape((pattern, lists) in pattern_and_values()) {
        let language = pattern.language(|_| Shape::Text);
        for list in &lists {
            for (placeholder, value) in pattern.placeholders().zip(list) {
                let mut key = KeyWriter::text_only();
                write(&mut key, value, placeholder);
                let text = key.into_text();
                let shape = placeholder.rendered_shape(shape_of);
                prop_assert!(reads(shape.atoms(), &text), "{:?} is not {:?}", text, shape);
            }
            let key = rendered(&pattern, list);
            prop_assert!(reads(language.atoms(), &key), "{} renders {:?}", pattern, key);
        }
    }
}
