//! Finds the text of a number by trying values in patterns.

use std::fmt::Write;
use std::fs;
use std::io::Read;
use std::path::Path;

use advisory_pattern::{Part, Pattern, Placeholder, Shape, parse, permit_key};
use advisory_runtime::Key;
use serde_json::json;

use super::range::{self, MOST, too_many};
use super::value::rendered;
use super::{Arguments, Number, derived, halves_of};
use crate::database::{self, DatabaseUrl};
use crate::failure::{Failure, Result, bail};
use crate::json::VERSION;
use crate::screen::{self, BOLD, DIM, KEY};
use crate::text::{hex, joined, one_line};

const SHOWN: usize = 10;
/// The least number of digits of a lease's hash.
const SHORTEST_HASH: usize = 8;
/// A number with at least this many digits can be the start of a hash too. `lease list` shows this
/// many.
const SHOWN_HASH: usize = 12;

const QUERIES: [&str; 4] = ["select", "with", "values", "table"];

enum Wanted {
    Key(Key),
    /// The start of a lease's hash, in hexadecimal digits.
    Hash(String),
}

impl Wanted {
    /// The meanings of a text, at least one.
    fn read(text: &str) -> Result<Vec<Self>> {
        if let Ok(number) = text.parse::<i64>() {
            let number_itself = Self::Key(number.into());
            let is_hash = text.len() >= SHOWN_HASH && text.chars().all(|c| c.is_ascii_digit());
            let hash = is_hash.then(|| Self::Hash(text.to_owned()));
            return Ok([number_itself].into_iter().chain(hash).collect());
        }
        let pair = text.trim().strip_prefix('(');
        let pair = pair.and_then(|rest| rest.strip_suffix(')'));
        if let Some((first, second)) = pair.and_then(|pair| pair.split_once(','))
            && let (Ok(first), Ok(second)) = (first.trim().parse(), second.trim().parse())
        {
            return Ok(vec![Self::Key(Key::IntInt(first, second))]);
        }
        let digits = text.trim_start_matches("\\x").trim_end_matches('…');
        let digits = digits.to_lowercase();
        if digits.len() >= SHORTEST_HASH && digits.chars().all(|digit| digit.is_ascii_hexdigit()) {
            return Ok(vec![Self::Hash(digits)]);
        }
        bail!(
            "`{}` is not a key: write the number, `(7, 42)`, or the start of a lease's hash",
            one_line(text)
        )
    }

    /// The derivation and the permit by which the text gets the number.
    fn origin(&self, first: Option<i32>, text: &str, permits: u32) -> Option<Origin> {
        let number = match self {
            Self::Hash(digits) => {
                let (derivation, permit) = ("lease", 1);
                let is_it =
                    first.is_none() && hex(&advisory_pattern::sha256(text)).starts_with(digits);
                return is_it.then_some(Origin { derivation, permit });
            }
            Self::Key(wanted) => *wanted,
        };
        let permit_of = |key: Key| match number {
            _ if key == number => Some(1),
            // Other permits are numbers, even those of a pair.
            Key::IntInt(..) => None,
            Key::BigInt(number) => {
                let key = key.to_string();
                (2..=permits).find(|permit| permit_key(&key, *permit) == number)
            }
        };
        derived(first, text).find_map(|Number { way, key }| {
            let (derivation, permit) = (way, permit_of(key)?);
            Some(Origin { derivation, permit })
        })
    }
}

struct Origin {
    derivation: &'static str,
    /// The first permit is the lock's own number.
    permit: u32,
}

impl Arguments {
    /// Runs `cargo advisory key --find`; `false` if no text has the number.
    pub(super) fn find(&self, number: &str) -> Result<bool> {
        let wanted = Wanted::read(number)?;
        let (mut found, mut tried, mut has_steps) = (Vec::new(), 0, false);
        for written in &self.pattern {
            let (first, text) = halves_of(written);
            let pattern = parse(text).map_err(|errors| {
                let why = errors.first().map(ToString::to_string).unwrap_or_default();
                Failure::Input(format!("the pattern `{}`: {why}", one_line(written)))
            })?;
            let columns = columns(&pattern, &self.values, &self.database_url)?;
            has_steps |= columns.iter().any(|column| column.has_steps);
            tried += search(&pattern, &columns, self.permits, |text| {
                let origin = |one: &Wanted| one.origin(first, text, self.permits);
                if let Some(origin) = wanted.iter().find_map(origin) {
                    let text = match first {
                        Some(first) => advisory_pattern::pair_text(first, text),
                        None => text.to_owned(),
                    };
                    found.push((text, origin));
                }
            })?;
        }
        let text = |_| answer(number, &found, tried, has_steps);
        self.answer.write(text, || as_json(number, &found, tried))?;
        Ok(!found.is_empty())
    }
}

/// The texts with the number, and the derivation of each.
fn answer(number: &str, found: &[(String, Origin)], tried: usize, has_steps: bool) -> String {
    let number = one_line(number);
    if found.is_empty() {
        let between = if has_steps {
            "; times between the steps of a range were not tried: those with a fraction of a second are in a file or a query"
        } else {
            ""
        };
        return format!(
            "none of {tried} texts has the number {number}: give other patterns or more values{between}\n"
        );
    }
    let mut answer = String::new();
    for (text, origin) in found.iter().take(SHOWN) {
        let text = one_line(text);
        let way = match origin.permit {
            1 => origin.derivation.to_owned(),
            permit => format!("{}, permit {permit}", origin.derivation),
        };
        let _ = writeln!(
            answer,
            "{BOLD}{number}{BOLD:#} is {KEY}{text}{KEY:#}  {DIM}{way}{DIM:#}"
        );
    }
    if found.len() > SHOWN {
        let _ = writeln!(answer, "and {} more", found.len() - SHOWN);
    }
    answer
}

fn as_json(number: &str, found: &[(String, Origin)], tried: usize) -> String {
    let found = found.iter().map(
        |(key, origin)| json!({ "key": key, "derivation": origin.derivation, "permit": origin.permit }),
    );
    let found: Vec<_> = found.collect();
    let all = json!({ "version": VERSION, "wanted": number, "tried": tried, "found": found });
    crate::json::pretty(&all)
}

/// A name in a pattern, with the texts of its placeholders for each value.
struct Column {
    /// The indexes of its placeholders in the pattern.
    places: Vec<usize>,
    /// One text for each of these placeholders: each can render the value differently.
    texts: Vec<Vec<String>>,
    /// True if the values are a range of times, which has none between two steps.
    has_steps: bool,
}

/// The names of the pattern, each with its values as they are rendered.
fn columns(
    pattern: &Pattern,
    sources: &[String],
    database_url: &DatabaseUrl,
) -> Result<Vec<Column>> {
    let all: Vec<&Placeholder> = pattern.placeholders().collect();
    let mut by_name: Vec<(String, Vec<usize>)> = Vec::new();
    for (place, placeholder) in all.iter().enumerate() {
        let name = placeholder.name();
        match by_name.iter_mut().find(|(other, _)| *other == name) {
            Some((_, places)) => places.push(place),
            None => by_name.push((name, vec![place])),
        }
    }
    let is_only = by_name.len() == 1;
    let mut columns = Vec::new();
    for (name, places) in by_name {
        let placeholders: Vec<&Placeholder> = places.iter().map(|place| all[*place]).collect();
        let one = placeholders[0];
        let last = one.path.last();
        let own = sources.iter().find_map(|source| {
            let (of, source) = source.split_once('=')?;
            (of == name || last.is_some_and(|last| of == last)).then_some(source)
        });
        let only = || match sources {
            [source] if is_only => Some(source.as_str()),
            _ => None,
        };
        let (values, has_steps) = match own.or_else(only) {
            Some(source) => values(source, one, database_url)?,
            None if one.shape == Some(Shape::Bool) => {
                (vec!["true".to_owned(), "false".to_owned()], false)
            }
            None => return Err(no_values(&name, one.shape)),
        };
        let (mut texts, mut skipped) = (Vec::new(), Vec::new());
        for value in &values {
            let ways = rendered(&placeholders, value);
            skipped.extend(ways.is_empty().then_some(value));
            texts.extend(ways);
        }
        if let Some(first) = skipped.first() {
            let (shape, first) = (one.shape.map_or("", Shape::name), one_line(first));
            let count = skipped.len();
            let why = format!(
                "{count} of the values for `<{name}>` are not of the shape {shape}, the first of them `{first}`"
            );
            if texts.is_empty() {
                bail!("{why}: give others");
            }
            screen::note(&format!("{why}: skipped\n"));
        }
        columns.push(Column {
            places,
            texts,
            has_steps,
        });
    }
    Ok(columns)
}

fn no_values(name: &str, shape: Option<Shape>) -> Failure {
    let shapes = match &shape {
        None => &[Shape::Int, Shape::Date, Shape::Time][..],
        Some(shape) => std::slice::from_ref(shape),
    };
    let ways = shapes.iter().filter_map(|shape| range::example(*shape));
    let range = joined(ways.map(|way| format!(", `{name}={way}`")), "");
    Failure::Input(format!(
        "no values for `<{name}>`: write `--values {name}=FILE`{range} or `{name}=SELECT …`"
    ))
}

/// The values of a source: a query, a range, or the lines of a file. Also `true` if they are a range
/// of times, which has none between two steps.
fn values(
    source: &str,
    placeholder: &Placeholder,
    database_url: &DatabaseUrl,
) -> Result<(Vec<String>, bool)> {
    let source = source.trim();
    let first = source.split_once(char::is_whitespace).map(|(word, _)| word);
    let is_query = |word: &str| QUERIES.iter().any(|start| word.eq_ignore_ascii_case(start));
    if first.is_some_and(is_query) {
        let read_only = format!("START TRANSACTION READ ONLY; {source}");
        let rows = database::query(&database_url.find()?, &read_only)?;
        let values = rows.iter().filter_map(|row| row.get(0).map(str::to_owned));
        return Ok((values.collect(), false));
    }
    if let Some((shape, values)) = range::read(source)? {
        range::check(shape, placeholder)?;
        return Ok((values, !matches!(shape, Shape::Int | Shape::Date)));
    }
    let text = if source == "-" {
        let mut text = String::new();
        let read = std::io::stdin().read_to_string(&mut text);
        read.map(|_| text)
    } else {
        fs::read_to_string(source)
    };
    let text = text.map_err(|error| Failure::unread(Path::new(source), error))?;
    Ok((text.lines().map(str::to_owned).collect(), false))
}

/// Renders the pattern with each combination of values. Returns the number of combinations.
fn search(
    pattern: &Pattern,
    columns: &[Column],
    permits: u32,
    mut take: impl FnMut(&str),
) -> Result<usize> {
    let mut sizes = columns.iter().map(|column| column.texts.len());
    let count = sizes.try_fold(1_usize, usize::checked_mul);
    let most = MOST / usize::try_from(permits).unwrap_or(MOST).max(1);
    let count = count.filter(|count| *count <= most).ok_or_else(too_many)?;
    let mut values = vec![""; pattern.placeholders().count()];
    let mut text = String::new();
    for nth in 0..count {
        let mut rest = nth;
        for Column { places, texts, .. } in columns {
            let chosen = &texts[rest % texts.len()];
            rest /= texts.len();
            for (place, value) in places.iter().zip(chosen) {
                values[*place] = value;
            }
        }
        text.clear();
        let mut values = values.iter();
        for part in &pattern.parts {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Placeholder(_) => text.extend(values.next().copied()),
            }
        }
        take(&text);
    }
    Ok(count)
}
