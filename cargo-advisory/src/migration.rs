//! This project's migrations: the lease table, what claims need, the functions that compute keys, the trigger that guards a table.

mod require;

use advisory_runtime::claim::Schema;
use advisory_runtime::lease::{ADVISORY_LEASE_DOWN, ADVISORY_LEASE_UP, Table};
use advisory_runtime::migration::{ADVISORY_KEYS_DOWN, ADVISORY_KEYS_UP};
use clap::ArgMatches;

use crate::failure::Failure;
use crate::{cli, screen};

/// Runs `cargo advisory migration`.
pub(crate) fn run(matches: &ArgMatches) -> Result<bool, Failure> {
    let (sql, matches) = match matches.subcommand() {
        Some(("lease", matches)) => (lease(matches)?, matches),
        Some(("claim", matches)) => (claim(matches)?, matches),
        Some(("keys", matches)) => (keys(matches), matches),
        Some(("require", matches)) => (require::sql(matches)?, matches),
        _ => {
            return Err(Failure::Input(
                "no migration: write `lease`, `claim`, `keys` or `require`".to_owned(),
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

/// What the rows of a table need to be claimed.
fn claim(matches: &ArgMatches) -> Result<String, Failure> {
    let text = |name| matches.get_one::<String>(name).map(String::as_str);
    let mut schema = Schema::of(text("table").unwrap_or_default());
    if let Some(per) = text("per") {
        schema = schema.per(per);
    }
    if let Some(order) = text("order") {
        let columns = order
            .split(',')
            .map(column)
            .collect::<Result<Vec<_>, _>>()?;
        schema = schema.order(columns);
    }
    Ok(if matches.get_flag("down") {
        schema.down()
    } else {
        schema.up()
    })
}

/// A column of an order, and whether it is descending.
fn column(part: &str) -> Result<(&str, bool), Failure> {
    let words: Vec<&str> = part.split_whitespace().collect();
    match words[..] {
        [column] => Ok((column, false)),
        [column, direction] if direction.eq_ignore_ascii_case("asc") => Ok((column, false)),
        [column, direction] if direction.eq_ignore_ascii_case("desc") => Ok((column, true)),
        _ => Err(Failure::Input(format!(
            "`--order` cannot contain `{}`: write columns, such as `--order 'priority desc, id'`",
            part.trim()
        ))),
    }
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
