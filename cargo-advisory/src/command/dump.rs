//! The command line of `dump`.

use clap::Command;

use crate::cli::{Format, format, key_count, output};
use crate::selection;

pub(super) fn define(command: Command) -> Command {
    let dump = command
        .about("Lists the lock sites: as a table, as JSON, or as a registry document to commit")
        .long_about(
            "Builds the selection, or reads the given artifacts, and lists their lock sites. Nothing is run: every use of the attribute \
             leaves a record in the program.\n\nAfter a build, its libraries are read too. A file given by `--artifact` has only what its linker \
             kept: no crate that the source never names, and not what a static library loses without \
             `--whole-archive`. The last line names the crates that were seen.",
        )
        .arg(format([Format::Table, Format::Json, Format::Markdown]))
        .arg(output())
        .arg(key_count())
        .arg(selection::artifact());
    selection::arguments(dump)
}
