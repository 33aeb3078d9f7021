//! The migration that refuses writes to a table without the lock.

use std::collections::BTreeMap;
use std::path::PathBuf;

use advisory_pattern::{Derivation, LockedKey, Record, Shape, parse, split_pair_text};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::cli::Output;
use crate::failure::{Failure, Result, bail};
use crate::guard::{Guard, Table, is_same};
use crate::inventory::{Inventory, is_lease, keys, path};
use crate::json;
use crate::selection::Artifacts;
use crate::text::joined;

/// A trigger that refuses writes to a table without the lock
///
/// The trigger computes the lock's key from the row, by the lock's own pattern, and refuses the
/// write unless the session holds the lock in exclusive mode. It applies to every program, and to
/// `psql`.
///
/// The lock is found by its name in the program that cargo builds, or given as a pattern. A
/// placeholder is the column with its name, unless `--column` names another one.
#[derive(Args)]
pub(super) struct Arguments {
    /// The lock's name, or the path of its function or declared type
    #[arg(long, value_name = "NAME")]
    lock: Option<String>,
    /// The lock's key pattern with its shapes, such as `<tenant_id: uuid>:<date: date>`
    #[arg(long, value_name = "PATTERN")]
    key: Option<String>,
    #[arg(
        long,
        value_name = "NAME",
        requires = "key",
        value_parser = PossibleValuesParser::new(Derivation::ALL.map(Derivation::name))
            .try_map(|name| Derivation::from_name(&name).ok_or("unknown derivation")),
        help = "How the key becomes a number [default: sha256]"
    )]
    derivation: Option<Derivation>,
    /// The table to guard: `bookings`, or `shop.bookings`
    #[arg(long)]
    table: String,
    /// A placeholder's column, or an expression over the row, such as `date=starts_at::date`
    #[arg(long, value_name = "NAME=SQL")]
    column: Vec<String>,
    /// Prints `down.sql`, which drops the trigger
    #[arg(long)]
    down: bool,
    #[command(flatten)]
    output: Output,
    /// Reads a dumped inventory (JSON) instead of building
    #[arg(long, value_name = "FILE", conflicts_with = "artifact")]
    inventory: Vec<PathBuf>,
    #[command(flatten)]
    artifacts: Artifacts,
}

impl Arguments {
    pub(super) fn run(&self) -> Result<()> {
        let (name, key, derivation) = match (&self.lock, &self.key) {
            (name, Some(pattern)) => {
                let key = pattern_of(pattern)?;
                let name = name.as_ref().unwrap_or(pattern);
                (name.clone(), key, self.derivation.unwrap_or_default())
            }
            (Some(name), None) => lock_named(&self.inventory()?, name)?,
            (None, None) => bail!("no lock: use `--lock <NAME>` or `--key <PATTERN>`"),
        };
        let mut columns = BTreeMap::new();
        for column in &self.column {
            let Some((placeholder, expression)) = column.split_once('=') else {
                bail!("`--column {column}` has no `=`: write `--column date=starts_at::date`");
            };
            columns.insert(placeholder.trim().to_owned(), expression.trim().to_owned());
        }
        let table = Table::parse(&self.table)?;
        let guard = Guard::new(name, key, derivation, table, columns)?;
        self.output
            .write(&if self.down { guard.down() } else { guard.up()? })
    }

    /// The lock sites of the named files, or else of what cargo builds.
    fn inventory(&self) -> Result<Inventory> {
        if self.inventory.is_empty() {
            return self.artifacts.inventory(true);
        }
        json::read_files(&self.inventory)
    }
}

fn pattern_of(written: &str) -> Result<LockedKey> {
    let pair = split_pair_text(written);
    let text = pair.map_or(written, |(_, second)| second);
    let pattern = parse(text)
        .map_err(|errors| Failure::Input(format!("`--key {written}`: {}", joined(errors, "; "))))?;
    // A placeholder without a shape is text, as in `lock_key!`.
    let pattern = pattern.shaped(|_| Shape::Text);
    Ok(match pair {
        Some((first, _)) => LockedKey::IntPattern(first, pattern),
        None => LockedKey::Pattern(pattern),
    })
}

/// The lock with this name, or with this path of its function or declared type. Returns its name too.
fn lock_named(inventory: &Inventory, wanted: &str) -> Result<(String, LockedKey, Derivation)> {
    let is_wanted = |site: &&Record| {
        site.name.as_deref() == Some(wanted) || path(site) == wanted || site.function == wanted
    };
    let mut sites: Vec<&Record> = inventory.sites.iter().filter(is_wanted).collect();
    // The declaration comes first: its fields most likely have the names of columns.
    sites.sort_by_key(|site| site.kind != "struct");
    let mut found: Option<(LockedKey, Derivation)> = None;
    for site in &sites {
        if is_lease(site) {
            bail!(
                "`{wanted}` is a lease, which no session holds: check writes by its fencing token"
            );
        }
        let derivation = Derivation::from_name(&site.derivation).unwrap_or_default();
        for key in keys(site).into_iter().filter_map(|key| key.known) {
            match &found {
                None => found = Some((key, derivation)),
                Some((first, of_first)) if is_same(first, &key) && *of_first == derivation => {}
                Some(_) => bail!(
                    "`{wanted}` has several keys: write the one that guards the table, `--key <PATTERN>`"
                ),
            }
        }
    }
    let Some((key, derivation)) = found else {
        if !sites.is_empty() {
            bail!(
                "the key of `{wanted}` is an expression: name the declared lock, or write `--key <PATTERN>`"
            );
        }
        let sites = inventory.sites.iter();
        let known = sites.filter_map(|site| site.name.as_deref());
        let close = advisory_pattern::closest(wanted, known);
        let hint = close.map_or_else(String::new, |it| format!("; did you mean `{it}`?"));
        bail!("no lock site has the name `{wanted}`{hint}");
    };
    let name = sites.iter().find_map(|site| site.name.clone());
    Ok((name.unwrap_or_else(|| wanted.to_owned()), key, derivation))
}
