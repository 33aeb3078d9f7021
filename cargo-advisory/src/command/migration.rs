//! The command line of `migration`.

use std::path::PathBuf;

use advisory_pattern::Derivation;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, Command, ValueHint, value_parser};

use crate::cli::{flag, output};
use crate::selection;

pub(super) fn define(command: Command) -> Command {
    command
        .about("Prints the SQL of a migration: `lease`, `claim`, `keys` or `require`")
        .long_about(
            "Prints the SQL of a migration, for a folder of Diesel migrations:\n\n    diesel migration generate advisory_lease\n    \
             cargo advisory migration lease -o migrations/*_advisory_lease/up.sql\n    \
             cargo advisory migration lease --down -o migrations/*_advisory_lease/down.sql",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(lease(Command::new("lease")))
        .subcommand(claim(Command::new("claim")))
        .subcommand(keys(Command::new("keys")))
        .subcommand(require(Command::new("require")))
}

fn lease(command: Command) -> Command {
    command
        .about("The lease table")
        .arg(Arg::new("table").long("table").value_name("TABLE").help(
            "Its name, such as `app_lease` or `locks.app_lease` [default: public.advisory_lease]",
        ))
        .arg(flag(
            "down",
            "Prints `down.sql`, which drops the table, and with it the last fencing token",
        ))
        .arg(output())
}

fn claim(command: Command) -> Command {
    let text =
        |name: &'static str, value: &'static str| Arg::new(name).long(name).value_name(value);
    command
        .about("Columns, indexes and triggers for a table whose rows are claimed")
        .long_about(
            "Prints what makes a queue of a table: the columns of `#[claim(run_at, attempts)]`, the indexes, and the triggers that wake \
             up an idle `claim::Worker`. What exists already is left as it is.",
        )
        .arg(text("table", "TABLE").required(true).help("The table: `mail`, or `shop.mail`"))
        .arg(text("order", "COLUMNS").help(
            "The columns of `#[claim(order = \"…\")]`, such as `priority desc, id` [default: run_at, id]",
        ))
        .arg(text("per", "COLUMN").help("The column of `#[claim(per = \"…\")]`, which the table has already"))
        .arg(flag(
            "down",
            "Prints `down.sql`, which drops the columns, and what they contain",
        ))
        .arg(output())
}

fn keys(command: Command) -> Command {
    command
        .about("SQL functions that compute the same keys in other programs, such as `advisory_key('booking:42')`")
        .arg(flag("down", "Prints `down.sql`, which drops the functions"))
        .arg(output())
}

fn require(command: Command) -> Command {
    let text =
        |name: &'static str, value: &'static str| Arg::new(name).long(name).value_name(value);
    let derivations = Derivation::ALL.map(Derivation::name);
    let derivation = PossibleValuesParser::new(derivations)
        .try_map(|name| Derivation::from_name(&name).ok_or("unknown derivation"));
    let require = command
        .about("A trigger that refuses writes to a table without the lock")
        .long_about(
            "Prints a trigger that computes the lock's key from the row, by the lock's own pattern, and refuses the write unless the \
             session holds the lock in exclusive mode. It applies to every program, and to `psql`.\n\nThe lock is found by its name in \
             the program that cargo builds, or given as a pattern. A placeholder is the column of the same name, unless `--column` says \
             otherwise.",
        )
        .arg(text("lock", "NAME").help("The lock's name, or the path of its function or declared type"))
        .arg(
            text("key", "PATTERN")
                .help("The lock's key pattern with its shapes, such as `<tenant_id: uuid>:<date: date>`"),
        )
        .arg(
            text("derivation", "NAME")
                .requires("key")
                .value_parser(derivation)
                .help("How the key becomes a number [default: sha256]"),
        )
        .arg(
            text("table", "TABLE")
                .required(true)
                .help("The table to guard: `bookings`, or `shop.bookings`"),
        )
        .arg(
            text("column", "NAME=SQL")
                .action(ArgAction::Append)
                .help("A placeholder's column, or an expression over the row, such as `date=starts_at::date`"),
        )
        .arg(flag("down", "Prints `down.sql`, which drops the trigger"))
        .arg(output())
        .arg(
            Arg::new("inventory")
                .long("inventory")
                .value_name("FILE")
                .action(ArgAction::Append)
                .value_parser(value_parser!(PathBuf))
                .value_hint(ValueHint::FilePath)
                .conflicts_with("artifact")
                .help("Reads a dumped inventory (JSON) instead of building"),
        )
        .arg(selection::artifact());
    selection::arguments(require)
}
