//! The rows of each table by state: how many they are, how old, and their errors.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio_postgres::Client;

use super::jobs::read;
use super::resolved::Resolved;
use super::state::{Rows, State};
use crate::cli::{Format, LiveAnswer};
use crate::columns::Columns;
use crate::database::{self, Queries};
use crate::duration::short;
use crate::failure::Result;
use crate::job_table::JobTable;
use crate::json::{VERSION, pretty};
use crate::screen::{self, BOLD, DIM, ERROR, KEY, PLAIN};
use crate::text::{joined, one_line, plural, shell_word};

const MOST: usize = 100;
const ERRORS: usize = 10;
const LONGEST_ERROR: usize = 200;
const WORKERS: usize = 3;
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

const COUNTS: Columns<5> = Columns {
    heads: "STATE | ROWS | OLDEST | ATTEMPTS | BY",
    styles: [PLAIN, BOLD, PLAIN, PLAIN, PLAIN],
    narrowest: 6,
};
const ROWS: Columns<6> = Columns {
    heads: "KEY | STATE | SINCE | ATTEMPTS | BY | ERROR",
    styles: [KEY, PLAIN, PLAIN, PLAIN, PLAIN, DIM],
    narrowest: 6,
};
const FAILURES: Columns<5> = Columns {
    heads: "ROWS | STATE | FIRST | LAST | ERROR",
    styles: [BOLD, PLAIN, PLAIN, PLAIN, PLAIN],
    narrowest: 6,
};

#[derive(Args)]
pub(super) struct Arguments {
    /// Lists at most 100 rows of this state one by one, those that entered it first at the top
    #[arg(long, value_name = "STATE")]
    state: Option<State>,
    /// Only rows with this text in a column, such as `kind=mail`
    #[arg(long = "where", value_name = "COLUMN=VALUE")]
    filters: Vec<String>,
    #[command(flatten)]
    answer: LiveAnswer,
}

struct ErrorCount {
    state: String,
    error: String,
    rows: i64,
    first: Option<f64>,
    last: Option<f64>,
}

struct Row {
    key: String,
    age: Option<f64>,
    attempts: Option<i64>,
    worker: String,
    error: Option<String>,
}

#[derive(Default)]
struct Summary {
    rows: i64,
    oldest: Option<f64>,
    attempts: Option<(i64, i64)>,
    workers: Vec<(String, i64)>,
}

#[derive(Default)]
struct Queue {
    name: String,
    states: BTreeMap<State, Summary>,
    errors: Vec<ErrorCount>,
    /// The rows of the requested state.
    rows: Option<(State, Vec<Row>)>,
    /// The counts that are not known, and why.
    unread: Vec<String>,
}

impl Arguments {
    pub(super) fn every(&self) -> Option<Duration> {
        self.answer.every(SHORTEST_INTERVAL)
    }

    pub(super) async fn run(&self, client: &Client, tables: &[JobTable]) -> Result<bool> {
        let text = self.read(client, tables).await?;
        self.answer.output.write(&text)?;
        Ok(true)
    }

    /// Refreshes until Ctrl-C, or until the output is closed.
    pub(super) fn watch(
        &self,
        address: &str,
        tables: &[JobTable],
        every: Duration,
    ) -> Result<bool> {
        database::watch(address, every, &async |queries: &mut Queries| {
            let text = self.read(&queries.client, tables).await?;
            Ok(match (self.answer.format, screen::height()) {
                (Format::Text, Some(_)) => format!(
                    "\u{1b}[H\u{1b}[J{DIM}every {}; Ctrl-C ends{DIM:#}\n{text}",
                    short(every)
                ),
                _ => text,
            })
        })
    }

    async fn read(&self, client: &Client, tables: &[JobTable]) -> Result<String> {
        let mut queues = Vec::new();
        for table in tables {
            let table = Resolved::find(client, table).await?;
            queues.push(self.queue(client, &table).await?);
        }
        if self.answer.format == Format::Json {
            let queues: Vec<Value> = queues.iter().map(as_json).collect();
            let value = json!({ "version": VERSION, "queues": queues });
            return Ok(if self.every().is_some() {
                crate::json::line(&value)
            } else {
                pretty(&value)
            });
        }
        let width = self.answer.output.width();
        Ok(joined(queues.iter().map(|queue| queue.text(width)), "\n"))
    }

    async fn queue(&self, client: &Client, table: &Resolved) -> Result<Queue> {
        let mut queue = Queue {
            name: table.label.clone(),
            ..Queue::default()
        };
        // Many rows can have ended. Each of these states is counted on its own, so that the other
        // counts are known if one takes too long.
        for states in [State::PENDING, &[State::Failed], &[State::Done]] {
            let mut rows = Rows::of(table, &self.filters)?;
            rows.add(table.of_states(states));
            let query = format!(
                "SELECT t.state, t.worker, count(*) AS rows, max(t.age) AS oldest, min(t.attempts) AS fewest, max(t.attempts) AS most \
                 FROM ({}) AS t GROUP BY t.state, t.worker ORDER BY rows DESC",
                fields(table, &rows, &["state", "worker", "age", "attempts"])
            );
            let counted = read(client, &query, &rows.binds, |row| queue.add(row)).await?;
            if let Err(why) = counted {
                let names = joined(states.iter().map(|state| state.name()), ", ");
                queue.unread.push(format!("{names}: {why}"));
            }
        }
        if let Some(error) = table.column("error_message") {
            let mut rows = Rows::of(table, &self.filters)?;
            let state = table.state();
            rows.add(format!("{error} IS NOT NULL AND {state} <> 'done'"));
            let query = format!(
                "SELECT t.state, t.error, count(*) AS rows, max(t.age) AS first, min(t.age) AS last \
                 FROM ({}) AS t GROUP BY t.state, t.error ORDER BY rows DESC, t.error LIMIT {}",
                fields(table, &rows, &["state", "error", "age"]),
                ERRORS + 1
            );
            let counted = read(client, &query, &rows.binds, |row| {
                queue.errors.push(ErrorCount {
                    state: row.try_get("state")?,
                    error: row.try_get("error")?,
                    rows: row.try_get("rows")?,
                    first: row.try_get("first")?,
                    last: row.try_get("last")?,
                });
                Ok(())
            });
            if let Err(why) = counted.await? {
                queue.unread.push(format!("errors: {why}"));
            }
        }
        if let Some(state) = self.state {
            let mut rows = Rows::of(table, &self.filters)?;
            rows.add(table.of_states(&[state]));
            let query = format!(
                "{} ORDER BY age DESC NULLS LAST, key LIMIT {}",
                fields(table, &rows, &["key", "age", "attempts", "worker", "error"]),
                MOST + 1
            );
            let found = read(client, &query, &rows.binds, |row| {
                Ok(Row {
                    key: row.try_get("key")?,
                    age: row.try_get("age")?,
                    attempts: row.try_get("attempts")?,
                    worker: row.try_get::<_, Option<_>>("worker")?.unwrap_or_default(),
                    error: row.try_get("error")?,
                })
            })
            .await?;
            queue.rows = Some((state, found?));
        }
        Ok(queue)
    }
}

/// A query for these columns of each row. A role may not have the right to read the others, such as
/// errors with private data.
fn fields(table: &Resolved, rows: &Rows, names: &[&str]) -> String {
    let column = |argument| table.column(argument).unwrap_or("NULL".to_owned());
    let columns = names.iter().map(|name| {
        let sql = match *name {
            "key" => table.key_text(),
            "state" => table.state(),
            "age" => table.age(),
            "attempts" => format!("{}::int8", column("attempts")),
            // `#` and a UUID follow the worker's name.
            "worker" => format!("split_part({}::text, '#', 1)", column("locked_by")),
            _ => format!("left({}::text, {LONGEST_ERROR})", column("error_message")),
        };
        format!("{sql} AS {name}")
    });
    format!(
        "SELECT {} FROM {} WHERE {}",
        joined(columns, ", "),
        table.table.quoted(),
        rows.sql()
    )
}

impl Queue {
    /// Adds the rows of one state and worker.
    fn add(&mut self, row: &tokio_postgres::Row) -> Result<(), tokio_postgres::Error> {
        let Some(state) = State::of_name(row.try_get("state")?) else {
            return Ok(());
        };
        let summary = self.states.entry(state).or_default();
        let rows: i64 = row.try_get("rows")?;
        summary.rows += rows;
        let oldest = [summary.oldest, row.try_get("oldest")?].into_iter();
        summary.oldest = oldest.flatten().reduce(f64::max);
        if let (Some(fewest), Some(most)) = (row.try_get("fewest")?, row.try_get("most")?) {
            let (from, to) = summary.attempts.unwrap_or((fewest, most));
            summary.attempts = Some((from.min(fewest), to.max(most)));
        }
        let is_claimed = matches!(state, State::Running | State::Expired);
        let worker: Option<String> = row.try_get("worker")?;
        let worker = worker.filter(|worker| is_claimed && !worker.is_empty());
        summary.workers.extend(worker.map(|worker| (worker, rows)));
        Ok(())
    }

    fn text(&self, width: Option<usize>) -> String {
        let mut text = format!("{BOLD}{}{BOLD:#}\n", self.name);
        let rows = self.states.iter();
        let rows = rows.map(|(state, summary)| cells(*state, summary));
        let rows: Vec<[String; 5]> = rows.collect();
        if rows.is_empty() && self.unread.is_empty() {
            text.push_str("no rows\n");
        } else {
            text.push_str(&COUNTS.draw(&rows, width));
        }
        for why in &self.unread {
            let _ = writeln!(text, "{ERROR}not known{ERROR:#}: {why}");
        }
        if let Some((state, rows)) = &self.rows {
            text.push('\n');
            write_rows(&mut text, *state, rows, width);
        }
        self.write_errors(&mut text, width);
        text
    }

    fn write_errors(&self, text: &mut String, width: Option<usize>) {
        if self.errors.is_empty() {
            return;
        }
        text.push('\n');
        let rows = self.errors.iter().take(ERRORS).map(|error| {
            let ago = |age: Option<f64>| {
                let age = age.filter(|_| error.state == "failed");
                age.map_or_else(String::new, |age| since(State::Failed, age))
            };
            [
                error.rows.to_string(),
                error.state.clone(),
                ago(error.first),
                ago(error.last),
                one_line(&error.error),
            ]
        });
        let rows: Vec<[String; 5]> = rows.collect();
        text.push_str(&FAILURES.draw(&rows, width));
        if self.errors.len() > ERRORS {
            text.push_str("and other errors\n");
        }
        if let Some(error) = self.errors.iter().find(|error| error.state == "failed") {
            let part: String = one_line(&error.error).chars().take(40).collect();
            let _ = writeln!(
                text,
                "\nrun them again:\n    {KEY}cargo advisory claim retry --table {} --error {}{KEY:#}",
                shell_word(&self.name),
                shell_word(part.trim())
            );
        }
    }
}

fn write_rows(text: &mut String, state: State, rows: &[Row], width: Option<usize>) {
    let cells = rows.iter().take(MOST).map(|row| {
        [
            one_line(&row.key),
            state.name(),
            row.age.map_or_else(String::new, |age| since(state, age)),
            row.attempts.map_or_else(String::new, |it| it.to_string()),
            one_line(&row.worker),
            one_line(row.error.as_deref().unwrap_or_default()),
        ]
    });
    let cells: Vec<[String; 6]> = cells.collect();
    if cells.is_empty() {
        text.push_str("no row of this state\n");
        return;
    }
    text.push_str(&ROWS.draw(&cells, width));
    if rows.len() > MOST {
        text.push_str("and more: `--where COLUMN=VALUE` narrows it\n");
    }
}

fn cells(state: State, summary: &Summary) -> [String; 5] {
    let attempts = summary.attempts.filter(|_| state != State::Done);
    let workers = summary.workers.iter().take(WORKERS);
    let workers = workers.map(|(name, rows)| format!("{} ({rows})", one_line(name)));
    let more = summary.workers.len().checked_sub(WORKERS + 1);
    let more = more.map(|more| format!("and {} more", more + 1));
    [
        state.name(),
        summary.rows.to_string(),
        summary
            .oldest
            .map_or_else(String::new, |age| since(state, age)),
        match attempts {
            Some((fewest, most)) if fewest == most => most.to_string(),
            Some((fewest, most)) => format!("{fewest} to {most}"),
            None => String::new(),
        },
        joined(workers.chain(more), ", "),
    ]
}

/// The time for which a row has been in its state, or will be.
pub(super) fn since(state: State, age: f64) -> String {
    let time = short(Duration::try_from_secs_f64(age.abs()).unwrap_or(Duration::MAX));
    match (state, age < 0.0) {
        (State::Running, _) => format!("{time} left"),
        (_, true) => format!("in {time}"),
        (State::Available, false) => time,
        (_, false) => format!("{time} ago"),
    }
}

fn as_json(queue: &Queue) -> Value {
    let states = queue.states.iter().map(|(state, summary)| {
        json!({
            "state": state.name(),
            "rows": summary.rows,
            "oldest_ms_ago": summary.oldest.map(millis),
            "fewest_attempts": summary.attempts.map(|(fewest, _)| fewest),
            "most_attempts": summary.attempts.map(|(_, most)| most),
            "workers": summary.workers.iter().map(|(worker, rows)| json!({ "name": worker, "rows": rows })).collect::<Vec<_>>(),
        })
    });
    let errors = queue.errors.iter().map(|error| {
        let is_failed = error.state == "failed";
        json!({
            "state": error.state,
            "rows": error.rows,
            "first_ms_ago": error.first.filter(|_| is_failed).map(millis),
            "last_ms_ago": error.last.filter(|_| is_failed).map(millis),
            "error": error.error,
        })
    });
    let rows = queue.rows.as_ref().map(|(state, rows)| {
        let rows = rows.iter().take(MOST).map(|row| {
            json!({
                "key": row.key,
                "state": state.name(),
                "ms_ago": row.age.map(millis),
                "attempts": row.attempts,
                "worker": Some(&row.worker).filter(|worker| !worker.is_empty()),
                "error": row.error,
            })
        });
        rows.collect::<Vec<_>>()
    });
    json!({
        "table": queue.name,
        "states": states.collect::<Vec<_>>(),
        "errors": errors.collect::<Vec<_>>(),
        "rows": rows,
        "not_known": queue.unread,
    })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a time in milliseconds, which saturates"
)]
fn millis(seconds: f64) -> i64 {
    (seconds * 1_000.0) as i64
}

/// The rows in a sentence: ``1 failed row of `mail` ``.
pub(super) fn rows_of(count: usize, states: &str, table: &Resolved) -> String {
    let rows = plural(count, &format!("{states} row"));
    format!("{rows} of `{}`", table.label)
}
