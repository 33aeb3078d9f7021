//! Shows the rows of a program's job tables by state, and changes rows that failed or hang:
//! `cargo advisory claim`.
//!
//! `resolved` finds a table in the database, and `state` selects its rows. `list` and `show` read
//! them, and `change` writes them, both through `jobs`.

mod change;
mod jobs;
mod list;
mod resolved;
mod show;
mod state;

use clap::{Args, Subcommand};

use crate::cli::CODES;
use crate::database::{self, DatabaseUrl, Queries};
use crate::failure::{Result, bail};
use crate::job_table::{ClaimOptions, JobTable};
use crate::selection::NameSources;
use crate::text::joined;
use change::{Change, Kind, Prune};
use resolved::Resolved;

/// Shows the rows that workers claim, by state, and runs, cancels, frees or deletes them
///
/// The tables are those of the program's claims, from `--artifact` or `--inventory`. Without these,
/// `--table` names one, with the columns of `#[claim(run_at, attempts)]` or those that the options
/// name.
///
/// `list` and `show` change nothing. The others print the number of rows that they change, and ask
/// for confirmation, unless `--yes` is given.
#[derive(Args)]
#[command(arg_required_else_help = true, after_help = CODES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    database_url: DatabaseUrl,
    #[command(flatten)]
    claim: ClaimOptions,
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
    /// Returns `false` if nothing was changed, or if there is no row to show.
    pub(crate) fn run(&self) -> Result<bool> {
        let tables = self.tables()?;
        let address = self.database_url.find()?;
        if let Action::List(list) = &self.action
            && let Some(every) = list.every()
        {
            return list.watch(&address, &tables, every);
        }
        database::with(&address, async |queries: &mut Queries| {
            let client = &queries.client;
            let table = async || Resolved::find(client, only(&tables)?).await;
            match &self.action {
                Action::List(list) => list.run(client, &tables).await,
                Action::Show(show) => show.run(client, &table().await?).await,
                Action::Retry(change) => change.run(client, &table().await?, Kind::Retry).await,
                Action::Cancel(change) => change.run(client, &table().await?, Kind::Cancel).await,
                Action::Release(change) => change.run(client, &table().await?, Kind::Release).await,
                Action::Prune(prune) => prune.run(client, &table().await?).await,
            }
        })
    }

    /// The tables of the inventory's claims, or the one that is named.
    fn tables(&self) -> Result<Vec<JobTable>> {
        let is_program_named = self.names.are_named();
        if !is_program_named && self.claim.table.is_none() {
            bail!(
                "no table: write `--table mail`, or name the program, `--artifact target/release/shop`"
            );
        }
        let inventory = || self.names.inventory();
        self.claim
            .tables(is_program_named, "leave it out", inventory)
    }
}

/// The only table, because rows of only one can be changed.
fn only(tables: &[JobTable]) -> Result<&JobTable> {
    if let [table] = tables {
        return Ok(table);
    }
    let names = tables.iter().map(JobTable::label);
    let names = joined(names.map(|name| format!("`--table {name}`")), " or ");
    bail!("the program claims several tables: write {names}")
}
