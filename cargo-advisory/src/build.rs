//! `cargo advisory build`: an inventory next to each artifact.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ArgMatches;

use crate::check::collisions;
use crate::cli::Format;
use crate::failure::Failure;
use crate::inventory::Inventory;
use crate::{cargo, cli, finding, json, screen, selection};

/// Runs `cargo advisory build`; returns whether no two locks can collide.
pub(crate) fn run(matches: &ArgMatches) -> Result<bool, Failure> {
    let files = cargo::build(&selection::flags(matches))?;
    for file in files.iter().filter(|file| is_final(file)) {
        let inventory = Inventory::read(std::slice::from_ref(file))?;
        screen::write(Some(&inventory_path(file)), &json::write(&inventory))?;
    }
    let inventory = Inventory::read(&files)?;
    let findings = collisions::within(&inventory)?;
    let format = cli::format_of(matches);
    let text = finding::write(&findings, &inventory.summary(), format);
    if format == Format::Json {
        screen::write(None, &text)?;
    } else if !matches.get_flag("quiet") || !findings.is_empty() {
        screen::note(&text);
    }
    Ok(findings.is_empty())
}

/// Whether the file is a final artifact; intermediate ones are in `deps`.
fn is_final(file: &Path) -> bool {
    file.parent().and_then(Path::file_name) != Some("deps".as_ref())
}

fn inventory_path(file: &Path) -> PathBuf {
    let mut name = file.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".advisory.json");
    file.with_file_name(name)
}
