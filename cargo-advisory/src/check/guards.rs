//! Do guarded tables have their triggers, and do these compute the locks' keys?

use std::collections::BTreeSet;

use advisory_pattern::{Derivation, LockedKey, Record};
use tokio_postgres::Client;

use crate::database::{self, chain, connect, with_timeout};
use crate::failure::Failure;
use crate::finding::{Finding, Place};
use crate::guard::{Guard, Table, key_text};
use crate::inventory::{Inventory, keys, path};
use crate::screen::one_line;

/// The triggers of a table that this command has written, and whether each fires for every write of an ordinary session.
const TRIGGERS: &str = "SELECT t.tgname::pg_catalog.text, p.prosrc, t.tgtype, \
     t.tgenabled::pg_catalog.text = ANY ('{O,A}') AND t.tgqual IS NULL AND t.tgattr::pg_catalog.text = '' \
     AND p.proconfig @> '{\"search_path=pg_catalog, pg_temp\",TimeZone=UTC}' \
     FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid \
     WHERE t.tgrelid = pg_catalog.to_regclass($1) AND NOT t.tgisinternal \
     AND p.prosrc LIKE '%-- advisory guard %' ORDER BY t.tgname";

/// A trigger as the database has it.
struct Trigger {
    name: String,
    source: String,
    kind: i16,
    fires_always: bool,
}

/// Compares every table that a lock guards with the database.
pub(super) fn find(inventory: &Inventory, address: &str) -> Result<Vec<Finding>, Failure> {
    database::block_on(async {
        let (client, connection) = connect(address).await?;
        // An error of the connection reaches the queries too.
        let connection = tokio::spawn(async move { drop(connection.await) });
        let findings = compare(inventory, &client).await;
        connection.abort();
        findings
    })
}

async fn compare(inventory: &Inventory, client: &Client) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    // A lock that several functions take is reported once.
    let mut seen = BTreeSet::new();
    for site in &inventory.sites {
        let derivation = Derivation::from_name(&site.derivation).unwrap_or_default();
        let known: Vec<LockedKey> = keys(site).into_iter().filter_map(|key| key.known).collect();
        for written in &site.guards {
            if !seen.insert((written, lock_name(site), &site.keys)) {
                continue;
            }
            let wrong = match Table::parse(written) {
                Err(why) => Some(why),
                Ok(table) => wrong(client, &table, &known, derivation, &lock_name(site)).await?,
            };
            findings.extend(wrong.map(|why| finding(site, written, &why)));
        }
    }
    Ok(findings)
}

/// The name by which `migration require` finds the lock.
fn lock_name(site: &Record) -> String {
    site.name.clone().unwrap_or_else(|| path(site))
}

fn finding(site: &Record, table: &str, why: &str) -> Finding {
    let lock = lock_name(site);
    Finding {
        kind: "guard",
        message: format!("the table `{table}` is not guarded by the advisory lock `{lock}`"),
        places: vec![Place::site(site, None, "says that it guards the table")],
        notes: vec![one_line(why)],
        help: format!(
            "run the migration that `cargo advisory migration require --lock '{lock}' --table {table}` prints, or leave the table out of \
             `guards`"
        ),
    }
}

/// What is wrong with the table's triggers; `None` if one of them guards it by one of the keys.
async fn wrong(
    client: &Client,
    table: &Table,
    known: &[LockedKey],
    derivation: Derivation,
    lock: &str,
) -> Result<Option<String>, Failure> {
    if known.is_empty() {
        return Ok(Some(
            "its key is known only at run time: write `guards` at the declared lock".to_owned(),
        ));
    }
    let Some(triggers) = triggers(client, table).await? else {
        return Ok(Some("the database has no such table".to_owned()));
    };
    let mut why = None;
    for trigger in &triggers {
        let name = &trigger.name;
        let Some(guard) = Guard::read(&trigger.source, table.clone()) else {
            why = Some(format!(
                "the function of its trigger `{name}` cannot be read: a newer release has written it, or it was changed"
            ));
            continue;
        };
        if !known.iter().any(|key| guard.has_key(key, derivation)) {
            if guard.lock() == lock {
                let wanted: Vec<String> =
                    known.iter().map(|key| key_text(key, derivation)).collect();
                why = Some(format!(
                    "its trigger `{name}` computes another key: {}, and the lock's is {}",
                    guard.key_text(),
                    wanted.join(", or ")
                ));
            }
            continue;
        }
        let is_as_written = guard
            .body()
            .is_ok_and(|body| body.trim() == trigger.source.trim());
        if !is_as_written {
            why = Some(format!(
                "the function of its trigger `{name}` differs from what this command prints for the lock"
            ));
        } else if !trigger.fires_always || trigger.kind != guard.trigger_type() {
            why = Some(format!(
                "its trigger `{name}` is disabled, or does not run for each write"
            ));
        } else {
            return Ok(None);
        }
    }
    Ok(Some(why.unwrap_or_else(|| {
        "it has no trigger for the lock".to_owned()
    })))
}

/// The table's triggers; `None` if there is no such table, or the role may not use its schema.
async fn triggers(client: &Client, table: &Table) -> Result<Option<Vec<Trigger>>, Failure> {
    let failed = |error: tokio_postgres::Error| Failure::Input(one_line(&chain(&error)));
    let name = table.sql();
    let exists = "SELECT pg_catalog.to_regclass($1) IS NOT NULL";
    let exists = with_timeout(client.query_one(exists, &[&name])).await?;
    if !exists.and_then(|row| row.try_get(0)).map_err(failed)? {
        return Ok(None);
    }
    let rows = with_timeout(client.query(TRIGGERS, &[&name]))
        .await?
        .map_err(failed)?;
    let trigger = |row: &tokio_postgres::Row| {
        Ok(Trigger {
            name: row.try_get(0)?,
            source: row.try_get(1)?,
            kind: row.try_get(2)?,
            fires_always: row.try_get(3)?,
        })
    };
    let triggers: Result<Vec<Trigger>, _> = rows.iter().map(trigger).collect();
    triggers.map(Some).map_err(failed)
}
