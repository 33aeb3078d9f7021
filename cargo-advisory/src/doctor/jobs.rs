//! Judges job tables: their columns, their indexes, and times without a zone.

use tokio_postgres::{Client, SimpleQueryRow};

use super::{Diagnosis, Level, Server, citus};
use crate::database::{literal, rows};
use crate::failure::Result;
use crate::job_table::{JobTable, quoted};
use crate::text::{in_backticks, joined, one_line};

/// The tables that have the columns of a claim, and so may be job tables.
const LIKELY: &str = "SELECT c.oid::regclass::text FROM pg_catalog.pg_class AS c \
     WHERE c.relkind = ANY ('{r,p}') AND NOT c.relispartition AND 2 = \
     (SELECT count(*) FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = c.oid \
     AND NOT a.attisdropped AND a.attname = ANY ('{locked_until,locked_by}')) ORDER BY 1 LIMIT 5";

/// The least length of `locked_by`: a name of one letter, `#` and a UUID.
const SHORTEST_HOLDER: u64 = 38;
/// The length that `locked_by` should have: a name of 63 letters, `#` and a UUID.
const LONGEST_HOLDER: u64 = 100;

/// The reason why job tables are not looked at; `None` if those of the program are known, or if
/// there seem to be none.
pub(super) async fn unseen(client: &Client, is_known: bool) -> Result<Option<String>> {
    if is_known {
        return Ok(None);
    }
    let likely = rows(client, LIKELY).await?;
    let names = in_backticks(likely.iter().filter_map(|row| row.get(0)));
    Ok((!names.is_empty())
        .then(|| format!("{names}, which may be job tables: name the program, `--artifact FILE`")))
}

struct Column {
    name: String,
    sql_type: String,
    /// The maximum number of characters; `None` if there is none.
    longest: Option<u64>,
    default: String,
}

/// An index of a table, with what decides if a claim can use it.
struct Index {
    name: String,
    is_valid: bool,
    /// Its columns with their directions, as [`plain`] returns them.
    columns: Vec<String>,
    conditions: Vec<String>,
}

/// What is wrong with a table, and the statement that corrects it.
type Problem = (Level, String, Option<String>);

impl Server<'_> {
    /// Checks that the job tables have the columns and indexes that the program's claims need.
    pub(super) async fn job_tables(&self) -> Result<Diagnosis> {
        let name = "job_tables";
        let mut problems: Vec<Problem> = Vec::new();
        for table in &self.jobs {
            let label = table.label();
            let columns = columns(self.client, table).await?;
            if columns.is_empty() {
                let what = format!("there is no table `{label}`, or this role may not see it");
                problems.push((Level::Problem, what, None));
                continue;
            }
            check_columns(table, &columns, &mut problems);
            if self.facts.citus.is_some()
                && let Some((kind, fix)) = citus::managed(self.client, &table.quoted()).await?
            {
                let what = format!("`{label}` is {kind}, which refuses every claim");
                let statements = (!fix.is_empty()).then(|| fix.join(" "));
                problems.push((Level::Problem, what, statements));
            }
            check_indexes(table, &indexes_of(self.client, table).await?, &mut problems);
        }
        if let Some(level) = problems.iter().map(|(level, ..)| *level).min() {
            let message = joined(problems.iter().map(|(_, what, _)| what), "; ");
            let fix = problems.into_iter().filter_map(|(.., fix)| fix);
            return Ok(Diagnosis::new(name, level, message).fixes(fix));
        }
        if let Some(why) = &self.unseen {
            let message = format!("not looked at: {why}");
            return Ok(Diagnosis::new(name, Level::Unknown, message));
        }
        let message = match &*in_backticks(self.jobs.iter().map(JobTable::label)) {
            "" => "no table has the columns of a claim".to_owned(),
            names => format!("{names}: claims find their columns and their indexes"),
        };
        Ok(Diagnosis::fine(name, message))
    }

    /// Checks that times without a zone are written as the claims read them, in UTC.
    pub(super) async fn time_zone(&self) -> Result<Diagnosis> {
        let name = "time_zone";
        let zone = one_line(self.facts.setting("TimeZone").unwrap_or_default());
        let is_utc = UTC.split(' ').any(|name| name == zone);
        let (mut local, mut fix, mut count) = (Vec::new(), Vec::new(), 0);
        for table in &self.jobs {
            for column in columns(self.client, table).await? {
                let mut claims = table.claim.columns.iter();
                if column.sql_type != "timestamp without time zone"
                    || !claims.any(|(_, name)| *name == column.name)
                {
                    continue;
                }
                count += 1;
                let default = column.default.to_lowercase();
                let is_local = LOCAL.split(' ').any(|local| default.contains(local));
                if is_local && !default.contains("utc") {
                    let (label, shown) = (table.label(), one_line(&column.name));
                    local.push(format!("`{shown}` of `{label}`"));
                    let (table, column) = (table.quoted(), quoted(&column.name));
                    fix.push(format!(
                        "ALTER TABLE {table} ALTER COLUMN {column} SET DEFAULT (now() AT TIME ZONE 'UTC');"
                    ));
                }
            }
        }
        if !local.is_empty() {
            let (level, when) = if is_utc {
                let when = "which is UTC now: with another `TimeZone` rows would run early or late";
                (Level::Advice, when.to_owned())
            } else {
                let when = "and claims read it as UTC: rows run early or late";
                (Level::Problem, format!("which is `{zone}`, {when}"))
            };
            let local = local.join(", ");
            let message = format!("the default of {local} writes the time of the session, {when}");
            return Ok(Diagnosis::new(name, level, message).fixes(fix));
        }
        let message = match (count, &self.unseen) {
            (0, Some(why)) => format!("`{zone}`; not looked at: {why}"),
            (0, None) => format!("`{zone}`: no claim uses a time without a zone"),
            _ => format!("`{zone}`: times without a zone are written and read in UTC"),
        };
        Ok(Diagnosis::fine(name, message))
    }
}

fn check_columns(table: &JobTable, columns: &[Column], problems: &mut Vec<Problem>) {
    let label = table.label();
    for (argument, column) in &table.claim.columns {
        let Some(found) = columns.iter().find(|found| found.name == *column) else {
            let column = one_line(column);
            let what = format!("`{label}` lacks the column `{column}`, so every claim fails");
            problems.push((Level::Problem, what, None));
            continue;
        };
        let Some(longest) = found.longest else {
            continue;
        };
        let (level, what) = match argument.as_str() {
            "locked_by" if longest < SHORTEST_HOLDER => (
                Level::Problem,
                ", too short for a worker's name and a UUID, so every claim fails".to_owned(),
            ),
            "locked_by" if longest < LONGEST_HOLDER => (
                Level::Advice,
                format!(
                    ": a worker's name can have {} characters, and one with more claims nothing",
                    longest - SHORTEST_HOLDER + 1
                ),
            ),
            "error_message" => (
                Level::Advice,
                ": a longer error cannot be written with the end of its row".to_owned(),
            ),
            _ => continue,
        };
        let (column, sql_type) = (one_line(column), one_line(&found.sql_type));
        let (name, quoted) = (table.quoted(), quoted(&found.name));
        let statement = format!("ALTER TABLE {name} ALTER COLUMN {quoted} TYPE text;");
        let what = format!("`{column}` of `{label}` is {sql_type}{what}");
        problems.push((level, what, Some(statement)));
    }
}

fn check_indexes(table: &JobTable, there: &[Index], problems: &mut Vec<Problem>) {
    let label = table.label();
    let needed = table.definition().indexes();
    for (name, definition) in &needed {
        let (columns, condition) = definition.split_once(" WHERE ").unwrap_or((definition, ""));
        let wanted: Vec<String> = columns.split(", ").map(plain).collect();
        let conditions = conditions(condition);
        let is_usable = |index: &Index| {
            index.is_valid
                // A condition that the claim lacks hides rows from it.
                && index.conditions.iter().all(|one| conditions.contains(one))
                && index.columns.starts_with(&wanted)
        };
        if there.iter().any(is_usable) {
            continue;
        }
        let is_invalid = |index: &Index| index.name == *name && !index.is_valid;
        let what = if there.iter().any(is_invalid) {
            format!(
                "the index `{}` of `{label}` is invalid: its creation has failed, so drop it first",
                one_line(name)
            )
        } else {
            format!(
                "`{label}` has no index that its claims can use, for `{definition}`: each claim reads the whole table"
            )
        };
        let (name, on) = (quoted(name), table.quoted());
        let statement = format!("CREATE INDEX CONCURRENTLY {name} ON {on} {definition};");
        problems.push((Level::Advice, what, Some(statement)));
    }
    for index in there {
        let is_needed = needed.iter().any(|(name, _)| *name == index.name);
        let hash = index.name.rsplit_once("_claim_");
        let hash = hash.map(|(_, hash)| hash.as_bytes());
        let is_ours = |hash: &[u8]| hash.len() == 8 && hash.iter().all(u8::is_ascii_hexdigit);
        if hash.is_some_and(is_ours) && !is_needed {
            let what = format!(
                "the index `{}` of `{label}` is that of another form of the claim, and each insert updates it: drop it when no running \
                 program uses it",
                one_line(&index.name)
            );
            let statement = format!("DROP INDEX CONCURRENTLY {};", table.qualified(&index.name));
            problems.push((Level::Advice, what, Some(statement)));
        }
    }
}

/// The conditions of a partial index, as [`plain`] returns them.
fn conditions(all: &str) -> Vec<String> {
    let each = all.split(" AND ").map(plain);
    each.filter(|one| !one.is_empty()).collect()
}

/// The SQL of a column or a condition without what the server writes in another way than `indexes`:
/// parentheses, quotes, the schema of a function and the type of its second argument.
fn plain(sql: &str) -> String {
    let sql = sql.replace("pg_catalog.", "").replace("(0)::bigint", "0");
    sql.replace(
        |letter: char| letter.is_whitespace() || "()\"".contains(letter),
        "",
    )
}

/// The names of UTC.
const UTC: &str = "UTC Etc/UTC GMT Etc/GMT UCT Etc/UCT Zulu Universal";
/// The defaults that give the time of the session.
const LOCAL: &str =
    "now() current_timestamp localtimestamp clock_timestamp() statement_timestamp()";

async fn columns(client: &Client, table: &JobTable) -> Result<Vec<Column>> {
    let question = format!(
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod), \
         CASE WHEN a.atttypid = ANY ('{{1042,1043}}'::oid[]) \
         AND a.atttypmod > 0 THEN a.atttypmod - 4 END, \
         COALESCE(pg_get_expr(d.adbin, d.adrelid), '') FROM pg_catalog.pg_attribute AS a \
         LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = a.attrelid \
         AND d.adnum = a.attnum WHERE a.attrelid = \
         to_regclass({})::oid AND a.attnum > 0::int2 \
         AND NOT a.attisdropped",
        literal(&table.quoted())
    );
    let column = |row: SimpleQueryRow| {
        let text = |at: usize| row.get(at).unwrap_or_default().to_owned();
        Column {
            name: text(0),
            sql_type: text(1),
            longest: text(2).parse().ok(),
            default: text(3),
        }
    };
    let found = rows(client, &question).await?;
    Ok(found.into_iter().map(column).collect())
}

async fn indexes_of(client: &Client, table: &JobTable) -> Result<Vec<Index>> {
    // One row for each column of an index. Bit 1 is a descending order, bit 2 is nulls first.
    let question = format!(
        "SELECT c.relname, i.indisvalid AND i.indisready, COALESCE(pg_get_expr(i.indpred, i.indrelid), ''), \
         o.option, pg_get_indexdef(i.indexrelid, o.place::int4, false) FROM pg_catalog.pg_index AS i \
         JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid \
         CROSS JOIN LATERAL unnest(i.indoption::int2[]) WITH ORDINALITY AS o (option, place) \
         WHERE i.indrelid = to_regclass({})::oid ORDER BY c.relname, o.place",
        literal(&table.quoted())
    );
    let mut indexes: Vec<Index> = Vec::new();
    for row in rows(client, &question).await? {
        let text = |at: usize| row.get(at).unwrap_or_default().to_owned();
        let name = text(0);
        let direction = match row.get(3) {
            Some("0") => "",
            Some("1") => " DESC NULLS LAST",
            Some("2") => " NULLS FIRST",
            _ => " DESC",
        };
        let column = plain(&(text(4) + direction));
        match indexes.last_mut().filter(|index| index.name == name) {
            Some(index) => index.columns.push(column),
            None => indexes.push(Index {
                is_valid: row.get(1) == Some("t"),
                columns: vec![column],
                conditions: conditions(&text(2)),
                name,
            }),
        }
    }
    Ok(indexes)
}
