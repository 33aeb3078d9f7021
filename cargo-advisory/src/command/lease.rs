//! The command line of `lease`.

use clap::{Arg, Command};

use super::CODES;
use crate::cli::{database_url, flag, lease_table};
use crate::names;

pub(super) fn define(command: Command) -> Command {
    let lease = command
        .about("Lists the leases of a database, and frees a key")
        .long_about(
            "Shows the leases that are held and the keys that are done, and frees one: of a holder that is dead, of a leader that \
             has to go, or of work that has to run again.\n\nWhen a lease was last renewed is known with its ttl, which is in the lock \
             sites of `--artifact` or `--inventory`.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(database_url().global(true))
        .arg(lease_table().global(true))
        .subcommand(
            Command::new("list")
                .about("Lists the leases that are held and the keys that are done, soonest to expire first")
                .arg(
                    Arg::new("filter")
                        .long("filter")
                        .value_name("TEXT")
                        .help("Only those with this text in their name, pattern or holder"),
                )
                .arg(flag("json", "Writes JSON")),
        )
        .subcommand(free(
            "release",
            "Frees a key whose holder is dead, or whose work has to run again",
        ))
        .subcommand(free("resign", "Ends the term of a leader, so that another is elected"))
        .after_help(CODES);
    names::arguments(lease)
}

fn free(name: &'static str, about: &'static str) -> Command {
    Command::new(name)
        .about(about)
        .long_about(format!(
            "{about}. Shows the lease and what happens to it, and asks.\n\nThe holder loses the lease: its fenced writes and its next \
             renewal are refused, which drops its body. What it does without a fence can go on until then. Waits for a transaction \
             that has fenced a write, at most five seconds."
        ))
        .arg(
            Arg::new("key")
                .value_name("KEY")
                .required(true)
                .allow_hyphen_values(true)
                .help("The key as rendered, such as `webhook:42`, or the start of its hash as `list` shows it"),
        )
        .arg(flag("yes", "Does not ask for confirmation").short('y'))
}
