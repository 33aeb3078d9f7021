//! The command line of `key`.

use clap::{Arg, Command};

use crate::cli::{Format, format, output};

pub(super) fn define(command: Command) -> Command {
    command
        .about("Prints the numbers of a key and the SQL that finds its holder; names the tool that uses a number")
        .arg(
            Arg::new("text")
                .value_name("KEY")
                .required(true)
                .allow_hyphen_values(true)
                .help("The key as rendered, such as `booking:42` or `(7,\"booking:42\")`, or a number"),
        )
        .arg(
            Arg::new("database")
                .long("database")
                .value_name("NAME")
                .help("The database's name, from which some tools compute their key"),
        )
        .arg(format([Format::Table, Format::Json]))
        .arg(output())
}
