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
        .about("Fails if locks can collide, or differ from a document, a release or a database")
        .long_about(
            "Builds the selection, or reads the given artifacts, and compares every two lock sites across all crates: they must be one \
             lock on purpose, or never share a key.",
        )
        .arg(format([Format::Text, Format::Json]))
        .arg(output())
        .arg(
            file("registry")
                .action(ArgAction::Append)
                .help("The committed document, JSON or Markdown: fails if it is out of date (line numbers are not compared)"),
        )
        .arg(
            file("with")
                .action(ArgAction::Append)
                .help("The inventory (JSON) of another service on the same database: fails if locks can collide with its locks"),
        )
        .arg(
            file("against")
                .help("The inventory (JSON) of an earlier release: fails if a lock's key has changed"),
        )
        .arg(
            Arg::new("allow-key-change")
                .long("allow-key-change")
                .value_name("NAME")
                .action(ArgAction::Append)
                .requires("against")
                .help("The name of a lock, or the path of its function, whose key changes on purpose"),
        )
        .arg(
            Arg::new("database-url")
                .long("database-url")
                .value_name("URL")
                .help(
                    "A database: fails if a guarded table has no trigger for its lock, or one that computes another key; advises where \
                     a constraint could say the rule, or an index is missing",
                ),
        )
        .arg(
            Arg::new("keep-lock")
                .long("keep-lock")
                .value_name("LOCK=REASON")
                .action(ArgAction::Append)
                .requires("database-url")
                .help("A lock that is needed although a constraint could say a rule on its columns, and why"),
        )
        .arg(key_count())
        .arg(selection::artifact());
    selection::arguments(check).after_help(CODES)
}
