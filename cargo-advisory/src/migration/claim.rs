//! The migration of claims: the columns that a program's claim uses, and its indexes and triggers.

use clap::Args;

use crate::cli::Output;
use crate::failure::Result;
use crate::job_table::{ClaimOptions, JobTable};
use crate::selection::Artifacts;
use crate::text::joined;

/// Columns, indexes and triggers for a job table
///
/// Prints what the claims of a program need: the columns that they use, the indexes of
/// `claim::indexes`, and the triggers that wake up an idle `claim::Worker`. What exists already is
/// left as it is.
///
/// The claims are those of the program, which is built, or read from `--artifact`. With `--table`
/// alone, there is one claim on this table, with the columns of `#[claim(run_at, attempts)]` or
/// those that the options name.
#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    claim: ClaimOptions,
    /// Prints `down.sql`, which drops the columns and their contents
    #[arg(long)]
    down: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    artifacts: Artifacts,
}

impl Arguments {
    pub(super) fn run(&self) -> Result<()> {
        let instead = match &self.claim.table {
            Some(_) => "leave it out, or `--artifact`",
            None => "name the table, `--table mail`",
        };
        let inventory = || self.artifacts.inventory(false);
        let tables = self
            .claim
            .tables(self.artifacts.are_named(), instead, inventory)?;
        let schemas = tables.iter().map(JobTable::definition);
        let sql = schemas.map(|schema| {
            if self.down {
                schema.down()
            } else {
                schema.up()
            }
        });
        self.output.write(&joined(sql, "\n"))
    }
}
