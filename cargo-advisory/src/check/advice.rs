//! The constraints and indexes of guarded tables that enforce the rule of a lock, or could.

use std::collections::BTreeSet;

use advisory_pattern::Record;
use tokio_postgres::Client;

use super::guards::{Lock, Relation, Trigger, family, triggers};
use crate::database::{self, cell, only_rows, query_as, with_timeout};
use crate::failure::Result;
use crate::finding::{ADVICE, Finding, Place};
use crate::guard::{Guard, Table};
use crate::inventory::Inventory;
use crate::text::{joined, one_line};

/// The valid indexes of a table without a condition: name, primary, unique, exclusion, the columns
/// of the key, immediate, and true if two rows with NULL in one column can be equal in the others.
const INDEXES: &str = "SELECT i.indexrelid::regclass::text, i.indisprimary, i.indisunique, i.indisexclusion, \
     ARRAY(SELECT pg_get_indexdef(i.indexrelid, k, true) FROM generate_series(1, i.indnkeyatts::int4) AS k), i.indimmediate, \
     NOT i.indnullsnotdistinct AND EXISTS (SELECT 1 \
     FROM generate_series(0, i.indnkeyatts::int4 - 1) AS k LEFT JOIN pg_catalog.pg_attribute AS a \
     ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k] WHERE a.attnotnull IS NOT TRUE) \
     FROM pg_catalog.pg_index AS i WHERE i.indrelid = $1 AND i.indisvalid AND i.indpred IS NULL ORDER BY 1";

/// The columns of a table, each with two bools: it can be NULL, and it is a range.
const COLUMNS: &str = "SELECT a.attname::text, NOT a.attnotnull, t.typtype = 'r' \
     FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid \
     WHERE a.attrelid = $1 AND a.attnum > 0::int2 AND NOT a.attisdropped ORDER BY a.attnum";

struct Index {
    name: String,
    kind: IndexKind,
    columns: Vec<String>,
    /// False for a deferrable constraint, which `ON CONFLICT` does not accept.
    is_immediate: bool,
    /// True if the index does not compare rows with NULL.
    omits_nulls: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum IndexKind {
    Plain,
    Unique,
    Primary,
    Exclusion,
}

struct Column {
    name: String,
    can_be_null: bool,
    is_range: bool,
}

/// Looks at every table that a lock guards, except for locks with a reason in `allow_redundant`.
pub(super) async fn find(inventory: &Inventory, client: &Client) -> Result<Vec<Finding>> {
    let sites = inventory.sites.iter();
    let needed = sites.filter(|site| site.allow_redundant.is_some());
    let needed: BTreeSet<String> = needed.map(|site| Lock::of(site).name).collect();
    let mut found = Vec::new();
    // A lock that several functions take is one lock.
    let mut seen = BTreeSet::new();
    for site in &inventory.sites {
        let lock = Lock::of(site);
        for written in &site.guards {
            if needed.contains(&lock.name) || !seen.insert((lock.name.clone(), written)) {
                continue;
            }
            if let Ok(table) = Table::parse(written) {
                found.extend(of_table(client, site, &table, &lock).await?);
            }
        }
    }
    Ok(found)
}

struct Guarded<'g> {
    site: &'g Record,
    lock: &'g str,
    table: &'g Relation,
    columns: Vec<String>,
    /// The columns in the form in which they are compared.
    wanted: BTreeSet<String>,
    known: Vec<Column>,
}

async fn of_table(
    client: &Client,
    site: &Record,
    table: &Table,
    lock: &Lock,
) -> Result<Option<Finding>> {
    let family = family(client, table).await?;
    let Some(own) = family.first().filter(|own| !own.is_foreign) else {
        return Ok(None);
    };
    // A constraint of a table says nothing of its inheritance children.
    if family[1..].iter().any(|below| !below.is_partition) {
        return Ok(None);
    }
    let known = query_as(client, COLUMNS, &[&own.oid], |row| {
        Ok(Column {
            name: row.try_get(0)?,
            can_be_null: row.try_get(1)?,
            is_range: row.try_get(2)?,
        })
    })
    .await?;
    let guards = triggers(client, own).await?;
    let Some(columns) = columns(lock, table, &guards, &known) else {
        return Ok(None);
    };
    let guarded = Guarded {
        site,
        lock: &lock.name,
        table: own,
        wanted: columns.iter().map(|column| plain(column)).collect(),
        columns,
        known,
    };
    let indexes = indexes(client, own).await?;
    let mut found = guarded.said_already(&indexes);
    // A unique index on a partitioned table needs the columns of the partitions, and many servers
    // have no exclusion constraint on one.
    if found.is_none() && !own.is_partitioned {
        found = guarded.could_be_unique(client, &indexes).await?;
        if found.is_none() {
            found = guarded.could_exclude(client).await?;
        }
    }
    Ok(found.or_else(|| guarded.lacks_index(&indexes)))
}

impl Guarded<'_> {
    /// Finds a constraint that enforces a rule on the columns.
    fn said_already(&self, indexes: &[Index]) -> Option<Finding> {
        let (name, lock, wanted) = (&self.table.name, self.lock, &self.wanted);
        let is_part = |index: &Index| {
            !index.columns.is_empty() && index.columns.iter().all(|it| wanted.contains(it))
        };
        let says = |index: &&Index| {
            let has_all = wanted.iter().all(|column| index.columns.contains(column));
            match index.kind {
                IndexKind::Plain => false,
                IndexKind::Unique | IndexKind::Primary => !index.omits_nulls && is_part(index),
                IndexKind::Exclusion => is_part(index) || has_all,
            }
        };
        let index = indexes.iter().find(says)?;
        let rule = index.columns.join(", ");
        let index_name = one_line(&index.name);
        let (message, help) = match index.kind {
            IndexKind::Primary => (
                format!("`{name}` has one row for each key of the advisory lock `{lock}`"),
                &*format!(
                    "lock that row instead, `SELECT … FROM {name} WHERE … FOR UPDATE`, unless it may not exist yet"
                ),
            ),
            IndexKind::Exclusion => (
                format!(
                    "the exclusion constraint `{index_name}` already says a rule on the columns of the advisory lock `{lock}`"
                ),
                "if the lock is for that rule alone, leave it out, and answer the error 23P01",
            ),
            IndexKind::Plain | IndexKind::Unique => (
                format!(
                    "the unique index `{index_name}` already allows one row for each ({rule}), as the advisory lock `{lock}` may"
                ),
                if index.is_immediate {
                    "if the lock is for that rule alone, leave it out: `INSERT … ON CONFLICT DO NOTHING`, or answer the error 23505"
                } else {
                    // `ON CONFLICT` does not accept a deferrable constraint:
                    // https://www.postgresql.org/docs/current/sql-insert.html
                    "if the lock is for that rule alone, leave it out: answer the error 23505, which can come with the commit; \
                     the constraint is deferrable, so `ON CONFLICT` is refused"
                },
            ),
        };
        Some(self.advice(message, Vec::new(), help))
    }

    /// Advises a unique index if no two rows have equal values.
    async fn could_be_unique(&self, client: &Client, indexes: &[Index]) -> Result<Option<Finding>> {
        let (name, lock, wanted) = (&self.table.name, self.lock, &self.wanted);
        let list = self.columns.join(", ");
        let rows = has_one_row_each(client, name, &list).await?;
        let Some(rows) = rows.filter(|rows| *rows > 1) else {
            return Ok(None);
        };
        let same = |index: &Index| {
            index.kind == IndexKind::Unique
                && index.columns.len() == wanted.len()
                && index.columns.iter().all(|column| wanted.contains(column))
        };
        let mut notes = Vec::new();
        if !indexes.iter().any(same) {
            notes.push(format!(
                "CREATE UNIQUE INDEX CONCURRENTLY ON {name} ({list});"
            ));
        }
        notes.extend(self.nulls(&[]));
        if notes.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.advice(
            format!(
                "a unique index could say the rule of the advisory lock `{lock}`: no two of the {rows} rows of `{name}` have the same ({list})"
            ),
            notes,
            "if that is the rule, run this and leave the lock out: then no program can break it",
        )))
    }

    /// Notes about NULL, with which a constraint compares no rows, in the lock's columns and in
    /// `more`. An expression can be NULL too.
    fn nulls(&self, more: &[String]) -> Vec<String> {
        let name = &self.table.name;
        let (mut can_be_null, mut notes) = (false, Vec::new());
        for column in self.columns.iter().chain(more) {
            let mut known = self.known.iter();
            let known = known.find(|known| database::identifier(&known.name) == *column);
            can_be_null |= known.is_none_or(|known| known.can_be_null);
            if known.is_some_and(|known| known.can_be_null) {
                notes.push(format!(
                    "ALTER TABLE {name} ALTER COLUMN {column} SET NOT NULL;"
                ));
            }
        }
        if can_be_null {
            let what = if notes.is_empty() {
                "expressions"
            } else {
                "columns:"
            };
            let note = format!("it compares no rows with NULL in one of these {what}");
            notes.insert(0, note);
        }
        notes
    }

    /// Advises an exclusion constraint if the ranges of no two rows of one key overlap.
    async fn could_exclude(&self, client: &Client) -> Result<Option<Finding>> {
        let (name, lock) = (&self.table.name, self.lock);
        let list = self.columns.join(", ");
        for range in self.known.iter().filter(|column| column.is_range) {
            let range = database::identifier(&range.name);
            if self.columns.contains(&range) || !are_apart(client, name, &list, &range).await? {
                continue;
            }
            let equal = self.columns.iter();
            let equal = joined(equal.map(|column| format!("{column} WITH =")), ", ");
            let mut notes = vec![
                "CREATE EXTENSION IF NOT EXISTS btree_gist;".to_owned(),
                format!("ALTER TABLE {name} ADD EXCLUDE USING gist ({equal}, {range} WITH &&);"),
            ];
            notes.extend(self.nulls(std::slice::from_ref(&range)));
            return Ok(Some(self.advice(
                format!(
                    "an exclusion constraint could say the rule of the advisory lock `{lock}`: no two rows of `{name}` with the same ({list}) \
                     overlap in `{range}`"
                ),
                notes,
                "if that is the rule, add the constraint and leave the lock out; answer the error 23P01",
            )));
        }
        Ok(None)
    }

    /// Advises an index if none begins with one of the columns.
    fn lacks_index(&self, indexes: &[Index]) -> Option<Finding> {
        let (name, lock, wanted) = (&self.table.name, self.lock, &self.wanted);
        let leads = |index: &Index| {
            let first = index.columns.first();
            first.is_some_and(|column| wanted.contains(column))
        };
        if indexes.iter().any(leads) {
            return None;
        }
        let list = self.columns.join(", ");
        let concurrently = if self.table.is_partitioned {
            ""
        } else {
            " CONCURRENTLY"
        };
        Some(self.advice(
            format!(
                "no index of `{name}` begins with a column of the advisory lock `{lock}`, except for those with a WHERE"
            ),
            vec![
                "its statements can have to read the whole table, while others wait for the lock".to_owned(),
                format!("CREATE INDEX{concurrently} ON {name} ({list});"),
            ],
            "create the index",
        ))
    }

    fn advice(&self, message: String, notes: Vec<String>, help: &str) -> Finding {
        let place = Place::site(self.site, None, "says that it guards the table");
        Finding {
            kind: ADVICE,
            message,
            places: vec![place],
            notes,
            help: format!(
                "{help}; to keep it as it is: `allow_redundant = \"the reason\"` next to `guards`"
            ),
        }
    }
}

/// The columns or expressions from which the lock's key is computed: those of the table's trigger,
/// or else the columns that the placeholders name. `None` if a column is not known, or if there are
/// none.
fn columns(
    lock: &Lock,
    table: &Table,
    guards: &[Trigger],
    known: &[Column],
) -> Option<Vec<String>> {
    let guards = guards.iter();
    let mut guards = guards.filter_map(|trigger| Guard::read(&trigger.source, table.clone()));
    let columns = if let Some(guard) = guards.find(|guard| lock.has_guard(guard)) {
        guard.expressions()
    } else {
        let text = lock.keys.first()?.text();
        let names = text.placeholders().filter_map(|one| one.path.last());
        let column = |name: &String| {
            let column = known.iter().find(|column| column.name == *name)?;
            Some(database::identifier(&column.name))
        };
        names.map(column).collect::<Option<_>>()?
    };
    (!columns.is_empty()).then_some(columns)
}

async fn indexes(client: &Client, relation: &Relation) -> Result<Vec<Index>> {
    query_as(client, INDEXES, &[&relation.oid], |row| {
        let columns: Vec<String> = row.try_get(4)?;
        Ok(Index {
            name: row.try_get(0)?,
            kind: match [row.try_get(1)?, row.try_get(3)?, row.try_get(2)?] {
                [true, _, _] => IndexKind::Primary,
                [_, true, _] => IndexKind::Exclusion,
                [_, _, true] => IndexKind::Unique,
                _ => IndexKind::Plain,
            },
            columns: columns.iter().map(|column| plain(column)).collect(),
            is_immediate: row.try_get(5)?,
            omits_nulls: row.try_get(6)?,
        })
    })
    .await
}

/// An expression without parentheses and spaces, because the server adds its own.
fn plain(expression: &str) -> String {
    let is_kept = |letter: &char| !letter.is_whitespace() && !"()".contains(*letter);
    expression.chars().filter(is_kept).collect()
}

/// Returns the number of rows of the table; `None` if two of them have equal values in these
/// columns, or if counting takes too long.
async fn has_one_row_each(client: &Client, table: &str, columns: &str) -> Result<Option<i64>> {
    let question = format!(
        "SELECT pg_catalog.sum(n)::pg_catalog.int8, pg_catalog.max(n)::pg_catalog.int8 \
         FROM (SELECT pg_catalog.count(*) AS n FROM {table} GROUP BY {columns}) AS each_key"
    );
    let [rows, most] = numbers(client, &question).await?;
    Ok(rows.filter(|_| most == Some(1)))
}

/// Returns `true` if there are rows with equal values in these columns, and the ranges of none of
/// them overlap. Ordered by their starts, a range that overlaps another one overlaps its neighbour
/// too.
async fn are_apart(client: &Client, table: &str, columns: &str, range: &str) -> Result<bool> {
    let question = format!(
        "SELECT pg_catalog.count(*), pg_catalog.count(*) FILTER (WHERE own && before) FROM (SELECT {range} AS own, \
         pg_catalog.lag({range}) OVER (PARTITION BY {columns} ORDER BY {range}) AS before FROM {table} \
         WHERE {range} IS NOT NULL) AS pairs WHERE before IS NOT NULL"
    );
    let [pairs, overlaps] = numbers(client, &question).await?;
    Ok(pairs.is_some_and(|pairs| pairs > 0) && overlaps == Some(0))
}

/// The two numbers that a query returns; `None` if it takes longer than three seconds, or if the
/// role may not read the table.
async fn numbers(client: &Client, question: &str) -> Result<[Option<i64>; 2]> {
    let bounded = format!(
        "START TRANSACTION READ ONLY; SET LOCAL statement_timeout = '3s'; {question}; ROLLBACK"
    );
    let Ok(rows) = with_timeout(client.simple_query(&bounded)).await? else {
        drop(with_timeout(client.simple_query("ROLLBACK")).await?);
        return Ok([None, None]);
    };
    let rows = only_rows(rows);
    Ok([0, 1].map(|at| cell(&rows, at)?.parse().ok()))
}
