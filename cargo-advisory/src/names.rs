//! The lock sites that give numbers their names, and the program's claims.

use std::path::PathBuf;

use advisory_pattern::ClaimRecord;
use advisory_runtime::monitor::Names;
use clap::Args;

use crate::failure::{Failure, Result};
use crate::inventory::Inventory;
use crate::{artifact, json};

/// The number of locks that a slice takes at most by default. An inventory does not have
/// `max_keys`.
const MANY: u64 = 64;

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

    pub(crate) fn read(&self) -> Result<(Names, Vec<ClaimRecord>)> {
        let inventory = self.inventory()?;
        let names = Names::of(inventory.sites)
            .map_err(|error| Failure::Input(format!("the inventory: {error}")))?;
        Ok((names, inventory.claims))
    }

    /// The call that can take the most locks, and how many; `None` without a lock.
    pub(crate) fn most_keys(&self) -> Result<Option<(u64, String)>> {
        let sites = self.inventory()?.sites;
        let locks = sites.iter().filter(|site| site.scope != "lease");
        let most = locks.map(|site| {
            let keys = site.written.iter();
            let keys = keys.map(|key| if key.contains("*>") { MANY } else { 1 });
            (keys.sum(), site.function.clone())
        });
        Ok(most.max())
    }

    fn inventory(&self) -> Result<Inventory> {
        Ok(artifact::read(&self.artifact, true)?.and(json::read_files(&self.inventory)?))
    }
}
