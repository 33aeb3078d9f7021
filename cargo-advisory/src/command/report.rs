//! The command line of `report`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, Command, ValueHint, value_parser};

use crate::cli::output;
use crate::selection;

pub(super) fn define(command: Command) -> Command {
    let file = |name: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("FILE")
            .action(ArgAction::Append)
            .value_parser(value_parser!(PathBuf))
            .value_hint(ValueHint::FilePath)
    };
    let report = command
        .about("Writes one page (HTML) with all locks of a program: by component, in which order, with findings and changes")
        .long_about(
            "Writes one HTML page: the locks by component, the order in which tests acquire them, the collisions, and what has changed \
             since a release. The file has no script and loads nothing, so it can be mailed or published by CI.\n\nFindings are on the \
             page; `check` is what fails.",
        )
        .arg(output())
        .arg(file("from").help("The order of locks that tests have recorded in the file that `ADVISORY_LOCK_ORDER` names"))
        .arg(file("with").help("The inventory (JSON) of another service on the same database"))
        .arg(file("against").action(ArgAction::Set).help("The inventory (JSON) of an earlier release"))
        .arg(selection::artifact());
    selection::arguments(report)
}
