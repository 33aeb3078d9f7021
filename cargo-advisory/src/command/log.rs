//! The command line of `log`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, Command, ValueHint, value_parser};

use super::CODES;
use crate::cli::{Format, flag, format, output};
use crate::names;

pub(super) fn define(command: Command) -> Command {
    let log = command
        .about("Tells the waits for advisory locks and the deadlocks in a server's log, by lock")
        .long_about(
            "Reads PostgreSQL's log, in the stderr format, as csvlog or as jsonlog, and tells the advisory locks in it: waits that were \
             longer than `deadlock_timeout`, if `log_lock_waits` is on; waits that were cancelled; and deadlocks. For each lock: how \
             often, how long, and who held it.\n\nNumbers have the names of the lock sites of `--artifact` or `--inventory`, those in the \
             comments of the statements, or that of the tool that takes them. Messages must be in English (`lc_messages = C`).",
        )
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .action(ArgAction::Append)
                .value_parser(value_parser!(PathBuf))
                .value_hint(ValueHint::FilePath)
                .help("The server's log; `-`, or none, for the standard input"),
        )
        .arg(
            flag("follow", "Goes on as the log grows, and tells what happens on a line each, until Ctrl-C")
                .short('f')
                .conflicts_with("output"),
        )
        .arg(format([Format::Table, Format::Json]))
        .arg(output())
        .after_help(CODES);
    names::arguments(log)
}
