//! Compares the triggers of guarded tables, of their partitions and of their inheritance children
//! with the locks' keys.

use std::collections::BTreeSet;

use advisory_pattern::{Derivation, LockedKey, Record};
use tokio_postgres::Client;

use crate::database::query_as;
use crate::failure::Result;
use crate::finding::{Finding, Place};
use crate::guard::{Guard, Table, key_text};
use crate::inventory::{Inventory, keys, path};
use crate::text::{joined, one_line, plural};

/// The table, its partitions and its inheritance children. A write can name each of them.
const FAMILY: &str = "WITH RECURSIVE family (oid) AS (SELECT to_regclass($1)::oid \
     UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i JOIN family AS f ON i.inhparent = f.oid) \
     SELECT c.oid, format('%I.%I', n.nspname, c.relname), c.relispartition, c.relkind = 'f', c.relkind = 'p' \
     FROM family AS f JOIN pg_catalog.pg_class AS c ON c.oid = f.oid \
     JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
     ORDER BY c.oid <> to_regclass($1)::oid, n.nspname, c.relname";

/// The triggers of a table that this command has written, each with a bool that is true if it fires
/// for every write of an ordinary session. Before PostgreSQL 15 the copy on a partition counts as
/// internal.
const TRIGGERS: &str = "SELECT t.tgname::text, p.prosrc, t.tgtype, \
     t.tgenabled::text = ANY ('{O,A}') AND t.tgqual IS NULL AND t.tgattr::text = '' \
     AND p.proconfig @> '{\"search_path=pg_catalog, pg_temp\",TimeZone=UTC}' \
     FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid \
     WHERE t.tgrelid = $1 AND (NOT t.tgisinternal OR t.tgparentid <> 0::oid) \
     AND strpos(p.prosrc, '-- advisory guard ') > 0 ORDER BY t.tgname";

/// A finding names at most this many tables below a guarded one.
const MOST_NAMED: usize = 3;

pub(super) struct Relation {
    pub(super) oid: u32,
    pub(super) name: String,
    pub(super) is_partition: bool,
    pub(super) is_foreign: bool,
    pub(super) is_partitioned: bool,
}

pub(super) struct Trigger {
    name: String,
    pub(super) source: String,
    kind: i16,
    fires_always: bool,
}

pub(super) async fn find(inventory: &Inventory, client: &Client) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    // A lock that several functions take is reported once.
    let mut seen = BTreeSet::new();
    for site in &inventory.sites {
        let lock = Lock::of(site);
        for written in &site.guards {
            if !seen.insert((written, lock.name.clone(), &site.keys)) {
                continue;
            }
            let wrong = match Table::parse(written) {
                Err(why) => vec![why.to_string()],
                Ok(table) => lock.problems(client, &table).await?,
            };
            if wrong.is_empty() {
                continue;
            }
            let lock = &lock.name;
            findings.push(Finding {
                kind: "guard",
                message: format!(
                    "the table `{written}` is not guarded by the advisory lock `{lock}`"
                ),
                places: vec![Place::site(site, None, "says that it guards the table")],
                notes: wrong.iter().map(|why| one_line(why)).collect(),
                help: format!(
                    "run the migration that `cargo advisory migration require --lock '{lock}' --table {written}` prints (if there is a trigger \
                     already, after what `--down` prints, in one transaction), or leave the table out of `guards`"
                ),
            });
        }
    }
    Ok(findings)
}

/// A lock that guards tables, by the name by which `migration require` finds it, with its keys that
/// are known before run time.
pub(super) struct Lock {
    pub(super) name: String,
    pub(super) keys: Vec<LockedKey>,
    derivation: Derivation,
}

impl Lock {
    pub(super) fn of(site: &Record) -> Self {
        Self {
            name: site.name.clone().unwrap_or_else(|| path(site)),
            keys: keys(site).into_iter().filter_map(|key| key.known).collect(),
            derivation: Derivation::from_name(&site.derivation).unwrap_or_default(),
        }
    }

    /// Returns `true` if the guard computes one of the lock's keys.
    pub(super) fn has_guard(&self, guard: &Guard) -> bool {
        let mut keys = self.keys.iter();
        keys.any(|key| guard.has_key(key, self.derivation))
    }

    /// The problems of the triggers of the table and of the tables below it. There is none if they
    /// guard it by one of the keys.
    async fn problems(&self, client: &Client, table: &Table) -> Result<Vec<String>> {
        if self.keys.is_empty() {
            return Ok(vec![
                "its key is known only at run time: write `guards` at the declared lock".to_owned(),
            ]);
        }
        let family = family(client, table).await?;
        let Some(own) = family.first() else {
            return Ok(vec!["the database has no such table".to_owned()]);
        };
        let mut wrong = Vec::new();
        for relation in &family {
            let triggers = triggers(client, relation).await?;
            let Some(why) = self.wrong_triggers(table, relation.is_foreign, &triggers) else {
                continue;
            };
            if relation.oid == own.oid {
                return Ok(vec![format!("it {why}")]);
            }
            let kind = if relation.is_partition {
                "partition"
            } else {
                "inheritance child"
            };
            wrong.push(format!("its {kind} `{}` {why}", relation.name));
        }
        let all = wrong.len();
        wrong.truncate(MOST_NAMED);
        if all > MOST_NAMED {
            wrong.push(format!("and so on: {} in all", plural(all, "table")));
        }
        Ok(wrong)
    }

    /// The problem of the triggers of one table; `None` if they refuse every write without one of
    /// the keys.
    fn wrong_triggers(
        &self,
        table: &Table,
        is_foreign: bool,
        triggers: &[Trigger],
    ) -> Option<String> {
        let mut why = "no trigger for the lock".to_owned();
        let mut missing = None;
        for trigger in triggers {
            let name = &trigger.name;
            let Some(guard) = Guard::read(&trigger.source, table.clone()) else {
                why = format!(
                    "a trigger `{name}` whose function cannot be read: a newer release has written it, or it was changed"
                );
                continue;
            };
            if !self.has_guard(&guard) {
                if guard.lock == self.name {
                    let keys = self.keys.iter().map(|key| key_text(key, self.derivation));
                    why = format!(
                        "a trigger `{name}` that computes another key: {}, and the lock's is {}",
                        key_text(&guard.key, guard.derivation),
                        joined(keys, ", or ")
                    );
                }
                continue;
            }
            let body = guard.body();
            if !body.is_ok_and(|body| body.trim() == trigger.source.trim()) {
                why = format!(
                    "a trigger `{name}` whose function differs from what this command prints for the lock"
                );
                continue;
            }
            let missing = missing.get_or_insert_with(|| guard.needed_events(is_foreign));
            if trigger.fires_always {
                *missing &= !guard.events(trigger.kind);
            }
            if *missing == 0 {
                return None;
            }
            why = format!("a trigger `{name}` that is disabled, or does not run for each write");
        }
        Some(format!("has {why}"))
    }
}

/// The table, its partitions and its children. Empty if the table does not exist, or if the role
/// may not use its schema.
pub(super) async fn family(client: &Client, table: &Table) -> Result<Vec<Relation>> {
    query_as(client, FAMILY, &[&table.sql()], |row| {
        Ok(Relation {
            oid: row.try_get(0)?,
            name: row.try_get(1)?,
            is_partition: row.try_get(2)?,
            is_foreign: row.try_get(3)?,
            is_partitioned: row.try_get(4)?,
        })
    })
    .await
}

pub(super) async fn triggers(client: &Client, of: &Relation) -> Result<Vec<Trigger>> {
    query_as(client, TRIGGERS, &[&of.oid], |row| {
        Ok(Trigger {
            name: row.try_get(0)?,
            source: row.try_get(1)?,
            kind: row.try_get(2)?,
            fires_always: row.try_get(3)?,
        })
    })
    .await
}
