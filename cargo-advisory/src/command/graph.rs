//! The command line of `graph`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, Command, ValueHint, value_parser};

use super::CODES;
use crate::cli::{Format, format, output};

pub(super) fn define(command: Command) -> Command {
    command
        .about("Draws the order in which tests have taken their locks; fails if there are two")
        .long_about(
            "Writes the recorded order of locks as a graph: DOT for Graphviz, or Mermaid, which code hosts draw. A debug build records it where `ADVISORY_LOCK_ORDER` names a file, to which \
             each process appends: `ADVISORY_LOCK_ORDER=\"$PWD/target/lock-order\" cargo test`. Delete the file before a run that is \
             to stand alone.\n\nArrows that go round are red, and told on the standard error: two calls can wait for each other.",
        )
        .arg(
            Arg::new("from")
                .long("from")
                .value_name("FILE")
                .action(ArgAction::Append)
                .value_parser(value_parser!(PathBuf))
                .value_hint(ValueHint::FilePath)
                .help("What was recorded; without it the file that `ADVISORY_LOCK_ORDER` names"),
        )
        .arg(format([Format::Dot, Format::Mermaid]))
        .arg(output())
        .after_help(CODES)
}
