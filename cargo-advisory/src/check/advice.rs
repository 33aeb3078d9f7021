//! Where the database could say the rule of a lock, or already does: the constraints and indexes of guarded tables.

use std::collections::{BTreeMap, BTreeSet};

use advisory_pattern::{Derivation, LockedKey, Record};
use tokio_postgres::{Client, Row};

use super::guards::{Relation, Trigger, failed, family, lock_name, triggers};
use crate::database::{self, connect, with_timeout};
use crate::failure::Failure;
use crate::finding::{ADVICE, Finding, Place};
use crate::guard::{Guard, Table};
use crate::inventory::{Inventory, keys};
use crate::screen::one_line;

/// The valid indexes of a table without a condition: name, primary, unique, exclusion, and the columns of their keys.
const INDEXES: &str = "SELECT i.indexrelid::pg_catalog.regclass::pg_catalog.text, i.indisprimary, i.indisunique, i.indisexclusion, \
     ARRAY(SELECT pg_catalog.pg_get_indexdef(i.indexrelid, k::pg_catalog.int4, true) \
     FROM pg_catalog.generate_series(1, i.indnkeyatts::pg_catalog.int4) AS k) \
     FROM pg_catalog.pg_index AS i WHERE i.indrelid = $1 AND i.indisvalid AND i.indpred IS NULL ORDER BY 1";

/// The columns of a table, and whether it is partitioned: an index on it cannot be created `CONCURRENTLY`.
const COLUMNS: &str = "SELECT a.attname::pg_catalog.text, c.relkind = 'p' FROM pg_catalog.pg_class AS c \
     JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped WHERE c.oid = $1";

/// How long the search for two rows of one key may take.
const WAIT: &str = "SET LOCAL statement_timeout = '3s'";

/// An index, with its columns as `plain` writes them.
struct Index {
    name: String,
    is_primary: bool,
    is_unique: bool,
    is_exclusion: bool,
    columns: Vec<String>,
}

/// Looks at every table that a lock guards. `kept` has the locks that are meant all the same.
pub(super) fn find(
    inventory: &Inventory,
    address: &str,
    kept: &BTreeMap<String, String>,
) -> Result<Vec<Finding>, Failure> {
    database::block_on(async {
        let (client, connection) = connect(address).await?;
        let connection = tokio::spawn(async move { drop(connection.await) });
        let mut found = Vec::new();
        // A lock that several functions take is one lock.
        let mut seen = BTreeSet::new();
        for site in &inventory.sites {
            let lock = lock_name(site);
            for written in &site.guards {
                if kept.contains_key(&lock) || !seen.insert((lock.clone(), written)) {
                    continue;
                }
                if let Ok(table) = Table::parse(written) {
                    found.extend(of_table(&client, site, &table, &lock).await?);
                }
            }
        }
        connection.abort();
        Ok(found)
    })
}

async fn of_table(
    client: &Client,
    site: &Record,
    table: &Table,
    lock: &str,
) -> Result<Option<Finding>, Failure> {
    let family = family(client, table).await?;
    let Some(own) = family.first().filter(|own| !own.is_foreign) else {
        return Ok(None);
    };
    // A constraint of a table says nothing of its inheritance children.
    if family[1..].iter().any(|below| !below.is_partition) {
        return Ok(None);
    }
    let rows = with_timeout(client.query(COLUMNS, &[&own.oid])).await?;
    let rows = rows.map_err(|error| failed(&error))?;
    let known: BTreeSet<String> = rows.iter().filter_map(|row| row.try_get(0).ok()).collect();
    let is_partitioned = rows
        .first()
        .is_some_and(|row| row.try_get(1).unwrap_or(false));
    let guards = triggers(client, own).await?;
    let Some(columns) = columns(site, table, &guards, &known) else {
        return Ok(None);
    };
    let indexes = indexes(client, own).await?;
    let wanted: BTreeSet<String> = columns.iter().map(|column| plain(column)).collect();
    let list = columns.join(", ");
    let name = &own.name;
    let says = |index: &&Index| {
        (index.is_unique || index.is_exclusion)
            && !index.columns.is_empty()
            && index.columns.iter().all(|column| wanted.contains(column))
            || index.is_exclusion && wanted.iter().all(|column| index.columns.contains(column))
    };
    let concurrently = if is_partitioned { "" } else { " CONCURRENTLY" };
    if let Some(index) = indexes.iter().find(says) {
        let rule = index.columns.join(", ");
        let index_name = one_line(&index.name);
        let (message, help) = if index.is_primary {
            (
                format!("`{name}` has one row for each key of the advisory lock `{lock}`"),
                format!(
                    "lock that row instead, `SELECT … FROM {name} WHERE … FOR UPDATE`, unless it may not exist yet"
                ),
            )
        } else if index.is_exclusion {
            (
                format!(
                    "the exclusion constraint `{index_name}` already says a rule on the columns of the advisory lock `{lock}`"
                ),
                "if the lock is for that rule alone, leave it out, and answer the error 23P01"
                    .to_owned(),
            )
        } else {
            (
                format!("the unique index `{index_name}` already allows one row for each ({rule}), as the advisory lock `{lock}` may"),
                "if the lock is for that rule alone, leave it out: `INSERT … ON CONFLICT DO NOTHING`, or answer the error 23505".to_owned(),
            )
        };
        return Ok(Some(advice(site, lock, message, Vec::new(), &help)));
    }
    // A unique index on a partitioned table needs the columns of the partitions.
    let one_each = if is_partitioned {
        None
    } else {
        has_one_row_each(client, name, &list).await?
    };
    if let Some(rows) = one_each.filter(|rows| *rows > 1) {
        return Ok(Some(advice(
            site,
            lock,
            format!(
                "a unique index could say the rule of the advisory lock `{lock}`: no two of the {rows} rows of `{name}` have the same ({list})"
            ),
            vec![format!(
                "CREATE UNIQUE INDEX{concurrently} ON {name} ({list});"
            )],
            "if that is the rule, create the index and leave the lock out: then no program can break it",
        )));
    }
    let leads = |index: &Index| {
        index
            .columns
            .first()
            .is_some_and(|column| wanted.contains(column))
    };
    if !indexes.iter().any(leads) {
        return Ok(Some(advice(
            site,
            lock,
            format!("`{name}` has no index on the columns of the advisory lock `{lock}`"),
            vec![
                "its statements read the whole table, while others wait for the lock".to_owned(),
                format!("CREATE INDEX{concurrently} ON {name} ({list});"),
            ],
            "create the index",
        )));
    }
    Ok(None)
}

fn advice(site: &Record, lock: &str, message: String, notes: Vec<String>, help: &str) -> Finding {
    Finding {
        kind: ADVICE,
        message,
        places: vec![Place::site(site, None, "says that it guards the table")],
        notes,
        help: format!("{help}; to keep it as it is: `--keep-lock '{lock}=REASON'`"),
    }
}

/// The columns or expressions from which the lock's key is computed: those of the table's trigger, else the columns of the placeholders'
/// names; `None` if one is not known, or if the lock has none.
fn columns(
    site: &Record,
    table: &Table,
    guards: &[Trigger],
    known: &BTreeSet<String>,
) -> Option<Vec<String>> {
    let derivation = Derivation::from_name(&site.derivation).unwrap_or_default();
    let of_site: Vec<LockedKey> = keys(site).into_iter().filter_map(|key| key.known).collect();
    let is_own = |guard: &Guard| of_site.iter().any(|key| guard.has_key(key, derivation));
    let mut guards = guards
        .iter()
        .filter_map(|trigger| Guard::read(&trigger.source, table.clone()));
    let columns = if let Some(guard) = guards.find(is_own) {
        guard.expressions()
    } else {
        let text = of_site.first()?.text();
        let names = text
            .placeholders()
            .filter_map(|one| one.path.last().cloned());
        let names: Vec<String> = names.collect();
        if !names.iter().all(|name| known.contains(name)) {
            return None;
        }
        let names = names.iter().map(|name| database::identifier(name));
        names.collect()
    };
    (!columns.is_empty()).then_some(columns)
}

async fn indexes(client: &Client, relation: &Relation) -> Result<Vec<Index>, Failure> {
    let rows = with_timeout(client.query(INDEXES, &[&relation.oid])).await?;
    let index = |row: &Row| {
        let columns: Vec<String> = row.try_get(4)?;
        Ok(Index {
            name: row.try_get(0)?,
            is_primary: row.try_get(1)?,
            is_unique: row.try_get(2)?,
            is_exclusion: row.try_get(3)?,
            columns: columns.iter().map(|column| plain(column)).collect(),
        })
    };
    let rows = rows.map_err(|error| failed(&error))?;
    let indexes: Result<Vec<Index>, _> = rows.iter().map(index).collect();
    indexes.map_err(|error| failed(&error))
}

/// An expression without parentheses and spaces, which the server writes in its own way.
fn plain(expression: &str) -> String {
    let is_kept = |letter: &char| !letter.is_whitespace() && !"()".contains(*letter);
    expression.chars().filter(is_kept).collect()
}

/// How many rows the table has, if no two have the same values in these columns; `None` if two have, or if it takes too long.
async fn has_one_row_each(
    client: &Client,
    table: &str,
    columns: &str,
) -> Result<Option<i64>, Failure> {
    let question = format!(
        "START TRANSACTION READ ONLY; {WAIT}; \
         SELECT pg_catalog.sum(n)::pg_catalog.int8, pg_catalog.max(n)::pg_catalog.int8 \
         FROM (SELECT pg_catalog.count(*) AS n FROM {table} GROUP BY {columns}) AS each_key; ROLLBACK"
    );
    let answer = with_timeout(client.simple_query(&question)).await?;
    let Ok(messages) = answer else {
        // Such as for a role that may not read it.
        drop(with_timeout(client.simple_query("ROLLBACK")).await?);
        return Ok(None);
    };
    let row = messages.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let number = |at: usize| row.and_then(|row| row.get(at)?.parse::<i64>().ok());
    Ok(number(0).filter(|_| number(1) == Some(1)))
}
