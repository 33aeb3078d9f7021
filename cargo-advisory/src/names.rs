//! The lock sites that give numbers their names, and the program's claims.

use std::path::PathBuf;

use advisory_pattern::Record;
use advisory_runtime::monitor::Names;
use clap::Args;

use crate::failure::{Failure, Result};
use crate::inventory::Inventory;
use crate::{artifact, json};

// The files with the lock sites.
#[derive(Args)]
pub(crate) struct NameSources {
    /// A program that has the lock sites with the names
    #[arg(long, value_name = "FILE", global = true)]
    artifact: Vec<PathBuf>,
    /// A dumped inventory (JSON) that has the lock sites with the names
    #[arg(long, value_name = "FILE", global = true)]
    inventory: Vec<PathBuf>,
}

impl NameSources {
    pub(crate) fn are_named(&self) -> bool {
        !self.artifact.is_empty() || !self.inventory.is_empty()
    }

    pub(crate) fn names(&self) -> Result<Names> {
        names_of(self.inventory()?.sites)
    }

    pub(crate) fn inventory(&self) -> Result<Inventory> {
        Ok(artifact::read(&self.artifact, true)?.and(json::read_files(&self.inventory)?))
    }
}

pub(crate) fn names_of(sites: Vec<Record>) -> Result<Names> {
    Names::of(sites).map_err(|error| Failure::Input(format!("the inventory: {error}")))
}
