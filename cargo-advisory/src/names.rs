//! The lock sites that give numbers their names.

use std::path::PathBuf;

use advisory_runtime::monitor::Names;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};

use crate::cli;
use crate::failure::Failure;
use crate::inventory::Inventory;
use crate::json;

/// `--artifact` and `--inventory`.
pub(crate) fn arguments(command: Command) -> Command {
    let file = |name: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("FILE")
            .action(ArgAction::Append)
            .value_parser(value_parser!(PathBuf))
            .value_hint(ValueHint::FilePath)
            .global(true)
    };
    command
        .arg(file("artifact").help("A program whose lock sites give the names"))
        .arg(file("inventory").help("A dumped inventory (JSON) whose lock sites give the names"))
}

/// Reads the lock sites of the files that are given.
pub(crate) fn read(matches: &ArgMatches) -> Result<Names, Failure> {
    let mut sites = Inventory::read_named(&cli::paths(matches, "artifact"))?.sites;
    for file in cli::paths(matches, "inventory") {
        sites.extend(json::read_file(&file)?.sites);
    }
    Names::of(Inventory::of(sites).sites)
        .map_err(|error| Failure::Input(format!("the inventory: {error}")))
}
