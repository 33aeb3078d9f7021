//! Which numbers can a rendered key become, and which query shows who holds them?

use std::fmt::Write;

use advisory_pattern::Derivation;
use clap::ArgMatches;
use serde_json::{Map, Value};

use crate::cli::Format;
use crate::failure::Failure;
use crate::locks::hex;
use crate::screen::{self, BOLD, DIM, KEY};
use crate::{cli, json};

/// Runs `cargo advisory key`.
pub(crate) fn run(matches: &ArgMatches) -> Result<bool, Failure> {
    let text = matches.get_one::<String>("text").map_or("", String::as_str);
    let answer = match cli::format_of(matches) {
        Format::Json => {
            let numbers = Derivation::ALL
                .into_iter()
                .map(|derivation| (derivation.name().to_owned(), derivation.key(text).into()));
            let lease = ("lease".to_owned(), lease_hash(text).into());
            let all = numbers.chain([lease]).collect::<Map<String, Value>>();
            json::pretty(&Value::Object(all))
        }
        _ => table(text),
    };
    screen::write(cli::path(matches, "output").map(AsRef::as_ref), &answer)?;
    Ok(true)
}

fn table(text: &str) -> String {
    let mut table = format!(
        "{BOLD}DERIVATION        {:>20}  {:>10}  {:>10}{BOLD:#}\n",
        "NUMBER", "CLASSID", "OBJID"
    );
    for derivation in Derivation::ALL {
        let number = derivation.key(text);
        let (high, low) = halves(number);
        let name = derivation.name();
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            table,
            "{name:16}  {KEY}{number:>20}{KEY:#}  {high:>10}  {low:>10}"
        );
    }
    let _ = write!(
        table,
        "\n{DIM}-- Who holds it, and who waits, whichever derivation they use:{DIM:#}\n{}",
        holder_query(text)
    );
    let hash = lease_hash(text);
    let _ = write!(
        table,
        "\n{DIM}-- As a lease, its row:{DIM:#}\n\
         SELECT token, pattern, holder, is_kept, acquired_at, expires_at > pg_catalog.clock_timestamp() AS is_held, expires_at\n\
         FROM public.advisory_lease WHERE key_hash = '\\x{hash}';\n"
    );
    table
}

/// The key of its row in the lease table.
fn lease_hash(text: &str) -> String {
    hex(&advisory_pattern::sha256(text))
}

/// The halves of the number as `pg_locks` shows them, as unsigned integers.
fn halves(number: i64) -> (u32, u32) {
    let number = number.cast_unsigned();
    let half = |half: u64| u32::try_from(half & u64::from(u32::MAX)).unwrap_or_default();
    (half(number >> 32), half(number))
}

fn holder_query(text: &str) -> String {
    let keys = Derivation::ALL.map(|derivation| {
        let (high, low) = halves(derivation.key(text));
        format!("('{}', {high}::oid, {low}::oid)", derivation.name())
    });
    format!(
        "SELECT k.derivation, l.pid, l.mode, l.granted, a.application_name, a.state, a.query\n\
         FROM (VALUES\n  {}\n) AS k (derivation, classid, objid)\n\
         JOIN pg_catalog.pg_locks AS l ON l.classid = k.classid AND l.objid = k.objid\n\
         LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid\n\
         WHERE l.locktype = 'advisory' AND l.objsubid = 1\n  \
         AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())\n\
         ORDER BY l.granted DESC, l.pid;\n",
        keys.join(",\n  ")
    )
}
