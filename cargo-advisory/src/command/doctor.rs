//! The command line of `doctor`.

use clap::Command;

use super::CODES;
use crate::cli::{Format, database_url, format, lease_table, output, time};

pub(super) fn define(command: Command) -> Command {
    command
        .about("Says what the settings of a server and a role mean for locks, with the statement that mends what is not right")
        .long_about(
            "Asks the server, as the role of the address, and says what its settings mean for locks: fine, advice or a problem, with the \
             statement that mends it. Changes nothing. Exits with 1 if there is a problem.\n\nGive the address, and so the role, that the \
             program has: time-outs are the role's own, and a pooler is found only if it stands in between.",
        )
        .arg(database_url())
        .arg(lease_table())
        .arg(time("older-than").help(
            "A session that holds a lock and has been idle in a transaction for so long is a problem [default: 60s]",
        ))
        .arg(format([Format::Text, Format::Json]))
        .arg(output())
        .after_help(CODES)
}
