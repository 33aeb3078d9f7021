//! The SQL that refuses writes to a table without the lock.

use std::collections::BTreeMap;

use advisory_pattern::{Derivation, LockedKey, Pattern, Record, Shape, parse, split_pair_text};
use clap::ArgMatches;

use crate::failure::Failure;
use crate::guard::{Guard, Table, is_same};
use crate::inventory::{Inventory, is_lease, keys, path};
use crate::{cli, json, selection};

/// Gives the SQL of `cargo advisory migration require`.
pub(super) fn sql(matches: &ArgMatches) -> Result<String, Failure> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let (name, key, derivation) = match (text("lock"), text("key")) {
        (name, Some(pattern)) => {
            let key = pattern_of(&pattern)?;
            let derivation = matches.get_one::<Derivation>("derivation").copied();
            (name.unwrap_or(pattern), key, derivation.unwrap_or_default())
        }
        (Some(name), None) => lock_named(&inventory(matches)?, &name)?,
        (None, None) => {
            return Err(Failure::Input(
                "no lock: use `--lock <NAME>` or `--key <PATTERN>`".to_owned(),
            ));
        }
    };
    let mut columns = BTreeMap::new();
    for column in matches.get_many::<String>("column").into_iter().flatten() {
        let Some((placeholder, expression)) = column.split_once('=') else {
            return Err(Failure::Input(format!(
                "`--column {column}` has no `=`: write `--column date=starts_at::date`"
            )));
        };
        columns.insert(placeholder.trim().to_owned(), expression.trim().to_owned());
    }
    let table = text("table").unwrap_or_default();
    let table = Table::parse(&table).map_err(Failure::Input)?;
    let guard = Guard::new(name, key, derivation, table, columns).map_err(Failure::Input)?;
    if matches.get_flag("down") {
        return Ok(guard.down());
    }
    guard.up().map_err(Failure::Input)
}

/// The lock sites: of files if some are named, else of what cargo builds.
fn inventory(matches: &ArgMatches) -> Result<Inventory, Failure> {
    let files = cli::paths(matches, "inventory");
    if files.is_empty() {
        return selection::inventory_to_check(matches);
    }
    let mut sites = Vec::new();
    for file in files {
        sites.extend(json::read_file(&file)?.sites);
    }
    Ok(Inventory::of(sites))
}

fn pattern_of(written: &str) -> Result<LockedKey, Failure> {
    let pair = split_pair_text(written);
    let text = pair.map_or(written, |(_, second)| second);
    let pattern = parse(text).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Failure::Input(format!("`--key {written}`: {}", errors.join("; ")))
    })?;
    let pattern = with_shapes(&pattern);
    Ok(match pair {
        Some((first, _)) => LockedKey::IntPattern(first, pattern),
        None => LockedKey::Pattern(pattern),
    })
}

/// The pattern in its canonical form. A placeholder without a shape is text, as in `lock_key!`.
fn with_shapes(pattern: &Pattern) -> Pattern {
    pattern.shaped(|_| Shape::Text)
}

/// The lock of a name, or of a function's or declared type's path, with its name for messages.
fn lock_named(
    inventory: &Inventory,
    wanted: &str,
) -> Result<(String, LockedKey, Derivation), Failure> {
    let is_wanted = |site: &&Record| {
        site.name.as_deref() == Some(wanted) || path(site) == wanted || site.function == wanted
    };
    let mut sites: Vec<&Record> = inventory.sites.iter().filter(is_wanted).collect();
    // The declaration has the names of its fields, which are most likely those of columns.
    sites.sort_by_key(|site| site.kind != "struct");
    let mut found: Option<(LockedKey, Derivation)> = None;
    for site in &sites {
        if is_lease(site) {
            return Err(Failure::Input(format!(
                "`{wanted}` is a lease, which no session holds: check writes by its fencing token"
            )));
        }
        let derivation = Derivation::from_name(&site.derivation).unwrap_or_default();
        for key in keys(site).into_iter().filter_map(|key| key.known) {
            match &found {
                None => found = Some((key, derivation)),
                Some((first, of_first)) if is_same(first, &key) && *of_first == derivation => {}
                Some(_) => {
                    return Err(Failure::Input(format!(
                        "`{wanted}` has several keys: write the one that guards the table, `--key <PATTERN>`"
                    )));
                }
            }
        }
    }
    let (key, derivation) = found.ok_or_else(|| {
        let known = inventory.sites.iter().filter_map(|site| site.name.as_deref());
        let hint = advisory_pattern::closest(wanted, known)
            .map(|close| format!("; did you mean `{close}`?"))
            .unwrap_or_default();
        match sites.first() {
            None => Failure::Input(format!("no lock site has the name `{wanted}`{hint}")),
            Some(_) => Failure::Input(format!(
                "the key of `{wanted}` is an expression: name the declared lock, or write `--key <PATTERN>`"
            )),
        }
    })?;
    let name = sites.iter().find_map(|site| site.name.clone());
    Ok((name.unwrap_or_else(|| wanted.to_owned()), key, derivation))
}
