//! The command line of `key`.

use clap::{Arg, ArgAction, Command};

use crate::cli::{Format, database_url, format, output};

pub(super) fn define(command: Command) -> Command {
    command
        .about("Prints the numbers of a key and the SQL that finds its holder; finds the key of a number")
        .long_about(
            "Prints the numbers that a key becomes, and the SQL that finds its holder; for a number, the tool that uses it.\n\nWith `--find` \
             it goes the other way: it renders the patterns with all combinations of the values, and prints those that have the \
             number. Exits with 1 if none has it.",
        )
        .arg(
            Arg::new("text")
                .value_name("KEY")
                .required_unless_present("find")
                .allow_hyphen_values(true)
                .help("The key as rendered, such as `booking:42` or `(7,\"booking:42\")`, or a number"),
        )
        .arg(
            Arg::new("database")
                .long("database")
                .value_name("NAME")
                .help("The database's name, from which some tools compute their key"),
        )
        .arg(
            Arg::new("find")
                .long("find")
                .value_name("NUMBER")
                .allow_hyphen_values(true)
                .conflicts_with_all(["text", "format"])
                .requires("pattern")
                .help("Finds the text with this number, pair `(7, 42)`, or start of a lease's hash"),
        )
        .arg(
            Arg::new("pattern")
                .long("pattern")
                .value_name("PATTERN")
                .action(ArgAction::Append)
                .requires("find")
                .help("A key pattern, such as `<tenant_id>:<date>`, as `locks` shows it; repeat it for several"),
        )
        .arg(
            Arg::new("values")
                .long("values")
                .value_name("[NAME=]SOURCE")
                .action(ArgAction::Append)
                .requires("find")
                .help(
                    "The values of a placeholder: a file with one a line (`-` for the standard input), `1..1000`, \
                     `2026-11-01..2026-11-30`, or a query, `SELECT id FROM tenant`",
                ),
        )
        .arg(database_url())
        .arg(format([Format::Table, Format::Json]))
        .arg(output())
}
