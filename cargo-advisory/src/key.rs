//! The numbers that a rendered key can become, the tool that uses a number, and the query that
//! shows who holds it.
//!
//! `find` goes from a number to the text. It tries the values of a `range`, a file or a query, each
//! as a key renders this `value`.

mod find;
mod range;
mod value;

use std::fmt::Write;

use advisory_pattern::{Derivation, MOST_PERMITS, split_pair_text};
use advisory_runtime::Key;
use advisory_runtime::well_known::{self, Tool};
use clap::{Args, value_parser};
use serde_json::{Map, Value, json};

use crate::cli::Answer;
use crate::database::DatabaseUrl;
use crate::failure::Result;
use crate::guard::halves;
use crate::screen::{BOLD, DIM, KEY};
use crate::text::{hex, joined};

/// Prints the numbers of a key and the SQL that finds its holder; finds the key of a number
///
/// For a number it also names the tool that uses it. With `--find` it goes the other way: it
/// renders the patterns with all combinations of the values, and prints those that have the number.
/// Exits with 1 if none has it.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The key as rendered, such as `booking:42` or `(7,"booking:42")`, or a number
    #[arg(
        value_name = "KEY",
        required_unless_present = "find",
        allow_hyphen_values = true
    )]
    text: Option<String>,
    /// The database's name, from which some tools compute their key
    #[arg(long, value_name = "NAME")]
    database: Option<String>,
    /// Finds the text with this number, pair `(7, 42)`, or start of a lease's hash
    #[arg(
        long,
        value_name = "NUMBER",
        allow_hyphen_values = true,
        conflicts_with = "text",
        requires = "pattern"
    )]
    find: Option<String>,
    /// A key pattern, such as `<tenant_id>:<date>`, as `locks` shows it; repeat it for several
    #[arg(long, value_name = "PATTERN", requires = "find")]
    pattern: Vec<String>,
    /// The values of a placeholder: a file with one a line (`-` for the standard input), `1..1000`,
    /// `2026-11-01..2026-11-30`, times such as `08:00..18:00/15min` or
    /// `2026-11-22T08:00Z..2026-11-22T18:00Z`, or a query, `SELECT id FROM tenant`
    #[arg(long, value_name = "[NAME=]SOURCE", requires = "find")]
    values: Vec<String>,
    /// The number of permits of the lock. Each permit after the first has its own number
    #[arg(
        long,
        value_name = "NUMBER",
        requires = "find",
        default_value_t = 1,
        value_parser = value_parser!(u32).range(1..=i64::from(MOST_PERMITS))
    )]
    permits: u32,
    #[command(flatten)]
    database_url: DatabaseUrl,
    #[command(flatten)]
    answer: Answer,
}

impl Arguments {
    /// Returns `false` if `--find` found no text.
    pub(crate) fn run(&self) -> Result<bool> {
        if let Some(number) = &self.find {
            return self.find(number);
        }
        let text = self.text.as_deref().unwrap_or_default();
        let plain: Option<i64> = text.parse().ok();
        let tools = plain.map(|number| well_known::tools(number.into(), self.database.as_deref()));
        let tools = tools.unwrap_or_default();
        let table = |_| table(text, plain, &tools);
        self.answer.write(table, || as_json(text, plain, &tools))?;
        Ok(true)
    }
}

struct Number {
    /// The derivation's name, or `number` if the key itself is one.
    way: &'static str,
    key: Key,
}

fn numbers(text: &str, plain: Option<i64>) -> Vec<Number> {
    let plain = plain.map(|number| Number {
        way: "number",
        key: number.into(),
    });
    let (first, text) = halves_of(text);
    plain.into_iter().chain(derived(first, text)).collect()
}

/// The first half of a pair, if the text is one, and the text from which the rest is derived.
fn halves_of(text: &str) -> (Option<i32>, &str) {
    match split_pair_text(text) {
        Some((first, second)) => (Some(first), second),
        None => (None, text),
    }
}

/// The number that each derivation gives. One with 64 bits has no half of a pair.
fn derived(first: Option<i32>, text: &str) -> impl Iterator<Item = Number> {
    Derivation::ALL.into_iter().filter_map(move |derivation| {
        let key = match first {
            None => derivation.key(text).into(),
            Some(_) if derivation.bits() != 32 => return None,
            Some(first) => Key::IntInt(first, derivation.half(text)),
        };
        let way = derivation.name();
        Some(Number { way, key })
    })
}

fn as_json(text: &str, plain: Option<i64>, tools: &[Tool]) -> String {
    let mut all = Map::new();
    all.insert("version".to_owned(), crate::json::VERSION.into());
    for known in numbers(text, plain) {
        let number = match known.key {
            Key::BigInt(number) => number.into(),
            Key::IntInt(first, second) => json!([first, second]),
        };
        all.insert(known.way.to_owned(), number);
    }
    all.insert("lease".to_owned(), lease_hash(text).into());
    if plain.is_some() {
        let names: Vec<&str> = tools.iter().map(|tool| tool.name).collect();
        all.insert("tools".to_owned(), names.into());
    }
    crate::json::pretty(&Value::Object(all))
}

fn table(text: &str, plain: Option<i64>, tools: &[Tool]) -> String {
    let numbers = numbers(text, plain);
    let mut table = format!(
        "{BOLD}DERIVATION        {:>20}  {:>10}  {:>10}{BOLD:#}\n",
        "NUMBER", "CLASSID", "OBJID"
    );
    for Number { way, key } in &numbers {
        let ((high, low, _), number) = (halves(*key), key.to_string());
        let _ = writeln!(
            table,
            "{way:16}  {KEY}{number:>20}{KEY:#}  {high:>10}  {low:>10}"
        );
    }
    let number = plain.unwrap_or_default();
    for tool in tools {
        let (is, others) = if tool.is_distinctive {
            ("is", "")
        } else {
            ("can be", ", or of another program")
        };
        let name = tool.name;
        let _ = writeln!(
            table,
            "\n{number} {is} the lock of {BOLD}{name}{BOLD:#}{others}."
        );
    }
    if let Some(number) = plain {
        let _ = writeln!(
            table,
            "\n{DIM}-- Which key has this number (a program shows it after `monitor::show(Shown::Key)`):{DIM:#}\n\
             cargo advisory key --find={number} --pattern 'booking:<id>' --values id=1..100000"
        );
    }
    let _ = write!(
        table,
        "\n{DIM}-- Who holds it, and who waits, whichever derivation they use:{DIM:#}\n{}",
        holder_query(&numbers)
    );
    let hash = lease_hash(text);
    let _ = write!(
        table,
        "\n{DIM}-- As a lease, its row:{DIM:#}\n\
         SELECT token, pattern, holder, is_kept AS is_done, acquired_at, expires_at > pg_catalog.clock_timestamp() AS is_held, expires_at\n\
         FROM public.advisory_lease WHERE key_hash = '\\x{hash}';\n"
    );
    table
}

/// The hash that identifies its row in the lease table.
fn lease_hash(text: &str) -> String {
    hex(&advisory_pattern::sha256(text))
}

fn holder_query(numbers: &[Number]) -> String {
    let keys = numbers.iter().map(|Number { way, key }| {
        let (high, low, _) = halves(*key);
        format!("('{way}', {high}::oid, {low}::oid)")
    });
    // All numbers of a text are in one key space.
    let space = numbers.first().map_or(1, |number| halves(number.key).2);
    format!(
        "SELECT k.derivation, l.pid, l.mode, l.granted, a.application_name, a.state, a.query\n\
         FROM (VALUES\n  {}\n) AS k (derivation, classid, objid)\n\
         JOIN pg_catalog.pg_locks AS l ON l.classid = k.classid AND l.objid = k.objid\n\
         LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid\n\
         WHERE l.locktype = 'advisory' AND l.objsubid = {space}\n  \
         AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())\n\
         ORDER BY l.granted DESC, l.pid;\n",
        joined(keys, ",\n  ")
    )
}

#[cfg(test)]
mod tests {
    use advisory_pattern::{
        LockedKey, Pattern, Shape, ambiguity, decode_key, encode_key, overlap, parse, witness,
    };
    use advisory_tests::fuzz;

    /// A printed pattern is read as it was, and its canonical form has the same meaning.
    fn is_kept(pattern: &Pattern) {
        assert_eq!(parse(&pattern.to_string()).as_ref(), Ok(pattern));
        let shaped = pattern.shaped(|_| Shape::Text);
        assert_eq!(parse(&shaped.to_string()).as_ref(), Ok(&shaped));
        let key = LockedKey::Pattern(shaped.clone());
        assert_eq!(decode_key(&encode_key(Some(&key))), Ok(Some(key)));
        let language = pattern.language(|_| Shape::Text);
        assert_eq!(shaped.language(|_| Shape::Int), language);
        assert!(overlap(&language, &language), "{pattern}");
        assert!(witness(&language, &language).is_some(), "{pattern}");
        if let Some(found) = ambiguity(pattern, &language) {
            assert_ne!(found.first, found.second, "{pattern}");
        }
    }

    #[test]
    fn any_pattern_is_read() {
        fuzz("tests/corpus/pattern", |input| {
            let Ok(text) = std::str::from_utf8(input) else {
                return;
            };
            match parse(text) {
                Ok(pattern) => is_kept(&pattern),
                Err(errors) => {
                    assert!(!errors.is_empty());
                    for error in errors {
                        assert!(text.get(error.range()).is_some(), "{error:?}");
                        assert!(!error.to_string().contains(char::is_control), "{error}");
                    }
                }
            }
        });
    }
}
