//! `cargo build`, with the inventory beside each artifact.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ArgMatches;

use crate::failure::Failure;
use crate::inventory::Inventory;
use crate::{cargo, cli, collisions, finding, json, screen, selection};

/// Answers `cargo advisory build`; tells whether no two locks can collide.
pub(crate) fn run(matches: &ArgMatches) -> Result<bool, Failure> {
    let files = cargo::build(&selection::flags(matches))?;
    for file in files.iter().filter(|file| is_result(file)) {
        let inventory = Inventory::read(std::slice::from_ref(file))?;
        screen::write(Some(&beside(file)), &json::write(&inventory))?;
    }
    let inventory = Inventory::read(&files)?;
    let findings = collisions::within(&inventory)?;
    let format = cli::format_of(matches);
    let text = finding::write(&findings, &inventory.summary(), format);
    if format == cli::Format::Json {
        screen::write(None, &text)?;
    } else if !matches.get_flag("quiet") || !findings.is_empty() {
        screen::note(&text);
    }
    Ok(findings.is_empty())
}

/// Whether cargo puts the file where people look for it; what it needed on the way is in `deps`.
fn is_result(file: &Path) -> bool {
    file.parent().and_then(Path::file_name) != Some("deps".as_ref())
}

fn beside(file: &Path) -> PathBuf {
    let mut name = file.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".advisory.json");
    file.with_file_name(name)
}
