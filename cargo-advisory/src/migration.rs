//! This project's migrations: the lease table, the functions that compute keys, the trigger that guards a table.

mod require;

use advisory_runtime::lease::{ADVISORY_LEASE_DOWN, ADVISORY_LEASE_UP, Table};
use advisory_runtime::sql_functions::{ADVISORY_KEYS_DOWN, ADVISORY_KEYS_UP};
use clap::ArgMatches;

use crate::failure::Failure;
use crate::{cli, screen};

/// Runs `cargo advisory migration`.
pub(crate) fn run(matches: &ArgMatches) -> Result<bool, Failure> {
    let (sql, matches) = match matches.subcommand() {
        Some(("lease", matches)) => (lease(matches)?, matches),
        Some(("keys", matches)) => (keys(matches), matches),
        Some(("require", matches)) => (require::sql(matches)?, matches),
        _ => {
            return Err(Failure::Input(
                "no migration: write `lease`, `keys` or `require`".to_owned(),
            ));
        }
    };
    screen::write(cli::path(matches, "output").map(AsRef::as_ref), &sql)?;
    Ok(true)
}

/// The table of leases.
fn lease(matches: &ArgMatches) -> Result<String, Failure> {
    let is_down = matches.get_flag("down");
    let Some(name) = matches.get_one::<String>("table") else {
        let sql = if is_down {
            ADVISORY_LEASE_DOWN
        } else {
            ADVISORY_LEASE_UP
        };
        return Ok(sql.to_owned());
    };
    let table = Table::new().named(name);
    let table = table.map_err(|error| Failure::Input(error.to_string()))?;
    Ok(if is_down { table.down() } else { table.up() })
}

/// The functions that give other programs the same keys.
fn keys(matches: &ArgMatches) -> String {
    let sql = if matches.get_flag("down") {
        ADVISORY_KEYS_DOWN
    } else {
        ADVISORY_KEYS_UP
    };
    sql.to_owned()
}
