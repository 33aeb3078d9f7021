//! The command line of `log`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, Command, ValueHint, value_parser};

use super::CODES;
use crate::cli::{Format, flag, format, output};
use crate::names;

pub(super) fn define(command: Command) -> Command {
    let log = command
        .about("Sums up the waits for each advisory lock, and the deadlocks, in a server's log")
        .long_about(
            "Reads PostgreSQL's log (stderr, csvlog or jsonlog), and prints for each advisory lock how often sessions waited for it, how \
             long, and who held it. The log has the waits longer than `deadlock_timeout`, if `log_lock_waits` is on, those that were \
             cancelled, and deadlocks.\n\nNames come from the lock sites of `--artifact` or `--inventory`, from the comments of the \
             statements, or from the table of other tools' numbers. Messages must be in English (`lc_messages = C`).",
        )
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .action(ArgAction::Append)
                .value_parser(value_parser!(PathBuf))
                .value_hint(ValueHint::FilePath)
                .help("The server's log; `-` or none for the standard input"),
        )
        .arg(
            flag("follow", "Continues as the log grows, and prints each event on a line, until Ctrl-C")
                .short('f')
                .conflicts_with("output"),
        )
        .arg(
            Arg::new("database-url")
                .long("database-url")
                .value_name("URL")
                .help("The server that wrote the log: gives the databases their names where `log_line_prefix` has no `%d`"),
        )
        .arg(format([Format::Table, Format::Json]))
        .arg(output())
        .after_help(CODES);
    names::arguments(log)
}
