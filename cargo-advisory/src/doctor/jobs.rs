//! Findings about the tables whose rows are claimed: their columns, their indexes, and times
//! without a zone.

use tokio_postgres::Client;

use super::citus;
use super::facts::Facts;
use super::{Finding, Level};
use crate::database::rows;
use crate::failure::Failure;
use crate::guard::literal;
use crate::job_table::{JobTable, quoted};
use crate::migration::claim::indexes;
use crate::screen::one_line;

/// The tables that look like queues: with the columns that a claim has, whatever they are for.
const LIKELY: &str = "SELECT CAST(CAST(c.oid AS pg_catalog.regclass) AS pg_catalog.text) FROM pg_catalog.pg_class AS c \
     WHERE c.relkind OPERATOR(pg_catalog.=) ANY ('{r,p}') AND NOT c.relispartition AND 2 OPERATOR(pg_catalog.=) \
     (SELECT pg_catalog.count(*) FROM pg_catalog.pg_attribute AS a WHERE a.attrelid OPERATOR(pg_catalog.=) c.oid \
     AND NOT a.attisdropped AND a.attname OPERATOR(pg_catalog.=) ANY ('{locked_until,locked_by}')) ORDER BY 1 LIMIT 5";

/// The shortest `locked_by` that a claim fits in: a name of one letter, `#` and a UUID. A worker's
/// name makes it longer.
const SHORTEST_HOLDER: u64 = 38;
/// How long a holder should be able to be: a name of 63 letters.
const LONGEST_HOLDER: u64 = 100;

/// Why job tables are not looked at; `None` if the program's are known, or there is none.
pub(super) async fn unseen(client: &Client, is_known: bool) -> Result<Option<String>, Failure> {
    if is_known {
        return Ok(None);
    }
    let likely = rows(client, LIKELY).await?;
    let names = likely.iter().filter_map(|row| row.get(0));
    let names: Vec<String> = names.map(|name| format!("`{}`", one_line(name))).collect();
    Ok((!names.is_empty()).then(|| {
        format!(
            "{}, which may be job tables: name the program, `--artifact FILE`",
            names.join(", ")
        )
    }))
}

/// A column as the server has it.
struct Column {
    name: String,
    sql_type: String,
    /// The most characters that it takes; `None` if it takes any number.
    longest: Option<u64>,
    default: String,
}

/// An index of a table, as far as a claim can use it.
struct Index {
    name: String,
    is_valid: bool,
    /// Its columns, each with its direction as in the SQL of an index.
    columns: Vec<String>,
    /// Its condition, without brackets.
    condition: String,
}

/// Whether the job tables have what the claims of the program need.
pub(super) async fn job_tables(
    client: &Client,
    facts: &Facts,
    tables: &[JobTable],
    unseen: Option<&String>,
) -> Result<Finding, Failure> {
    let name = "job_tables";
    let (mut said, mut fix, mut level) = (Vec::new(), Vec::new(), Level::Fine);
    let mut add = |problem: Level, what: String, statement: Option<String>| {
        level = level.min(problem);
        said.push(what);
        fix.extend(statement);
    };
    for table in tables {
        let label = table.label();
        let columns = columns(client, table).await?;
        if columns.is_empty() {
            let what = format!("there is no table `{label}`, or this role may not see it");
            add(Level::Problem, what, None);
            continue;
        }
        check_columns(table, &columns, &mut add);
        if facts.citus.is_some()
            && let Some(managed) = citus::managed(client, &table.quoted()).await?
        {
            let what = format!("`{label}` is {}, which refuses every claim", managed.kind);
            let statements = (!managed.fix.is_empty()).then(|| managed.fix.join(" "));
            add(Level::Problem, what, statements);
        }
        let there = indexes_of(client, table).await?;
        check_indexes(table, &there, &mut add);
    }
    if said.is_empty() {
        return Ok(match unseen {
            Some(why) => Finding::new(name, Level::Unknown, format!("not looked at: {why}")),
            None if tables.is_empty() => {
                Finding::new(name, Level::Fine, "no table has the columns of a claim")
            }
            None => {
                let names: Vec<String> = tables
                    .iter()
                    .map(|table| format!("`{}`", table.label()))
                    .collect();
                let message = format!(
                    "{}: claims find their columns and their indexes",
                    names.join(", ")
                );
                Finding::new(name, Level::Fine, message)
            }
        });
    }
    let finding = Finding::new(name, level, said.join("; "));
    Ok(fix.into_iter().fold(finding, Finding::fix))
}

fn check_columns(
    table: &JobTable,
    columns: &[Column],
    add: &mut impl FnMut(Level, String, Option<String>),
) {
    let label = table.label();
    for (argument, column) in &table.claim.columns {
        let Some(found) = columns.iter().find(|found| found.name == *column) else {
            let what = format!(
                "`{label}` lacks the column `{}`, so every claim fails",
                one_line(column)
            );
            add(Level::Problem, what, None);
            continue;
        };
        let Some(longest) = found.longest else {
            continue;
        };
        let (column, sql_type) = (one_line(column), one_line(&found.sql_type));
        let statement = format!(
            "ALTER TABLE {} ALTER COLUMN {} TYPE text;",
            table.quoted(),
            quoted(&found.name)
        );
        match argument.as_str() {
            "locked_by" if longest < SHORTEST_HOLDER => {
                let what = format!(
                    "`{column}` of `{label}` is {sql_type}, too short for a worker's name and a UUID, so every claim fails"
                );
                add(Level::Problem, what, Some(statement));
            }
            "locked_by" if longest < LONGEST_HOLDER => {
                let what = format!(
                    "`{column}` of `{label}` is {sql_type}: a worker's name can have {} characters, and one with more claims nothing",
                    longest - SHORTEST_HOLDER + 1
                );
                add(Level::Advice, what, Some(statement));
            }
            "error_message" => {
                let what = format!(
                    "`{column}` of `{label}` is {sql_type}: a longer error cannot be written with the end of its row"
                );
                add(Level::Advice, what, Some(statement));
            }
            _ => {}
        }
    }
}

fn check_indexes(
    table: &JobTable,
    there: &[Index],
    add: &mut impl FnMut(Level, String, Option<String>),
) {
    let label = table.label();
    let needed = indexes(table);
    for (name, definition) in &needed {
        let (columns, condition) = definition.split_once(" WHERE ").unwrap_or((definition, ""));
        let columns = columns.strip_prefix('(').unwrap_or(columns);
        let columns = columns.strip_suffix(')').unwrap_or(columns);
        let wanted: Vec<&str> = columns.split(", ").collect();
        let conditions: Vec<&str> = condition
            .split(" AND ")
            .filter(|part| !part.is_empty())
            .collect();
        let is_usable = |index: &&Index| {
            // A condition that the claim does not have hides rows from it.
            let has_conditions = index
                .condition
                .split(" AND ")
                .filter(|part| !part.is_empty())
                .all(|part| conditions.contains(&part));
            index.is_valid
                && has_conditions
                && index
                    .columns
                    .iter()
                    .map(String::as_str)
                    .take(wanted.len())
                    .eq(wanted.iter().copied())
        };
        if there.iter().any(|index| is_usable(&index)) {
            continue;
        }
        let own = there
            .iter()
            .find(|index| index.name == *name && !index.is_valid);
        let what = match own {
            Some(index) => format!(
                "the index `{}` of `{label}` is invalid: its creation has failed, so drop it first",
                one_line(&index.name)
            ),
            None => format!(
                "`{label}` has no index that its claims can use, for `{definition}`: each claim reads the whole table"
            ),
        };
        let statement = format!(
            "CREATE INDEX CONCURRENTLY {} ON {} {definition};",
            quoted(name),
            table.quoted()
        );
        add(Level::Advice, what, Some(statement));
    }
    for index in there {
        let is_needed = needed.iter().any(|(name, _)| *name == index.name);
        let is_ours = index.name.rsplit_once("_claim_").is_some_and(|(_, hash)| {
            hash.len() == 8 && hash.bytes().all(|digit| digit.is_ascii_hexdigit())
        });
        if is_ours && !is_needed {
            let what = format!(
                "the index `{}` of `{label}` is that of another form of the claim, and each insert updates it: drop it when no running \
                 program uses it",
                one_line(&index.name)
            );
            let statement = format!("DROP INDEX CONCURRENTLY {};", table.qualified(&index.name));
            add(Level::Advice, what, Some(statement));
        }
    }
}

/// Whether times without a zone are written as the claims read them, in UTC.
pub(super) async fn time_zone(
    client: &Client,
    facts: &Facts,
    tables: &[JobTable],
    unseen: Option<&String>,
) -> Result<Finding, Failure> {
    let name = "time_zone";
    let zone = one_line(facts.setting("TimeZone").unwrap_or_default());
    let is_utc = matches!(
        zone.as_str(),
        "UTC" | "Etc/UTC" | "GMT" | "Etc/GMT" | "UCT" | "Etc/UCT" | "Zulu" | "Universal"
    );
    let (mut local, mut fix, mut count) = (Vec::new(), Vec::new(), 0);
    for table in tables {
        for column in columns(client, table).await? {
            let is_claims = table
                .claim
                .columns
                .iter()
                .any(|(_, name)| *name == column.name);
            if !is_claims || column.sql_type != "timestamp without time zone" {
                continue;
            }
            count += 1;
            let default = column.default.to_lowercase();
            let is_local = [
                "now()",
                "current_timestamp",
                "localtimestamp",
                "clock_timestamp()",
                "statement_timestamp()",
            ]
            .iter()
            .any(|local| default.contains(local));
            if is_local && !default.contains("utc") {
                local.push(format!(
                    "`{}` of `{}`",
                    one_line(&column.name),
                    table.label()
                ));
                fix.push(format!(
                    "ALTER TABLE {} ALTER COLUMN {} SET DEFAULT (now() AT TIME ZONE 'UTC');",
                    table.quoted(),
                    quoted(&column.name)
                ));
            }
        }
    }
    if !local.is_empty() {
        let (level, when) = if is_utc {
            (
                Level::Advice,
                "which is UTC now: with another `TimeZone` rows would run early or late".to_owned(),
            )
        } else {
            (
                Level::Problem,
                format!("which is `{zone}`, and claims read it as UTC: rows run early or late"),
            )
        };
        let message = format!(
            "the default of {} writes the time of the session, {when}",
            local.join(", ")
        );
        let finding = Finding::new(name, level, message);
        return Ok(fix.into_iter().fold(finding, Finding::fix));
    }
    let message = match (count, unseen) {
        (0, Some(why)) => format!("`{zone}`; not looked at: {why}"),
        (0, None) => format!("`{zone}`: no claim uses a time without a zone"),
        _ => format!("`{zone}`: times without a zone are written and read in UTC"),
    };
    Ok(Finding::new(name, Level::Fine, message))
}

/// The columns of a table; none if it is not there.
async fn columns(client: &Client, table: &JobTable) -> Result<Vec<Column>, Failure> {
    let question = format!(
        "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), \
         CASE WHEN a.atttypid OPERATOR(pg_catalog.=) ANY (CAST('{{1042,1043}}' AS pg_catalog.oid[])) \
         AND a.atttypmod OPERATOR(pg_catalog.>) 0 THEN a.atttypmod OPERATOR(pg_catalog.-) 4 END, \
         COALESCE(pg_catalog.pg_get_expr(d.adbin, d.adrelid), '') FROM pg_catalog.pg_attribute AS a \
         LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid OPERATOR(pg_catalog.=) a.attrelid \
         AND d.adnum OPERATOR(pg_catalog.=) a.attnum WHERE a.attrelid OPERATOR(pg_catalog.=) \
         CAST(pg_catalog.to_regclass({}) AS pg_catalog.oid) AND a.attnum OPERATOR(pg_catalog.>) CAST(0 AS pg_catalog.int2) \
         AND NOT a.attisdropped",
        literal(&table.quoted())
    );
    let found = rows(client, &question).await?;
    let column = found.iter().map(|row| Column {
        name: row.get(0).unwrap_or_default().to_owned(),
        sql_type: row.get(1).unwrap_or_default().to_owned(),
        longest: row.get(2).and_then(|longest| longest.parse().ok()),
        default: row.get(3).unwrap_or_default().to_owned(),
    });
    Ok(column.collect())
}

async fn indexes_of(client: &Client, table: &JobTable) -> Result<Vec<Index>, Failure> {
    // One row for each column of an index. Bit 1 is a descending order, bit 2 is nulls first.
    let question = format!(
        "SELECT c.relname, i.indisvalid AND i.indisready, COALESCE(pg_catalog.pg_get_expr(i.indpred, i.indrelid, true), ''), \
         a.attname, o.option, pg_catalog.pg_get_indexdef(i.indexrelid, CAST(o.place AS pg_catalog.int4), true) FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) i.indexrelid \
         CROSS JOIN LATERAL ROWS FROM (pg_catalog.unnest(CAST(i.indkey AS pg_catalog.int2[])), \
         pg_catalog.unnest(CAST(i.indoption AS pg_catalog.int2[]))) WITH ORDINALITY AS o (attnum, option, place) \
         LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) i.indrelid \
         AND a.attnum OPERATOR(pg_catalog.=) o.attnum WHERE o.option IS NOT NULL AND i.indrelid OPERATOR(pg_catalog.=) \
         CAST(pg_catalog.to_regclass({}) AS pg_catalog.oid) ORDER BY c.relname, o.place",
        literal(&table.quoted())
    );
    let mut indexes: Vec<Index> = Vec::new();
    for row in rows(client, &question).await? {
        let text = |at: usize| row.get(at).unwrap_or_default().to_owned();
        let name = text(0);
        let direction = match row.get(4) {
            Some("0") => "",
            Some("1") => " DESC NULLS LAST",
            Some("2") => " NULLS FIRST",
            _ => " DESC",
        };
        let column = match row.get(3) {
            Some(column) => quoted(column),
            None => expression(&text(5)),
        };
        let column = format!("{column}{direction}");
        match indexes.last_mut().filter(|index| index.name == name) {
            Some(index) => index.columns.push(column),
            None => indexes.push(Index {
                is_valid: row.get(1) == Some("t"),
                columns: vec![column],
                condition: condition(&text(2)),
                name,
            }),
        }
    }
    Ok(indexes)
}

/// The expression of an index, as `indexes` writes the hash of a column.
fn expression(written: &str) -> String {
    let column = written
        .strip_prefix("hash_record_extended(ROW(")
        .and_then(|rest| rest.strip_suffix("), 0::bigint)"));
    column.map_or_else(
        || written.to_owned(),
        |column| {
            let column = if column.starts_with('"') {
                column.to_owned()
            } else {
                quoted(column)
            };
            format!("pg_catalog.hash_record_extended(ROW({column}),0)")
        },
    )
}

/// A condition of columns that are `NULL`, as `indexes` writes it: the server writes brackets, and
/// quotes only where it must.
fn condition(written: &str) -> String {
    let parts = written
        .split(" AND ")
        .filter(|part| !part.is_empty())
        .map(|part| {
            let part = part.trim_matches(['(', ')', ' ']);
            let (column, rest) = match part.split_once(" IS ") {
                Some((column, rest)) => (column, format!(" IS {rest}")),
                None => return part.to_owned(),
            };
            if column.starts_with('"') {
                return part.to_owned();
            }
            format!("{}{rest}", quoted(column))
        });
    parts.collect::<Vec<String>>().join(" AND ")
}

#[cfg(test)]
mod tests {
    use super::condition;

    #[test]
    fn the_condition_of_an_index_is_compared_without_brackets() {
        for (written, expected) in [
            ("", ""),
            ("completed_at IS NULL", "\"completed_at\" IS NULL"),
            (
                "((completed_at IS NULL) AND (\"Failed at\" IS NULL))",
                "\"completed_at\" IS NULL AND \"Failed at\" IS NULL",
            ),
            ("(id > 7)", "id > 7"),
        ] {
            assert_eq!(condition(written), expected);
        }
    }
}
