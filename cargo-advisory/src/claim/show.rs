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
use crate::failure::{Result, bail};
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
            Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
        });
        let found: Vec<(String, _, String)> = found.await??;
        let label = &table.label;
        let json = |state: Option<&str>, row: &Value| {
            pretty(&json!({ "version": VERSION, "table": label, "state": state, "row": row }))
        };
        let Some((state, age, row)) = found.first() else {
            let key = one_line(&self.row);
            let text = format!("`{label}` has no row `{key}`: it was deleted, or never there\n");
            self.answer.write(|_| text, || json(None, &Value::Null))?;
            return Ok(false);
        };
        let row: Value = match serde_json::from_str(row) {
            Ok(row) => row,
            Err(error) => bail!("the row is not what the server says: {error}"),
        };
        let text = |_| self.text(table, state, *age, &row);
        self.answer.write(text, || json(Some(state), &row))?;
        Ok(true)
    }

    fn text(&self, table: &Resolved, name: &str, age: Option<f64>, row: &Value) -> String {
        let state = State::of_name(name);
        let time = state.zip(age).map(|(state, age)| since(state, age));
        let time = time.map_or_else(String::new, |time| format!(", {time}"));
        let key = one_line(&self.row);
        let mut text = format!("{BOLD}{key}{BOLD:#}: {name}{time}\n");
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
        let (table, row) = (shell_word(&table.label), shell_word(&self.row));
        let _ = writeln!(
            text,
            "{KEY}cargo advisory claim {act} --table {table} {row}{KEY:#}"
        );
        text
    }
}
