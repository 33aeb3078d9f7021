//! The command line of `dump`.

use clap::Command;

use crate::cli::{Format, format, key_count, output};
use crate::selection;

pub(super) fn define(command: Command) -> Command {
    let dump = command
        .about("Lists the lock sites: as a table, as JSON, or as a registry document to commit")
        .long_about(
            "Builds the selection, or takes the artifacts given, and lists the lock sites in them. Nothing is run: every use of the \
             attribute leaves a record in the program.\n\nA build also reads the libraries on the way. An artifact that is named has \
             only what its linker kept: not a crate that stands in a manifest and nowhere in the source, nor what a static library \
             loses without `--whole-archive`. The last line says which crates were seen.",
        )
        .arg(format([Format::Table, Format::Json, Format::Markdown]))
        .arg(output())
        .arg(key_count())
        .arg(selection::artifact());
    selection::arguments(dump)
}
