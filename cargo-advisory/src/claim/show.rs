//! Shows one row with its state and all its columns.

use std::fmt::Write;

use clap::Args;
use serde_json::{Value, json};
use tokio_postgres::Client;

use super::jobs::read;
use super::list::since;
use super::resolved::Resolved;
use super::state::{Rows, State};
use crate::cli::Answer;
use crate::display_width::cut;
use crate::failure::{Failure, Result, bail};
use crate::json::{VERSION, pretty};
use crate::screen::{BOLD, DIM, KEY};
use crate::text::{one_line, shell_word};

/// Longer values are cut; `--format json` has them whole.
const LONGEST: usize = 500;

#[derive(Args)]
pub(super) struct Arguments {
    /// Its primary key, `42`, or `house,42` for a key of two columns
    #[arg(value_name = "KEY", allow_hyphen_values = true)]
    row: String,
    #[command(flatten)]
    answer: Answer,
}

struct Found {
    state: String,
    age: Option<f64>,
    /// As JSON.
    row: String,
}

impl Arguments {
    pub(super) async fn run(&self, client: &Client, table: &Resolved) -> Result<bool> {
        let mut rows = Rows::default();
        rows.with_keys(table, std::slice::from_ref(&self.row))?;
        let query = format!(
            "SELECT {} AS state, {} AS age, to_jsonb(t.*)::text AS row FROM {} AS t WHERE {}",
            table.state(),
            table.age(),
            table.table.quoted(),
            rows.sql()
        );
        let found = read(client, &query, &rows.binds, |row| {
            Ok(Found {
                state: row.try_get("state")?,
                age: row.try_get("age")?,
                row: row.try_get("row")?,
            })
        });
        let (found, label) = (found.await?.map_err(Failure::Input)?, &table.label);
        let json = |state: Option<&str>, row: &Value| {
            pretty(&json!({ "version": VERSION, "table": label, "state": state, "row": row }))
        };
        let Some(found) = found.first() else {
            let key = one_line(&self.row);
            let text = format!("`{label}` has no row `{key}`: it was deleted, or never there\n");
            self.answer.write(|_| text, || json(None, &Value::Null))?;
            return Ok(false);
        };
        let row: Value = match serde_json::from_str(&found.row) {
            Ok(row) => row,
            Err(error) => bail!("the row is not what the server says: {error}"),
        };
        self.answer.write(
            |_| self.text(table, found, &row),
            || json(Some(&found.state), &row),
        )?;
        Ok(true)
    }

    fn text(&self, table: &Resolved, found: &Found, row: &Value) -> String {
        let state = State::of_name(&found.state);
        let time = state.zip(found.age);
        let time = time.map_or_else(String::new, |(state, age)| {
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
        let widths = members.keys().map(|name| name.chars().count());
        let width = widths.max().unwrap_or_default();
        for (name, value) in members {
            let value = match value {
                Value::Null => continue,
                Value::String(value) => value.clone(),
                other => other.to_string(),
            };
            let (name, value) = (one_line(name), cut(&one_line(&value), LONGEST));
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
