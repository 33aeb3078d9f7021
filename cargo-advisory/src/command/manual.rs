//! Writes manual pages: `cargo advisory manual`.

use std::fs;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::failure::{Failure, Result};

/// Writes manual pages for `man`
///
/// There is one for the command and one for each subcommand, in a folder that it creates. In a
/// folder `man1` on the `MANPATH`, `man cargo-advisory-locks` shows them.
#[derive(Args)]
pub(super) struct Arguments {
    /// Where the pages are written
    #[arg(value_hint = ValueHint::DirPath)]
    folder: PathBuf,
}

impl Arguments {
    pub(super) fn run(&self) -> Result<bool> {
        // A user writes two words; the files are named with hyphens.
        let command = super::advisory().bin_name("cargo advisory");
        let folder = &self.folder;
        fs::create_dir_all(folder)
            .and_then(|()| clap_mangen::generate_to(command, folder))
            .map_err(|error| {
                Failure::file(folder, format_args!("cannot write the pages: {error}"))
            })?;
        Ok(true)
    }
}
