//! The lock sites that give numbers their names.

use std::path::PathBuf;

use advisory_runtime::monitor::Names;
use clap::Args;

use crate::failure::Failure;
use crate::inventory::Inventory;
use crate::json;

// The files with the lock sites.
#[derive(Args)]
pub(crate) struct NameSources {
    /// A program whose lock sites give the names
    #[arg(long, value_name = "FILE", global = true)]
    artifact: Vec<PathBuf>,
    /// A dumped inventory (JSON) whose lock sites give the names
    #[arg(long, value_name = "FILE", global = true)]
    inventory: Vec<PathBuf>,
}

impl NameSources {
    /// Reads the lock sites of the files.
    pub(crate) fn read(&self) -> Result<Names, Failure> {
        let mut sites = Inventory::read_named(&self.artifact)?.sites;
        for file in &self.inventory {
            sites.extend(json::read_file(file)?.sites);
        }
        Names::of(Inventory::of(sites).sites)
            .map_err(|error| Failure::Input(format!("the inventory: {error}")))
    }
}
