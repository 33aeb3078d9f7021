//! The command line of `doctor`.

use clap::Command;

use super::CODES;
use crate::cli::{Format, database_url, flag, format, lease_table, output, time};

pub(super) fn define(command: Command) -> Command {
    command
        .about("Checks what the settings of a server and a role mean for locks, and prints the statements that correct them")
        .long_about(
            "Asks the server, as the role in the URL, what each setting means for locks: fine, advice or a problem, with the statement \
             that corrects it. Changes nothing. Exits with 1 if there is a problem.\n\nUse the program's own URL: timeouts belong to \
             the role, and a pooler is found only if the URL leads through it.",
        )
        .arg(database_url())
        .arg(lease_table())
        .arg(time("older-than").help(
            "A session that holds a lock and has been idle in a transaction for this long is a problem [default: 60s]",
        ))
        .arg(flag(
            "strict",
            "Exits with 1 for advice too, and for what this role does not see: for CI",
        ))
        .arg(format([Format::Text, Format::Json]))
        .arg(output())
        .after_help(CODES)
}
