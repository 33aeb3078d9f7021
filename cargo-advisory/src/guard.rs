//! Which trigger refuses writes to a table without the lock that guards it?
//!
//! `key_sql` computes the key from a row, by the pattern's own rendering and derivation; `trigger` puts it into a migration. A guard is
//! made from a lock of an inventory or from a pattern, and can be read back from a trigger's function.

mod key_sql;
mod trigger;

use std::collections::BTreeMap;
use std::fmt::Write;

use advisory_pattern::{Derivation, LockedKey, Placeholder, encode_key};

use crate::screen::steers;

/// Starts the first line of a trigger's function, which says what the function was written from.
const MARK: &str = "-- advisory guard 1: ";
/// Stands around the function's source.
const QUOTE: &str = "$advisory$";
/// Starts the line with the lock's name.
const LOCK_MARK: &str = "-- lock: ";
/// Starts a line for each placeholder whose column has another name.
const COLUMN_MARK: &str = "-- column: ";

/// A lock, the table that it guards, and the columns of the lock's placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Guard {
    /// The lock's name, for messages.
    lock: String,
    key: LockedKey,
    derivation: Derivation,
    table: Table,
    /// The SQL expression of each placeholder that is not the column of the same name.
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
    ) -> Result<Self, String> {
        for text in [&lock, &encode_key(Some(&key))] {
            if text.contains(steers) || text.contains(QUOTE) {
                return Err(format!(
                    "a trigger cannot name a lock whose name or key contains a control character or `{QUOTE}`"
                ));
            }
        }
        let guard = Self {
            lock,
            key,
            derivation,
            table,
            columns,
        };
        guard.check_columns()?;
        // The only thing that can fail.
        guard.key_sql()?;
        Ok(guard)
    }

    fn check_columns(&self) -> Result<(), String> {
        let text = self.key.text();
        for (name, expression) in &self.columns {
            let known = text.placeholders().any(|known| known.name() == *name);
            if !known {
                let names: Vec<String> = text
                    .placeholders()
                    .map(|known| format!("`{}`", known.name()))
                    .collect();
                let names = match names.as_slice() {
                    [] => "none".to_owned(),
                    names => names.join(", "),
                };
                return Err(format!(
                    "`--column {name}=…` names no placeholder of the key: it has {names}"
                ));
            }
            let is_unfit = |word: &str| expression.contains(word);
            if expression.trim().is_empty()
                || expression.contains(steers)
                || [QUOTE, "--", "/*", ";"].into_iter().any(is_unfit)
            {
                return Err(format!(
                    "`--column {name}={expression}` is not an expression: write `--column {name}=starts_at::date`"
                ));
            }
        }
        Ok(())
    }

    /// Whether the lock is the same for every row.
    fn is_fixed(&self) -> bool {
        match &self.key {
            LockedKey::Pattern(pattern) => pattern.constant().is_some(),
            LockedKey::BigInt(_) | LockedKey::IntInt(..) => true,
        }
    }

    /// The column of a placeholder, or the expression that `--column` gives, over the row `written`.
    fn column(&self, placeholder: &Placeholder) -> String {
        if let Some(expression) = self.columns.get(&placeholder.name()) {
            return format!("({expression})");
        }
        format!("written.{}", identifier(column_name(placeholder)))
    }

    /// What the first lines of the function say.
    fn marks(&self) -> String {
        let mut marks = format!(
            "{MARK}{} {}\n{LOCK_MARK}{}\n",
            self.derivation.name(),
            encode_key(Some(&self.key)),
            self.lock
        );
        for (name, expression) in &self.columns {
            // Writing to a `String` cannot fail.
            let _ = writeln!(marks, "{COLUMN_MARK}{name}={expression}");
        }
        marks
    }
}

/// The column that a placeholder names: the last name of its path.
fn column_name(placeholder: &Placeholder) -> &str {
    let is_name = |part: &&String| !part.starts_with(|c: char| c.is_ascii_digit());
    let name = placeholder.path.iter().rev().find(is_name);
    let name = name.map_or("", String::as_str);
    name.strip_prefix("r#").unwrap_or(name)
}

impl Table {
    /// Reads `bookings` or `shop.bookings`. As in SQL, a name in quotes keeps its letters.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a table: write `bookings` or `shop.bookings`");
        let name = |name: &str| {
            let plain = name
                .strip_prefix('"')
                .and_then(|name| name.strip_suffix('"'));
            let name = plain.map_or_else(|| name.to_lowercase(), str::to_owned);
            let fits = !name.is_empty() && !name.contains(['"', '\'', '$']);
            (fits && !name.contains(steers)).then_some(name)
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

    /// The table as SQL names it.
    pub(crate) fn sql(&self) -> String {
        self.within(&self.name)
    }

    /// Something else in the table's schema.
    fn within(&self, name: &str) -> String {
        let name = identifier(name);
        match &self.schema {
            Some(schema) => format!("{}.{name}", identifier(schema)),
            None => name,
        }
    }
}

/// The reserved words of PostgreSQL that somebody could call a table.
const RESERVED: [&str; 20] = [
    "all",
    "array",
    "case",
    "check",
    "column",
    "constraint",
    "default",
    "end",
    "fetch",
    "foreign",
    "grant",
    "group",
    "limit",
    "offset",
    "order",
    "primary",
    "references",
    "table",
    "user",
    "window",
];

/// A name as SQL writes it: in quotes if it needs them.
fn identifier(name: &str) -> String {
    let is_letter = |c: char| c.is_ascii_lowercase() || c == '_';
    let is_plain = name.starts_with(is_letter)
        && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
        && !RESERVED.contains(&name);
    if is_plain {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as a literal, under either setting of `standard_conforming_strings`.
fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') {
        return format!("E'{}'", quoted.replace('\\', "\\\\"));
    }
    format!("'{quoted}'")
}
