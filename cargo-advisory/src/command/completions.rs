//! The command line of `completions`, and the script that it prints.

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use crate::cli::NAME;
use crate::failure::Failure;
use crate::screen;

pub(super) fn define(command: Command) -> Command {
    command
        .about("Prints a completion script for a shell")
        .long_about(
            "Prints a script that completes `cargo-advisory`. In zsh, saved as `_cargo-advisory` on the `fpath`, it also completes \
             `cargo advisory`.",
        )
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(value_parser!(Shell)),
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<bool, Failure> {
    if let Some(shell) = matches.get_one::<Shell>("shell") {
        let mut script = Vec::new();
        clap_complete::generate(*shell, &mut super::advisory(NAME), NAME, &mut script);
        screen::write(None, &String::from_utf8_lossy(&script))?;
    }
    Ok(true)
}
