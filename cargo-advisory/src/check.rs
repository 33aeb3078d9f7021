//! Are the locks of the program in order, and what they were?

use std::fs;
use std::path::Path;

use clap::ArgMatches;

use crate::failure::Failure;
use crate::inventory::Inventory;
use crate::{cli, collisions, drift, dump, finding, json, release, screen};

/// Answers `cargo advisory check`; tells whether nothing was found.
pub(crate) fn run(matches: &ArgMatches) -> Result<bool, Failure> {
    let inventory = dump::inventory(matches)?;
    let mut findings = collisions::within(&inventory)?;
    for file in cli::paths(matches, "with") {
        findings.extend(collisions::between(&inventory, &other(&file)?, &file)?);
    }
    if let Some(file) = cli::path(matches, "against") {
        let allowed = matches.get_many::<String>("allow-key-change");
        let allowed: Vec<String> = allowed.into_iter().flatten().cloned().collect();
        let before = other(file)?;
        findings.extend(release::changes(&inventory, &before, file, &allowed));
    }
    for file in cli::paths(matches, "registry") {
        findings.extend(drift::check(&inventory, &file, dump::count(matches))?);
    }
    let text = finding::write(&findings, &inventory.summary(), cli::format_of(matches));
    screen::write(cli::path(matches, "output").map(AsRef::as_ref), &text)?;
    Ok(findings.is_empty())
}

/// Reads another program's inventory: a committed JSON file.
fn other(file: &Path) -> Result<Inventory, Failure> {
    let text = fs::read_to_string(file).map_err(|error| Failure::unread(file, error))?;
    json::read(file, &text)
}
