//! One row, with its state and all its columns.

use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write;

use super::jobs::{FromRow, Jobs};
use super::list::since;
use super::resolved::Resolved;
use super::state::{Rows, State};
use crate::cli::{Format, Output};
use crate::display_width::cut;
use crate::failure::Failure;
use crate::json::{VERSION, pretty};
use crate::screen::{BOLD, DIM, KEY, one_line, shell_word};

/// The length of a value that is shown; `--format json` has all of it.
const LONGEST: usize = 500;

#[derive(Args)]
pub(super) struct Arguments {
    /// Its primary key, `42`, or `house,42` for a key of two columns
    #[arg(value_name = "KEY", allow_hyphen_values = true)]
    row: String,
    /// The output format
    #[arg(long, default_value = "text")]
    format: Format,
    #[command(flatten)]
    output: Output,
}

struct Found {
    state: String,
    age: Option<f64>,
    /// As JSON.
    row: String,
}

impl FromRow for Found {
    fn from_row(row: &tokio_postgres::Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            state: row.try_get("state")?,
            age: row.try_get("age")?,
            row: row.try_get("row")?,
        })
    }
}

impl Arguments {
    /// Returns `false` if there is no such row.
    pub(super) async fn run(&self, jobs: &Jobs, table: &Resolved) -> Result<bool, Failure> {
        let mut rows = Rows::default();
        rows.with_keys(table, std::slice::from_ref(&self.row))?;
        let query = format!(
            "SELECT {} AS state, {} AS age, CAST(pg_catalog.to_jsonb(t.*) AS pg_catalog.text) AS row FROM {} AS t WHERE {}",
            table.state(),
            table.age(),
            table.table.quoted(),
            rows.sql()
        );
        let found = jobs
            .read::<Found>(&query, &rows.binds)
            .await?
            .map_err(Failure::Input)?;
        let label = &table.label;
        let Some(found) = found.first() else {
            let key = one_line(&self.row);
            self.output.write(&match self.format {
                Format::Text => {
                    format!("`{label}` has no row `{key}`: it was deleted, or never there\n")
                }
                Format::Json => pretty(
                    &json!({ "version": VERSION, "table": label, "state": null, "row": null }),
                ),
            })?;
            return Ok(false);
        };
        let row: Value = serde_json::from_str(&found.row).map_err(|error| {
            Failure::Input(format!("the row is not what the server says: {error}"))
        })?;
        self.output.write(&match self.format {
            Format::Text => self.text(table, found, &row),
            Format::Json => pretty(
                &json!({ "version": VERSION, "table": label, "state": found.state, "row": row }),
            ),
        })?;
        Ok(true)
    }

    fn text(&self, table: &Resolved, found: &Found, row: &Value) -> String {
        let state = State::of_name(&found.state);
        let time = state
            .zip(found.age)
            .map_or_else(String::new, |(state, age)| {
                format!(", {}", since(state, age))
            });
        let mut text = format!(
            "{BOLD}{}{BOLD:#}: {}{time}\n",
            one_line(&self.row),
            found.state
        );
        let Value::Object(members) = row else {
            return text;
        };
        let width = members
            .keys()
            .map(|name| name.chars().count())
            .max()
            .unwrap_or_default();
        // In the order of the table, which JSON of the server does not keep.
        for (name, value) in members {
            let value = match value {
                Value::Null => continue,
                Value::String(value) => value.clone(),
                other => other.to_string(),
            };
            let (name, value) = (one_line(name), cut(&one_line(&value), LONGEST));
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "    {DIM}{name:width$}{DIM:#}  {value}");
        }
        let act = match state {
            Some(State::Failed | State::Scheduled) => "retry",
            Some(State::Running | State::Expired) => "release",
            _ => return text,
        };
        let _ = writeln!(
            text,
            "{KEY}cargo advisory claim {act} --table {} {}{KEY:#}",
            shell_word(&table.label),
            shell_word(&self.row)
        );
        text
    }
}
