//! `cargo advisory build`: an inventory next to each artifact.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::check::collisions;
use crate::cli::{Answer, CODES, Format};
use crate::failure::Result;
use crate::selection::Selection;
use crate::{artifact, finding, json, screen};

/// Runs `cargo build`, writes `<artifact>.advisory.json` next to each artifact, and fails if locks
/// can collide
#[derive(Args)]
#[command(after_help = CODES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    answer: Answer,
    #[command(flatten)]
    selection: Selection,
}

impl Arguments {
    /// Returns `true` if no two locks can collide.
    pub(crate) fn run(&self) -> Result<bool> {
        let files = self.selection.build()?;
        let is_final =
            |file: &&PathBuf| file.parent().and_then(Path::file_name) != Some("deps".as_ref());
        for file in files.iter().filter(is_final) {
            let inventory = artifact::read(std::slice::from_ref(file), false)?;
            let beside = file.with_added_extension("advisory.json");
            screen::write(Some(&beside), &json::write(&inventory))?;
        }
        let inventory = artifact::read(&files, false)?;
        let findings = collisions::find(&inventory, &[])?;
        let text = || finding::text(&findings, &inventory.summary());
        if self.answer.format == Format::Json || self.answer.output.is_file() {
            self.answer.write(|_| text(), || finding::json(&findings))?;
        } else if !self.selection.is_quiet() || !findings.is_empty() {
            // Standard error, to which cargo writes its own messages.
            screen::note(&text());
        }
        Ok(findings.is_empty())
    }
}
