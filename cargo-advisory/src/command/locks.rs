//! The command line of `locks`.

use clap::{Arg, ArgAction, Command, value_parser};

use super::CODES;
use crate::cli::{database_url, flag, lease_table, time};
use crate::names;

pub(super) fn define(command: Command) -> Command {
    let locks = command
        .about("Shows who holds which lock of a database now, and who waits")
        .long_about(
            "Shows the advisory locks and leases of a database: who holds them, who waits, and who blocks whom. The role should have \
             `pg_monitor`; without it less is shown.\n\nA lock with a fixed number has the name of its site in `--artifact` or \
             `--inventory`. Others have the name in the comment that a locked call writes in front of its query.",
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
            "Only locks held or waited for this long, such as `30s`, or of unknown age; exits with 1 if one is, else with 2 if that is \
             not known",
        ))
        .arg(
            Arg::new("filter")
                .long("filter")
                .value_name("TEXT")
                .help("Only locks, leases and claims with this text in their name or number, or in the name of a session"),
        )
        .arg(flag("json", "Writes JSON; with `--watch` one object per line"))
        .arg(flag("watch", "Refreshes until Ctrl-C"))
        .arg(
            time("interval")
                .requires("watch")
                .help("How often `--watch` refreshes [default: 2s]"),
        )
        .subcommand(end("cancel", "Cancels the statement that a backend runs"))
        .subcommand(end("terminate", "Terminates a backend's session, which releases its locks"))
        .after_help(CODES);
    names::arguments(locks)
}

fn end(name: &'static str, about: &'static str) -> Command {
    Command::new(name)
        .about(about)
        .long_about(format!(
            "{about}. Shows the session, what it holds and what would be lost, and asks.\n\nOnly for a backend that holds an advisory \
             lock of this database, waits for one, or blocks one that does. Needs the backend's own role, or `pg_signal_backend`."
        ))
        .arg(
            Arg::new("pid")
                .value_name("PID")
                .required(true)
                .value_parser(value_parser!(i32).range(1..)),
        )
        .arg(flag("yes", "Does not ask for confirmation").short('y'))
}
