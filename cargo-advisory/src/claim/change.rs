//! The subcommands that change rows: `retry`, `cancel`, `release` and `prune`. Each prints the
//! number of rows and asks for confirmation.

use std::time::Duration;

use clap::Args;
use tokio_postgres::Client;

use super::jobs::{read, write};
use super::list::rows_of;
use super::resolved::Resolved;
use super::state::{Rows, State};
use crate::cli::Confirmation;
use crate::duration;
use crate::failure::{Failure, Result, bail};
use crate::screen;
use crate::text::joined;

const BATCH: usize = 1_000;

/// The change to rows that have not been completed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Retry,
    Cancel,
    Release,
}

#[derive(Args)]
pub(super) struct Change {
    /// Their primary keys, `42`, or `house,42` for a key of two columns
    #[arg(value_name = "KEY", required_unless_present_any = ["error", "all"], allow_negative_numbers = true)]
    keys: Vec<String>,
    /// All rows with this text in their error
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["keys", "all"])]
    error: Option<String>,
    /// All rows: failed ones for `retry`, those that wait for `cancel`, expired ones for `release`
    #[arg(long, conflicts_with = "keys")]
    all: bool,
    /// Only rows with this text in a column, such as `kind=mail`
    #[arg(long = "where", value_name = "COLUMN=VALUE")]
    filters: Vec<String>,
    #[command(flatten)]
    confirmation: Confirmation,
}

#[derive(Args)]
pub(super) struct Prune {
    /// How long ago a row must have ended, such as `7d`
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    older_than: Duration,
    /// The rows that are deleted: `done` or `failed`
    #[arg(long, value_name = "STATE", default_value = "done")]
    state: State,
    /// Only rows with this text in a column, such as `kind=mail`
    #[arg(long = "where", value_name = "COLUMN=VALUE")]
    filters: Vec<String>,
    #[command(flatten)]
    confirmation: Confirmation,
}

impl Kind {
    /// The states of the rows that it changes. Rows that are named by their keys can be in more
    /// states than those of `--all`.
    const fn states(self, has_keys: bool) -> &'static [State] {
        match (self, has_keys) {
            (Self::Retry, false) => &[State::Failed],
            (Self::Retry, true) => &[State::Failed, State::Scheduled],
            (Self::Cancel, false) => &[State::Available, State::Scheduled],
            (Self::Cancel, true) => State::PENDING,
            (Self::Release, false) => &[State::Expired],
            (Self::Release, true) => &[State::Running, State::Expired],
        }
    }

    /// The question, what is said of the changed rows, and an effect that the question does not name.
    const fn words(self, has_keys: bool) -> [&'static str; 3] {
        match self {
            Self::Retry => ["Run them again", "can be claimed again", ""],
            Self::Cancel if !has_keys => ["End them as failed", "ended as failed", ""],
            Self::Cancel => [
                "End them as failed",
                "ended as failed",
                "; a worker that runs one of them loses it: its next renewal and its end are refused",
            ],
            Self::Release => [
                "Take them from their workers",
                "taken from their workers, and can be claimed again",
                "; a worker that runs one of them loses it: its next renewal and its end are refused, and until then two can run it",
            ],
        }
    }

    fn assignments(self, table: &Resolved, rows: &mut Rows) -> Result<String> {
        let mut set = Vec::new();
        let mut write = |argument: &str, value: &str| {
            if let Some(column) = table.column(argument) {
                set.push(format!("{column} = {value}"));
            }
        };
        match self {
            Self::Retry => {
                write("failed_at", "NULL");
                write("attempts", "0");
                write("error_message", "NULL");
                write("run_at", table.now("run_at"));
            }
            Self::Cancel => {
                if table.column("failed_at").is_none() {
                    bail!(
                        "`{}` has no column for rows that failed, so none can be cancelled: delete them",
                        table.label
                    );
                }
                write("failed_at", table.now("failed_at"));
                let nth = rows.bind("cancelled by `cargo advisory claim cancel`");
                write("error_message", &format!("${nth}"));
            }
            Self::Release => {}
        }
        write("locked_until", "NULL");
        write("locked_by", "NULL");
        Ok(set.join(", "))
    }
}

impl Change {
    pub(super) async fn run(&self, client: &Client, table: &Resolved, kind: Kind) -> Result<bool> {
        let (has_keys, label) = (!self.keys.is_empty(), &table.label);
        let states = kind.states(has_keys);
        let mut rows = Rows::of(table, &self.filters)?;
        rows.add(table.of_states(states));
        if has_keys {
            rows.with_keys(table, &self.keys)?;
        }
        if let Some(error) = &self.error {
            let Some(column) = table.column("error_message") else {
                bail!("`{label}` has no column for errors: write keys, or `--all`");
            };
            let nth = rows.bind(error);
            rows.add(format!("strpos({column}::text, ${nth}) > 0"));
        }
        let names = joined(states.iter().map(|state| state.name()), " or ");
        let count = count(client, table, &rows).await?;
        if count == 0 {
            let said = format!("`{label}` has no such row that is {names}: nothing was changed\n");
            screen::print(&said)?;
            return Ok(false);
        }
        let condition = rows.sql();
        let set = kind.assignments(table, &mut rows)?;
        let [question, done, effect] = kind.words(has_keys);
        screen::note(&format!("{}{effect}\n", rows_of(count, &names, table)));
        if !self.confirmation.is_given(question)? {
            return Ok(false);
        }
        let name_in_sql = table.table.quoted();
        let update = format!("UPDATE {name_in_sql} SET {set} WHERE {condition}");
        let changed = write(client, &name_in_sql, &update, &rows.binds).await?;
        screen::print(&format!("{}: {done}\n", rows_of(changed, &names, table)))?;
        Ok(changed > 0)
    }
}

impl Prune {
    pub(super) async fn run(&self, client: &Client, table: &Resolved) -> Result<bool> {
        let (name, label) = (self.state.name(), &table.label);
        if self.state.is_pending() {
            bail!("`--state {name}`: only rows that ended are deleted, write `done` or `failed`");
        }
        let mut rows = Rows::of(table, &self.filters)?;
        rows.add(table.of_states(&[self.state]));
        let Some(column) = table.column(self.state.time()) else {
            bail!(
                "`{label}` has no column for when a row was {name}: its rows are deleted at their end"
            );
        };
        let nth = rows.bind(&format!("{} seconds", self.older_than.as_secs_f64()));
        rows.add(format!(
            "{column} < ({} - ${nth}::interval)",
            table.now(self.state.time())
        ));
        let count = count(client, table, &rows).await?;
        if count == 0 {
            let said = format!(
                "`{label}` has no row that has been {name} for that long: nothing was deleted\n"
            );
            screen::print(&said)?;
            return Ok(false);
        }
        screen::note(&format!("{}\n", rows_of(count, &name, table)));
        if !self.confirmation.is_given("Delete them")? {
            return Ok(false);
        }
        let (name_in_sql, condition) = (table.table.quoted(), rows.sql());
        let delete = format!(
            "DELETE FROM {name_in_sql} WHERE ctid = ANY (ARRAY(SELECT t.ctid FROM {name_in_sql} AS t \
             WHERE {condition} LIMIT {BATCH} FOR UPDATE SKIP LOCKED)) AND {condition}"
        );
        let mut deleted = 0;
        loop {
            match write(client, &name_in_sql, &delete, &rows.binds).await? {
                0 => break,
                batch => deleted += batch,
            }
        }
        screen::print(&format!("{}: deleted\n", rows_of(deleted, &name, table)))?;
        Ok(deleted > 0)
    }
}

async fn count(client: &Client, table: &Resolved, rows: &Rows) -> Result<usize> {
    let (name, condition) = (table.table.quoted(), rows.sql());
    let query = format!("SELECT count(*) AS rows FROM {name} WHERE {condition}");
    let counted = read(client, &query, &rows.binds, |row| row.try_get::<_, i64>(0)).await?;
    let counted = counted.map_err(|why| Failure::Input(format!("cannot count the rows: {why}")))?;
    Ok(usize::try_from(counted.iter().sum::<i64>()).unwrap_or_default())
}
