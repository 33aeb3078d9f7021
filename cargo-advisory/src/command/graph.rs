//! The command line of `graph`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, Command, ValueHint, value_parser};

use super::CODES;
use crate::cli::{Format, format, output};

pub(super) fn define(command: Command) -> Command {
    command
        .about("Draws the order in which tests acquire locks; fails if there is more than one")
        .long_about(
            "Writes the recorded order of locks as a graph: DOT for Graphviz, or Mermaid, which code hosts draw. Debug builds append \
             their order to the file that `ADVISORY_LOCK_ORDER` names: `ADVISORY_LOCK_ORDER=\"$PWD/target/lock-order\" cargo test`. \
             Delete the file before a run that should stand alone.\n\nThe arrows of a cycle are red, and reported on the standard \
             error: these calls can wait for each other.",
        )
        .arg(
            Arg::new("from")
                .long("from")
                .value_name("FILE")
                .action(ArgAction::Append)
                .value_parser(value_parser!(PathBuf))
                .value_hint(ValueHint::FilePath)
                .help("The record [default: the file that `ADVISORY_LOCK_ORDER` names]"),
        )
        .arg(format([Format::Dot, Format::Mermaid]))
        .arg(output())
        .after_help(CODES)
}
