//! The command line of `locks`.

use clap::{Arg, ArgAction, Command, value_parser};

use super::CODES;
use crate::cli::{database_url, flag, lease_table, time};
use crate::names;

pub(super) fn define(command: Command) -> Command {
    let locks = command
        .about("Shows who holds which lock of a database right now, and who waits")
        .long_about(
            "Shows the advisory locks and leases of a database: who holds them, who waits, and who is in whose way. Needs no role but \
             `pg_monitor`, and shows less without it.\n\nNumbers have the names of the lock sites of `--artifact` or `--inventory`, where \
             they are fixed; else those in the comments that locked calls write in front of their queries.",
        )
        .arg(database_url().global(true))
        .arg(lease_table())
        .arg(
            Arg::new("claims")
                .long("claims")
                .value_name("TABLE")
                .action(ArgAction::Append)
                .help("A table with `locked_until` and `locked_by`, whose claimed rows are shown too"),
        )
        .arg(time("older-than").help(
            "Only locks that are held or waited for so long, such as `30s`; exits with 1 if there are some",
        ))
        .arg(
            Arg::new("filter")
                .long("filter")
                .value_name("TEXT")
                .help("Only locks, leases and claims with this text in their name or number, or in the name of a session"),
        )
        .arg(flag("json", "Writes JSON; with `--watch` an object a line"))
        .arg(flag("watch", "Looks again and again, until Ctrl-C"))
        .arg(
            time("interval")
                .requires("watch")
                .help("How often `--watch` looks [default: 2s]"),
        )
        .subcommand(end("cancel", "Ends the statement that a backend runs"))
        .subcommand(end("terminate", "Ends a backend's session, and with it all that it holds"))
        .after_help(CODES);
    names::arguments(locks)
}

fn end(name: &'static str, about: &'static str) -> Command {
    Command::new(name)
        .about(about)
        .long_about(format!(
            "{about}. Shows first who it is, what it holds and what would be lost, and asks.\n\nOnly backends that have to do with an \
             advisory lock of this database. Needs the backend's own role, or `pg_signal_backend`."
        ))
        .arg(
            Arg::new("pid")
                .value_name("PID")
                .required(true)
                .value_parser(value_parser!(i32).range(1..)),
        )
        .arg(flag("yes", "Does not ask").short('y'))
}
