//! The command line of `key`.

use clap::{Arg, Command};

use crate::cli::{Format, format, output};

pub(super) fn define(command: Command) -> Command {
    command
        .about("Prints the numbers that a key becomes, and the SQL that finds its holder")
        .arg(
            Arg::new("text")
                .value_name("KEY")
                .required(true)
                .allow_hyphen_values(true)
                .help("The key as rendered, such as `booking:42`"),
        )
        .arg(format([Format::Table, Format::Json]))
        .arg(output())
}
