//! The lock sites that give numbers their names, and the claims beside them.

use std::path::PathBuf;

use advisory_pattern::ClaimRecord;
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
        Ok(self.read_all()?.0)
    }

    /// Reads the lock sites and the claims of the files.
    pub(crate) fn read_all(&self) -> Result<(Names, Vec<ClaimRecord>), Failure> {
        let mut inventory = Inventory::read_named(&self.artifact)?;
        for file in &self.inventory {
            inventory = inventory.and(json::read_file(file)?);
        }
        let names = Names::of(inventory.sites)
            .map_err(|error| Failure::Input(format!("the inventory: {error}")))?;
        Ok((names, inventory.claims))
    }
}
