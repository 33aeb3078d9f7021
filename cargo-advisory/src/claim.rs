//! The queue of a program: its rows by state, one row, and what to do with rows that failed or
//! hang: `cargo advisory claim`.
//!
//! `jobs` is the connection, `resolved` finds the tables in the database, `state` has what decides
//! about a row, `list` and `show` read, and `change` writes.

mod change;
mod jobs;
mod list;
mod resolved;
mod show;
mod state;

use clap::{Args, Subcommand};

use crate::cli::CODES;
use crate::database::{self, DatabaseUrl};
use crate::failure::Failure;
use crate::job_table::{ClaimColumns, JobTable};
use crate::names::NameSources;
use change::{Change, Kind, Prune};
use jobs::Jobs;
use resolved::Resolved;

/// Shows the rows that workers claim, by state, and runs, cancels, frees or deletes them
///
/// The tables are those of the program's claims, from `--artifact` or `--inventory`, or the one of
/// `--table`, with the columns of `#[claim(run_at, attempts)]` or those that the options name.
///
/// `list` and `show` change nothing. The others say how many rows they change, and ask; `--yes`
/// answers.
#[derive(Args)]
#[command(arg_required_else_help = true, after_help = CODES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    database_url: DatabaseUrl,
    /// The table: `mail`, or `shop.mail`
    #[arg(long, global = true)]
    table: Option<String>,
    #[command(flatten)]
    columns: ClaimColumns,
    #[command(flatten)]
    names: NameSources,
}

#[derive(Subcommand)]
enum Action {
    /// Counts the rows by state: how old, how many attempts, by whom, and with which errors
    List(list::Arguments),
    /// Shows one row
    Show(show::Arguments),
    /// Runs failed rows again, as new ones
    Retry(Change),
    /// Ends rows as failed, so that no worker runs them
    Cancel(Change),
    /// Takes running rows away from their worker, so that another one runs them
    Release(Change),
    /// Deletes rows that ended long ago
    Prune(Prune),
}

impl Arguments {
    /// Returns `false` if nothing was changed, or shown.
    pub(crate) fn run(&self) -> Result<bool, Failure> {
        let tables = self.tables()?;
        let address = self.database_url.find()?;
        database::block_on(async {
            if let Action::List(list) = &self.action
                && let Some(every) = list.every()
            {
                return list.watch(&address, &tables, every).await;
            }
            let jobs = Jobs::open(&address).await?;
            let done = self.act(&jobs, &tables).await;
            jobs.close().await;
            done
        })
    }

    async fn act(&self, jobs: &Jobs, tables: &[JobTable]) -> Result<bool, Failure> {
        if let Action::List(list) = &self.action {
            let text = list.read(jobs, tables).await?;
            return list.write(&text);
        }
        let table = Resolved::find(jobs, only(tables)?).await?;
        match &self.action {
            Action::List(_) => Ok(true),
            Action::Show(show) => show.run(jobs, &table).await,
            Action::Retry(change) => change.run(jobs, &table, Kind::Retry).await,
            Action::Cancel(change) => change.run(jobs, &table, Kind::Cancel).await,
            Action::Release(change) => change.run(jobs, &table, Kind::Release).await,
            Action::Prune(prune) => prune.run(jobs, &table).await,
        }
    }

    /// The tables of the inventory's claims, or the one that is named.
    fn tables(&self) -> Result<Vec<JobTable>, Failure> {
        let has_inventory = self.names.are_named();
        match &self.table {
            Some(table) if !has_inventory => Ok(vec![self.columns.on(table)?]),
            None if !has_inventory => Err(Failure::Input(
                "no table: write `--table mail`, or name the program, `--artifact target/release/shop`".to_owned(),
            )),
            table => {
                if let Some(option) = self.columns.given() {
                    return Err(Failure::Input(format!(
                        "`{option}` does not apply to the claims of a program, which has its columns: leave it out"
                    )));
                }
                let (_, claims) = self.names.read_all()?;
                JobTable::of_inventory(&claims, table.as_deref())
            }
        }
    }
}

/// The only table: what changes rows is about one.
fn only(tables: &[JobTable]) -> Result<&JobTable, Failure> {
    match tables {
        [table] => Ok(table),
        several => {
            let names: Vec<String> = several
                .iter()
                .map(|table| format!("`--table {}`", table.label()))
                .collect();
            Err(Failure::Input(format!(
                "the program claims several tables: write {}",
                names.join(" or ")
            )))
        }
    }
}
