//! The claimed rows of the tables of `--claims`, and of the tables of the inventory's claims.

use std::collections::{BTreeMap, BTreeSet};

use advisory_runtime::inventory::ClaimSite;
use advisory_runtime::monitor::{self, ClaimTable, ClaimTables, ClaimedRow};

use crate::database::{Session, read_bounded, with_timeout};
use crate::failure::{Failure, Result};
use crate::text::{one_line, plural};

#[derive(Default)]
pub(super) struct Claims {
    pub(super) rows: Vec<(String, ClaimedRow)>,
    /// The failure to read a table.
    pub(super) unread: Option<Failure>,
    /// The inventory's tables that were not found, and why.
    pub(super) unfound: BTreeMap<String, String>,
    /// The choice between several tables of one name.
    pub(super) chosen: BTreeSet<String>,
}

impl Claims {
    /// Reads the claimed rows. A table that cannot be read does not hide the others.
    pub(super) async fn read(
        &mut self,
        session: &mut Session,
        named: &[String],
        inventory: &[ClaimSite],
    ) -> Result<()> {
        let mut tables = Vec::new();
        for name in named {
            let mut is_known = false;
            for claim in inventory.iter().filter(|claim| is_on(claim, name)) {
                if let Some(table) = of_name(find(session, claim).await?, claim, name) {
                    is_known = true;
                    add(&mut tables, table);
                }
            }
            if !is_known {
                add(&mut tables, ClaimTable::new(name));
            }
        }
        for claim in inventory {
            if named.iter().any(|name| is_on(claim, name)) {
                continue;
            }
            let found = find(session, claim).await?;
            if let Some(table) = self.choose(found, claim) {
                add(&mut tables, table);
            }
        }
        for table in tables {
            self.read_rows(session, table).await?;
        }
        Ok(())
    }

    /// Chooses the table of a claim: the one on the search path, or else the only one.
    fn choose(&mut self, found: ClaimTables, claim: &ClaimSite) -> Option<ClaimTable> {
        let ClaimTables {
            visible,
            mut others,
            ..
        } = found;
        let name = one_line(claim.table_name());
        let why = match (&visible, others.len()) {
            (None, 1) => return others.pop(),
            (Some(_), 0) => return visible,
            (Some(table), count) => {
                let have = if count == 1 { "has" } else { "have" };
                self.chosen.insert(format!(
                    "claims on `{}` are those that the search path finds: {} {have} that table, and `--claims SCHEMA.{name}` shows theirs",
                    one_line(table.name()),
                    plural(count, "other schema")
                ));
                return visible;
            }
            (None, 0) => format!(
                "claims on `{name}` are not shown: this database has no table of that name with their columns; \
                 `--claims TABLE` shows those of one with another name"
            ),
            (None, _) => format!(
                "claims on `{name}` are not shown: several schemas have that table; `--claims SCHEMA.{name}` shows them"
            ),
        };
        self.unfound.insert(name, why);
        None
    }

    async fn read_rows(&mut self, session: &mut Session, table: ClaimTable) -> Result<()> {
        let name = table.name().to_owned();
        let read = async |session: &mut Session| monitor::claimed_rows(session, table).await;
        match read_bounded(session, read).await? {
            Ok(rows) => self
                .rows
                .extend(rows.into_iter().map(|row| (name.clone(), row))),
            Err(error) => {
                let (name, why) = (one_line(&name), Failure::from(error));
                let why = format!("cannot read the claims on `{name}`: {why}");
                self.unread.get_or_insert(Failure::Input(why));
            }
        }
        Ok(())
    }
}

async fn find(session: &mut Session, claim: &ClaimSite) -> Result<ClaimTables> {
    Ok(with_timeout(monitor::claim_tables(session, claim)).await??)
}

/// Adds a table. Two types of row can have one table.
fn add(tables: &mut Vec<ClaimTable>, table: ClaimTable) {
    if !tables.iter_mut().any(|known| known.merge(&table)) {
        tables.push(table);
    }
}

/// Returns `true` if a table of `--claims` has the name of a claim's table. It can have a schema.
fn is_on(claim: &ClaimSite, name: &str) -> bool {
    let schema = name.strip_suffix(claim.table_name());
    schema.is_some_and(|schema| schema.is_empty() || schema.ends_with('.'))
}

/// The table of `--claims`, if it has the claim's columns.
fn of_name(found: ClaimTables, claim: &ClaimSite, name: &str) -> Option<ClaimTable> {
    if name == claim.table_name() {
        return found.visible.map(|_| ClaimTable::of(name, claim));
    }
    let mut tables = found.visible.into_iter().chain(found.others);
    tables.find(|table| table.name() == name)
}
