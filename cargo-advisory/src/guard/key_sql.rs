//! SQL that computes a lock's key from a row.
//!
//! It renders like `advisory_runtime::KeyPart` and derives like `advisory_pattern::Derivation`. A
//! test compares them on a server. The function that contains the SQL sets `search_path` to
//! `pg_catalog` and `TimeZone` to UTC.

use std::fmt::Write;

use advisory_pattern::{Derivation, Filter, LockedKey, Part, Pattern, Placeholder, Shape};

use advisory_runtime::Key;

use super::Guard;
use crate::database::literal;
use crate::failure::{Result, bail};

pub(super) enum KeySql {
    /// A key that does not depend on the row.
    Fixed(Key),
    /// The first half of a pair, if it is one, and an expression over the row `written` for the
    /// rest.
    OfRow(Option<i32>, String),
}

impl Guard {
    /// The SQL of the lock's key. The error names the part that SQL cannot compute.
    pub(super) fn key_sql(&self) -> Result<KeySql> {
        if self.key.first_half().is_some() && self.derivation.bits() != 32 {
            bail!(
                "the second half of a pair has 32 bits, and `{}` gives {}: use the derivation `hashtext`",
                self.derivation.name(),
                self.derivation.bits()
            );
        }
        if let Some((first, second)) = self.key.pair(self.derivation) {
            return Ok(KeySql::Fixed(Key::IntInt(first, second)));
        }
        Ok(match &self.key {
            LockedKey::BigInt(number) => KeySql::Fixed(Key::BigInt(*number)),
            LockedKey::IntPattern(first, pattern) => {
                KeySql::OfRow(Some(*first), self.pattern_sql(pattern)?)
            }
            LockedKey::IntInt(..) => {
                bail!("SQL cannot compute a pair with an expression from a row: use a key pattern")
            }
            LockedKey::Pattern(pattern) => match pattern.constant() {
                Some(text) => KeySql::Fixed(self.derivation.key(&text).into()),
                None => KeySql::OfRow(None, self.pattern_sql(pattern)?),
            },
        })
    }

    fn pattern_sql(&self, pattern: &Pattern) -> Result<String> {
        let mut text = String::new();
        for part in &pattern.parts {
            let part = match part {
                Part::Text(text) => literal(text),
                Part::Placeholder(placeholder) => rendered(placeholder, &self.column(placeholder))?,
            };
            let _ = if text.is_empty() {
                // Otherwise a key of one placeholder could be a `varchar`.
                write!(text, "({part})::text")
            } else {
                write!(text, "\n            || {part}")
            };
        }
        number(self.derivation, &text)
    }
}

fn shape_of(placeholder: &Placeholder) -> Shape {
    placeholder.rendered_shape(|_| Shape::Text)
}

/// The types of columns that render as the placeholder's shape. The migration checks the column's.
pub(super) fn types(placeholder: &Placeholder) -> &'static [&'static str] {
    match shape_of(placeholder) {
        Shape::Int | Shape::Uint => &["int2", "int4", "int8"],
        Shape::Uuid => &["uuid"],
        Shape::Date => &["date"],
        Shape::Time => &["time"],
        Shape::DateTime => &["timestamp"],
        Shape::Timestamp => &["timestamptz"],
        Shape::Bool => &["bool"],
        _ => &["text", "varchar"],
    }
}

fn number(derivation: Derivation, text: &str) -> Result<String> {
    let leading = |hex: &str| format!("('x' || {hex})::bit(64)::int8");
    Ok(match derivation {
        Derivation::Sha256 => leading(&format!(
            "encode(substring(sha256(convert_to(\n            {text},\n            'UTF8')), 1, 8), 'hex')"
        )),
        Derivation::Md5 => leading(&format!(
            "substr(md5(convert_to(\n            {text},\n            'UTF8')), 1, 16)"
        )),
        Derivation::Hashtext => {
            format!("hashtext((\n            {text}\n            ) COLLATE \"C\")::int8")
        }
        Derivation::Hashtextextended => {
            format!("hashtextextended((\n            {text}\n            ) COLLATE \"C\", 0)")
        }
        // New derivations end here too, because the enum is `non_exhaustive`. A test names those
        // that may.
        other => bail!(
            "SQL has no function for the derivation `{}`: only `sha256`, `md5`, `hashtext` and `hashtextextended` can be computed in a trigger",
            other.name()
        ),
    })
}

/// The text of one placeholder: filters, then the shape, then escapes.
fn rendered(placeholder: &Placeholder, column: &str) -> Result<String> {
    let shape = shape_of(placeholder);
    Ok(match shape {
        Shape::Int | Shape::Uint | Shape::Uuid | Shape::Bool => format!("{column}::text"),
        Shape::Date => date(column),
        Shape::Time => time(column),
        Shape::DateTime => date_time(column),
        Shape::Timestamp => date_time(&format!("timezone('UTC', {column})")) + " || 'Z'",
        Shape::Char | Shape::Text | Shape::Raw => filtered(placeholder, shape, column)?,
        other => bail!(
            "placeholder `<{}>`: SQL has no rendering of the shape `{}`",
            placeholder.name(),
            other.name()
        ),
    })
}

fn filtered(placeholder: &Placeholder, shape: Shape, column: &str) -> Result<String> {
    let mut text = column.to_owned();
    for filter in &placeholder.filters {
        text = match filter {
            Filter::Trim => format!("btrim({text})"),
            // The collation "C" changes only A to Z.
            Filter::Lower => format!("lower({text} COLLATE \"C\")"),
            Filter::Raw => text,
            Filter::Display => bail!(
                "placeholder `<{}>`: SQL cannot compute the filter `display`, which is code of the value's type",
                placeholder.name()
            ),
        };
    }
    if shape == Shape::Raw {
        return Ok(text);
    }
    Ok(format!(
        "replace(replace({text} COLLATE \"C\", '%', '%25'), ':', '%3A')"
    ))
}

/// A day in ISO 8601: PostgreSQL's year 1 BC is the year 0, and a year with more than four digits
/// has a sign.
fn date(day: &str) -> String {
    let at = format!("{day}::timestamp");
    format!(
        "CASE\n                \
         WHEN {at} >= '0001-01-01' AND {at} < '10000-01-01' THEN to_char({at}, 'YYYY-MM-DD')\n                \
         WHEN {at} >= '10000-01-01' THEN '+' || to_char({at}, 'YYYY-MM-DD')\n                \
         WHEN {at} >= '0001-01-01 BC' THEN '0000' || to_char({at}, '-MM-DD')\n                \
         ELSE '-' || lpad((-1 - date_part('year', {at}))::int4::text, 4, '0') || to_char({at}, '-MM-DD')\n            \
         END"
    )
}

/// `HHMMSS`, and a fraction without trailing zeros.
fn time(time: &str) -> String {
    format!("rtrim(rtrim(to_char({time}, 'HH24MISS.US'), '0'), '.')")
}

fn date_time(moment: &str) -> String {
    format!("{} || 'T' || {}", date(moment), time(moment))
}

#[cfg(test)]
mod tests {
    use advisory_pattern::Derivation;

    use super::number;

    /// The enum is `non_exhaustive`, so the compiler does not report that a new derivation has no
    /// SQL here.
    #[test]
    fn each_derivation_has_sql_or_is_refused_by_name() {
        for derivation in Derivation::ALL {
            let name = derivation.name();
            match name {
                "sha256" | "md5" | "hashtext" | "hashtextextended" => {
                    let sql = number(derivation, "'a'").unwrap();
                    assert!(sql.contains(&format!("{name}(")), "{sql}");
                }
                "fnv1a32" | "fnv1a64" => {
                    let refused = number(derivation, "'a'").unwrap_err().to_string();
                    assert!(
                        refused.contains(&format!("derivation `{name}`")),
                        "{refused}"
                    );
                }
                new => panic!("does SQL have a function for `{new}`?"),
            }
        }
    }
}
