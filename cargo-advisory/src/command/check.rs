//! The command line of `check`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, Command, ValueHint, value_parser};

use super::CODES;
use crate::cli::{Format, format, key_count, output};
use crate::selection;

pub(super) fn define(command: Command) -> Command {
    let file = |name: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .value_hint(ValueHint::FilePath)
    };
    let check = command
        .about("Fails if locks can collide, or if they are not what they were")
        .long_about(
            "Builds the selection, or takes the artifacts given, and compares every two lock sites across all crates: they have to be \
             one lock on purpose, or never share a key.",
        )
        .arg(format([Format::Text, Format::Json]))
        .arg(output())
        .arg(
            file("registry")
                .action(ArgAction::Append)
                .help("The committed document, JSON or Markdown: fails if it is out of date (line numbers may be)"),
        )
        .arg(
            file("with")
                .action(ArgAction::Append)
                .help("The inventory, as JSON, of another service on the same database: fails if locks collide with its locks"),
        )
        .arg(
            file("against")
                .help("The inventory, as JSON, of the release before: fails if a lock's key has changed since"),
        )
        .arg(
            Arg::new("allow-key-change")
                .long("allow-key-change")
                .value_name("NAME")
                .action(ArgAction::Append)
                .requires("against")
                .help("The name, or the function's path, of a lock whose key changes on purpose"),
        )
        .arg(
            Arg::new("database-url")
                .long("database-url")
                .value_name("URL")
                .help("A database: fails if a table that a lock guards is without the lock's trigger, or has one of another key"),
        )
        .arg(key_count())
        .arg(selection::artifact());
    selection::arguments(check).after_help(CODES)
}
