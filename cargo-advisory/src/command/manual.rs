//! The command line of `manual`, and the pages that it writes.

use std::fs;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, ValueHint, value_parser};

use crate::cli::{self, NAME};
use crate::failure::Failure;

pub(super) fn define(command: Command) -> Command {
    command
        .about("Writes manual pages for `man`")
        .long_about(
            "Writes a manual page for the command and one for each subcommand into a folder, which it creates. In a folder `man1` \
             on the `MANPATH`, `man cargo-advisory-locks` shows them.",
        )
        .arg(
            Arg::new("folder")
                .value_name("FOLDER")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .value_hint(ValueHint::DirPath)
                .help("Where the pages are written"),
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<bool, Failure> {
    if let Some(folder) = cli::path(matches, "folder") {
        // A user writes two words; the files are named with hyphens.
        let command = super::advisory(NAME).bin_name("cargo advisory");
        fs::create_dir_all(folder)
            .and_then(|()| clap_mangen::generate_to(command, folder))
            .map_err(|error| {
                Failure::file(folder, format_args!("cannot write the pages: {error}"))
            })?;
    }
    Ok(true)
}
