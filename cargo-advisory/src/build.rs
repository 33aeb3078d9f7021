//! `cargo advisory build`: an inventory next to each artifact.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::check::collisions;
use crate::cli::{CODES, Format, Output};
use crate::failure::Failure;
use crate::inventory::Inventory;
use crate::selection::Selection;
use crate::{finding, json, screen};

/// Runs `cargo build`, writes `<artifact>.advisory.json` beside each artifact, and fails if locks
/// can collide
#[derive(Args)]
#[command(after_help = CODES)]
pub(crate) struct Arguments {
    /// The output format
    #[arg(long, default_value = "text")]
    format: Format,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    selection: Selection,
}

impl Arguments {
    /// Returns whether no two locks can collide.
    pub(crate) fn run(&self) -> Result<bool, Failure> {
        let files = self.selection.build()?;
        for file in files.iter().filter(|file| is_final(file)) {
            let inventory = Inventory::read(std::slice::from_ref(file))?;
            screen::write(Some(&inventory_path(file)), &json::write(&inventory))?;
        }
        let inventory = Inventory::read(&files)?;
        let findings = collisions::within(&inventory)?;
        let text = match self.format {
            Format::Text => finding::text(&findings, &inventory.summary()),
            Format::Json => finding::json(&findings),
        };
        if self.format == Format::Json || self.output.is_file() {
            self.output.write(&text)?;
        } else if !self.selection.is_quiet() || !findings.is_empty() {
            // Standard error, to which cargo writes its own messages.
            screen::note(&text);
        }
        Ok(findings.is_empty())
    }
}

/// Returns whether the file is a final artifact; intermediate ones are in `deps`.
fn is_final(file: &Path) -> bool {
    file.parent().and_then(Path::file_name) != Some("deps".as_ref())
}

fn inventory_path(file: &Path) -> PathBuf {
    let mut name = file.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".advisory.json");
    file.with_file_name(name)
}
