//! A list of the lock sites: `cargo advisory dump`.

use clap::{Args, ValueEnum};

use crate::cli::Output;
use crate::failure::Result;
use crate::selection::Artifacts;
use crate::{json, markdown, table};

/// Lists the lock sites: as a table, as JSON, or as a registry document to commit
///
/// Builds the selection, or reads the given artifacts, and lists their lock sites. Nothing is run:
/// every use of the attribute leaves a record in the program.
///
/// After a build, its libraries are read too. A file given by `--artifact` has only what its linker
/// kept: no crate that the source never names, and not what a static library loses without
/// `--whole-archive`. The last line names the crates that were seen.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The output format
    #[arg(long, default_value = "text")]
    format: Format,
    #[command(flatten)]
    output: Output,
    /// For how many keys the registry document gives the odds of a collision
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000)]
    keys: u64,
    #[command(flatten)]
    artifacts: Artifacts,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
    Markdown,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<bool> {
        let inventory = self.artifacts.inventory(false)?;
        let text = match self.format {
            Format::Text => table::write(&inventory, self.output.width()),
            Format::Json => json::write(&inventory),
            Format::Markdown => markdown::write(&inventory, self.keys),
        };
        self.output.write(&text)?;
        Ok(true)
    }
}
