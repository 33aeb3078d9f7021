//! The trigger that refuses writes to a table by sessions that do not hold its lock.
//!
//! `key_sql` computes the lock's key from a row, with the pattern's rendering and derivation.
//! `trigger` writes the migration. A guard is built from a lock of an inventory or from a pattern,
//! and can be read from the source of a trigger's function.

mod key_sql;
mod trigger;

use std::collections::BTreeMap;
use std::fmt::Write;

use advisory_pattern::{Derivation, LockedKey, Placeholder, decode_key, encode_key};
use advisory_runtime::Key;

use crate::database::identifier;
use crate::failure::{Failure, Result, bail};
use crate::key_values;
use crate::text::{controls_terminal, in_backticks};

/// Starts the first line of a trigger's function, which has the lock's pattern and derivation.
const MARK: &str = "-- advisory guard 1: ";
const QUOTE: &str = "$advisory$";
const LOCK_MARK: &str = "-- lock: ";
/// Starts a line for each placeholder that has an expression of `--column`.
const COLUMN_MARK: &str = "-- column: ";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Guard {
    pub(crate) lock: String,
    pub(crate) key: LockedKey,
    pub(crate) derivation: Derivation,
    table: Table,
    columns: BTreeMap<String, String>,
}

/// A table, in a schema or on the `search_path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    schema: Option<String>,
    name: String,
}

impl Guard {
    /// Checks that SQL can compute the lock's key from a row.
    pub(crate) fn new(
        lock: String,
        key: LockedKey,
        derivation: Derivation,
        table: Table,
        columns: BTreeMap<String, String>,
    ) -> Result<Self> {
        for text in [&lock, &encode_key(Some(&key))] {
            if text.contains(controls_terminal) || text.contains(QUOTE) {
                bail!(
                    "a trigger cannot name this lock: its name or key contains a control character or `{QUOTE}`"
                );
            }
        }
        let guard = Self {
            lock,
            key,
            derivation,
            table,
            columns,
        };
        let text = guard.key.text();
        for (name, expression) in &guard.columns {
            let mut names = text.placeholders().map(Placeholder::name);
            if !names.any(|known| known == *name) {
                let names = match in_backticks(text.placeholders().map(Placeholder::name)) {
                    none if none.is_empty() => "none".to_owned(),
                    names => names,
                };
                bail!("`--column {name}=…`: the key has no such placeholder; it has {names}");
            }
            let is_unfit = |word: &str| expression.contains(word);
            if expression.trim().is_empty()
                || expression.contains(controls_terminal)
                || [QUOTE, "--", "/*", ";"].into_iter().any(is_unfit)
            {
                bail!(
                    "`--column {name}={expression}` is not an expression: write `--column {name}=starts_at::date`"
                );
            }
        }
        // The rest of a guard cannot be invalid.
        guard.key_sql()?;
        Ok(guard)
    }

    /// Returns `true` if all rows have one lock.
    fn is_fixed(&self) -> bool {
        let pattern = self.key.derived();
        pattern.is_none_or(|pattern| pattern.constant().is_some())
    }

    /// The SQL of a placeholder's value in the row `written`: its column, or the expression of
    /// `--column`.
    fn column(&self, placeholder: &Placeholder) -> String {
        if let Some(expression) = self.columns.get(&placeholder.name()) {
            return format!("({expression})");
        }
        format!("written.{}", identifier(column_name(placeholder)))
    }

    /// The columns, or expressions over the row, from which the key is computed, in the order of
    /// the placeholders.
    pub(crate) fn expressions(&self) -> Vec<String> {
        let Some(pattern) = self.key.derived() else {
            return Vec::new();
        };
        let mut all: Vec<String> = Vec::new();
        for placeholder in pattern.placeholders() {
            let expression = match self.columns.get(&placeholder.name()) {
                Some(expression) if expression.chars().all(|c| c.is_alphanumeric() || c == '_') => {
                    expression.clone()
                }
                Some(expression) => format!("({expression})"),
                None => identifier(column_name(placeholder)),
            };
            if !all.contains(&expression) {
                all.push(expression);
            }
        }
        all
    }

    /// The first lines of the function, from which `read` restores the guard.
    fn marks(&self) -> String {
        let mut marks = format!(
            "{MARK}{} {}\n{LOCK_MARK}{}\n",
            self.derivation.name(),
            encode_key(Some(&self.key)),
            self.lock
        );
        for (name, expression) in &self.columns {
            let _ = writeln!(marks, "{COLUMN_MARK}{name}={expression}");
        }
        marks
    }

    /// Reads the guard from the source of a trigger's function; `None` if this command did not
    /// write it.
    pub(crate) fn read(source: &str, table: Table) -> Option<Self> {
        let mut lines = source.trim_start().lines();
        let (derivation, key) = lines.next()?.strip_prefix(MARK)?.split_once(' ')?;
        let lock = lines.next()?.strip_prefix(LOCK_MARK)?.to_owned();
        let columns = lines.map_while(|line| line.strip_prefix(COLUMN_MARK)?.split_once('='));
        let columns = columns.map(|(name, expression)| (name.to_owned(), expression.to_owned()));
        let key = decode_key(key).ok()??;
        let derivation = Derivation::from_name(derivation)?;
        Self::new(lock, key, derivation, table, columns.collect()).ok()
    }

    /// Returns `true` if the guard's lock has this key. The names of placeholders can differ, but a
    /// name that both have must be at one place.
    pub(crate) fn has_key(&self, key: &LockedKey, derivation: Derivation) -> bool {
        let is_derived = key.derived().is_some();
        is_same(&self.key, key) && (!is_derived || self.derivation == derivation)
    }

    /// The events for which a trigger of this type refuses writes without the lock, as bits of
    /// `pg_trigger.tgtype`.
    pub(crate) fn events(&self, trigger_type: i16) -> i16 {
        const ROW: i16 = 1;
        const BEFORE: i16 = 2;
        const INSTEAD: i16 = 64;
        let events = trigger_type & (WRITES | TRUNCATE);
        match trigger_type & (ROW | BEFORE | INSTEAD) {
            ROW => events,
            BEFORE if self.is_fixed() => events,
            _ => 0,
        }
    }

    /// The events that a guarded table must refuse. A trigger for rows does not see `TRUNCATE`, and
    /// a foreign table cannot have a trigger for it.
    pub(crate) fn needed_events(&self, is_foreign: bool) -> i16 {
        let truncate = if self.is_fixed() && !is_foreign {
            TRUNCATE
        } else {
            0
        };
        WRITES | truncate
    }
}

/// `INSERT`, `DELETE` and `UPDATE` in `pg_trigger.tgtype`.
const WRITES: i16 = 4 | 8 | 16;
const TRUNCATE: i16 = 32;

/// Returns `true` if two keys are one number, or one pattern with equal values as far as their
/// names show.
pub(crate) fn is_same(one: &LockedKey, other: &LockedKey) -> bool {
    match (one.derived(), other.derived()) {
        (Some(_), Some(_)) if one.first_half() != other.first_half() => false,
        (Some(one), Some(other)) => {
            let names = |pattern| key_values::of_pattern(pattern, &[]);
            let pairs = key_values::pairs(&names(one), &names(other));
            one.same_form(other) && !key_values::have_moved(&pairs)
        }
        _ => one == other,
    }
}

/// `pattern <tenant_id: uuid>:<date: date> by sha256`
pub(crate) fn key_text(key: &LockedKey, derivation: Derivation) -> String {
    format!("{} by {}", encode_key(Some(key)), derivation.name())
}

/// The column that a placeholder names, which is the last name of its path.
fn column_name(placeholder: &Placeholder) -> &str {
    let is_name = |part: &&String| !part.starts_with(|c: char| c.is_ascii_digit());
    let name = placeholder.path.iter().rev().find(is_name);
    let name = name.map_or("", String::as_str);
    name.strip_prefix("r#").unwrap_or(name)
}

impl Table {
    /// Reads `bookings` or `shop.bookings`. As in SQL, only a name in quotes keeps its capitals.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            let write = "write `bookings` or `shop.bookings`";
            Failure::Input(format!("`{text}` is not a table: {write}"))
        };
        let name = |name: &str| {
            let quoted = name.strip_prefix('"');
            let plain = quoted.and_then(|name| name.strip_suffix('"'));
            let name = plain.map_or_else(|| name.to_lowercase(), str::to_owned);
            let fits = !name.is_empty() && !name.contains(['"', '\'', '$']);
            (fits && !name.contains(controls_terminal)).then_some(name)
        };
        let (schema, table) = match text.split_once('.') {
            Some((schema, table)) => (Some(name(schema).ok_or_else(wrong)?), table),
            None => (None, text),
        };
        let name = name(table).filter(|name| !name.contains('.'));
        Ok(Self {
            schema,
            name: name.ok_or_else(wrong)?,
        })
    }

    pub(crate) fn sql(&self) -> String {
        self.within(&self.name)
    }

    /// The name of another object in the table's schema.
    fn within(&self, name: &str) -> String {
        let name = identifier(name);
        match &self.schema {
            Some(schema) => format!("{}.{name}", identifier(schema)),
            None => name,
        }
    }
}

/// The halves of the key as `pg_locks` shows them, as unsigned integers, and the key space as its
/// `objsubid`.
pub(crate) fn halves(key: Key) -> (u32, u32, u8) {
    let number = match key {
        Key::BigInt(number) => number.cast_unsigned(),
        Key::IntInt(first, second) => return (first.cast_unsigned(), second.cast_unsigned(), 2),
    };
    let half = |half: u64| u32::try_from(half & u64::from(u32::MAX)).unwrap_or_default();
    (half(number >> 32), half(number), 1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use advisory_pattern::{Derivation, LockedKey, decode_key};

    use super::{Guard, Table};

    fn key(encoded: &str) -> LockedKey {
        decode_key(encoded).unwrap().unwrap()
    }

    fn guard(encoded: &str) -> Guard {
        // The second half of a pair has 32 bits.
        let derivation = match key(encoded) {
            LockedKey::IntPattern(..) => Derivation::Hashtext,
            _ => Derivation::Sha256,
        };
        let (lock, table) = ("seat".to_owned(), Table::parse("seats").unwrap());
        Guard::new(lock, key(encoded), derivation, table, BTreeMap::new()).unwrap()
    }

    #[test]
    fn another_derivation_is_another_key_except_of_a_number() {
        let seat = "pattern seat:<id: int>";
        for (encoded, other, expected) in [
            (seat, "pattern seat:<no: int>", [true, false]),
            (seat, "pattern seats:<id: int>", [false, false]),
            ("half 7 <id: int>", "half 7 <no: int>", [false, true]),
            ("half 7 <id: int>", "half 8 <id: int>", [false, false]),
            ("number 7", "number 7", [true, true]),
            ("number 7", "number 8", [false, false]),
        ] {
            let guard = guard(encoded);
            let derivations = [Derivation::Sha256, Derivation::Hashtext];
            let has = derivations.map(|derivation| guard.has_key(&key(other), derivation));
            assert_eq!(has, expected, "{encoded}, {other}");
        }
    }

    #[test]
    fn only_a_trigger_that_sees_the_rows_refuses_their_writes() {
        let (row, before, instead) = (1, 2, 64);
        let (insert, truncate, all) = (4, 32, 4 | 8 | 16 | 32);
        let of_row = guard("pattern seat:<id: int>");
        let fixed = guard("number 7");
        for (kind, by_row, by_statement) in [
            (row | insert, insert, insert),
            (row | all, all, all),
            (row | before | insert, 0, 0),
            (before | all, 0, all),
            (all, 0, 0),
            (row | instead | insert, 0, 0),
        ] {
            let events = [&of_row, &fixed].map(|guard| guard.events(kind));
            assert_eq!(events, [by_row, by_statement], "{kind}");
        }
        assert_eq!(of_row.needed_events(false), all - truncate);
        assert_eq!(fixed.needed_events(false), all);
        assert_eq!(fixed.needed_events(true), all - truncate);
    }
}
