//! A table of jobs as the database has it: its schema, the types of the claim's columns, and its
//! key.

use std::collections::BTreeMap;

use super::jobs::{FromRow, Jobs};
use crate::failure::Failure;
use crate::job_table::{JobTable, quoted};
use crate::screen::one_line;

/// The tables of this name, with their columns; those that the search path finds come first.
const COLUMNS: &str = "\
SELECT CAST(n.nspname AS pg_catalog.text) AS schema, pg_catalog.pg_table_is_visible(c.oid) AS is_visible,
  CAST(a.attname AS pg_catalog.text) AS name, pg_catalog.format_type(a.atttypid, a.atttypmod) AS sql_type,
  CAST(pg_catalog.array_position(i.indkey, a.attnum) AS pg_catalog.int8) AS place
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) c.oid
LEFT JOIN pg_catalog.pg_index AS i ON i.indrelid OPERATOR(pg_catalog.=) c.oid AND i.indisprimary
WHERE c.relname OPERATOR(pg_catalog.=) CAST($1 AS pg_catalog.name) AND ($2 OPERATOR(pg_catalog.=) '' OR n.nspname OPERATOR(pg_catalog.=) CAST($2 AS pg_catalog.name))
  AND c.relkind IN ('r', 'p', 'v', 'f') AND a.attnum OPERATOR(pg_catalog.>) CAST(0 AS pg_catalog.int2) AND NOT a.attisdropped
ORDER BY is_visible DESC, schema, a.attnum";

/// A table of jobs, found in the database.
pub(super) struct Resolved {
    pub(super) table: JobTable,
    /// The table's name, with its schema where the search path does not find it.
    pub(super) label: String,
    /// The types of all its columns.
    types: BTreeMap<String, String>,
    /// The columns of the key, each with its type.
    pub(super) key: Vec<(String, String)>,
}

struct Column {
    schema: String,
    is_visible: bool,
    name: String,
    sql_type: String,
    place: Option<i64>,
}

impl FromRow for Column {
    fn from_row(row: &tokio_postgres::Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            schema: row.try_get("schema")?,
            is_visible: row.try_get("is_visible")?,
            name: row.try_get("name")?,
            sql_type: row.try_get("sql_type")?,
            place: row.try_get("place")?,
        })
    }
}

impl Resolved {
    /// Finds the table: in its schema, or where the search path finds it, or in the only schema
    /// that has it with the claim's columns.
    pub(super) async fn find(jobs: &Jobs, wanted: &JobTable) -> Result<Self, Failure> {
        // The empty text is the name of no schema.
        let binds = [
            wanted.name.clone(),
            wanted.schema.clone().unwrap_or_default(),
        ];
        let columns = jobs
            .read::<Column>(COLUMNS, &binds)
            .await?
            .map_err(Failure::Input)?;
        let name = wanted.label();
        let mut schemas: Vec<&str> = columns
            .iter()
            .map(|column| column.schema.as_str())
            .collect();
        schemas.dedup();
        let visible = columns
            .iter()
            .find(|column| column.is_visible)
            .map(|column| column.schema.clone());
        let has_columns = |schema: &&str| {
            let arguments = ["locked_until", "locked_by"].iter();
            arguments
                .filter_map(|argument| wanted.column(argument))
                .all(|name| {
                    columns
                        .iter()
                        .any(|column| column.schema == **schema && column.name == name)
                })
        };
        let is_visible = visible.is_some();
        let schema = if let Some(schema) = visible {
            schema
        } else {
            let mut others = schemas.into_iter().filter(has_columns);
            match (others.next(), others.next()) {
                (Some(only), None) => only.to_owned(),
                (Some(_), Some(_)) => {
                    return Err(Failure::Input(format!(
                        "several schemas have a table `{name}`: write `--table SCHEMA.{name}`"
                    )));
                }
                (None, _) if columns.is_empty() => {
                    return Err(Failure::Input(format!(
                        "there is no table `{name}`: write its name in SQL, `--table mail` or `--table shop.mail`"
                    )));
                }
                (None, _) => columns[0].schema.clone(),
            }
        };
        let own: Vec<Column> = columns
            .into_iter()
            .filter(|column| column.schema == schema)
            .collect();
        let types = own
            .iter()
            .map(|column| (column.name.clone(), column.sql_type.clone()))
            .collect();
        let label = if is_visible || wanted.schema.is_some() {
            name
        } else {
            one_line(&format!("{schema}.{}", wanted.name))
        };
        let mut found = Self {
            label,
            table: JobTable {
                schema: Some(schema),
                ..wanted.clone()
            },
            types,
            key: Vec::new(),
        };
        found.take_key(&own)?;
        found.check()?;
        Ok(found)
    }

    /// The primary key of the table, or that of the claim for one without.
    fn take_key(&mut self, columns: &[Column]) -> Result<(), Failure> {
        let mut primary: Vec<&Column> = columns
            .iter()
            .filter(|column| column.place.is_some())
            .collect();
        primary.sort_by_key(|column| column.place);
        self.key = primary
            .iter()
            .map(|column| (column.name.clone(), column.sql_type.clone()))
            .collect();
        if self.key.is_empty() {
            let key = self.table.claim.key.iter();
            let typed = key.filter_map(|name| Some((name.clone(), self.types.get(name)?.clone())));
            self.key = typed.collect();
        }
        if self.key.is_empty() {
            let label = &self.label;
            return Err(Failure::Input(format!(
                "`{label}` has no primary key: write the columns that identify a row, `--key id`"
            )));
        }
        Ok(())
    }

    /// Returns whether the table has the claim's columns. Without an option of its own, a column
    /// that it lacks is none.
    fn check(&mut self) -> Result<(), Failure> {
        let types = &self.types;
        let missing = |argument: &str, table: &JobTable| {
            let name = table.column(argument)?;
            (!types.contains_key(name)).then(|| name.to_owned())
        };
        for argument in ["locked_until", "locked_by"] {
            if let Some(column) = missing(argument, &self.table) {
                let (label, option) = (&self.label, argument.replace('_', "-"));
                return Err(Failure::Input(format!(
                    "`{label}` has no column `{}`: write `--{option} COLUMN`",
                    one_line(&column)
                )));
            }
        }
        let lacks: Vec<String> = [
            "completed_at",
            "failed_at",
            "error_message",
            "run_at",
            "attempts",
            "per",
        ]
        .into_iter()
        .filter(|argument| missing(argument, &self.table).is_some())
        .map(str::to_owned)
        .collect();
        self.table
            .claim
            .columns
            .retain(|(argument, _)| !lacks.contains(argument));
        Ok(())
    }

    /// The column of an argument, in SQL.
    pub(super) fn column(&self, argument: &str) -> Option<String> {
        self.table.column(argument).map(quoted)
    }

    /// The type of a column.
    pub(super) fn type_of(&self, column: &str) -> Option<&str> {
        self.types.get(column).map(String::as_str)
    }

    /// The time of the statement, in the type of an argument's column: a time without a zone is in
    /// UTC.
    pub(super) fn now(&self, argument: &str) -> &'static str {
        let sql_type = self
            .table
            .column(argument)
            .and_then(|column| self.type_of(column));
        if sql_type.is_some_and(|sql_type| {
            sql_type.starts_with("timestamp") && sql_type.ends_with("without time zone")
        }) {
            "pg_catalog.timezone('UTC', pg_catalog.statement_timestamp())"
        } else {
            "pg_catalog.statement_timestamp()"
        }
    }

    /// The key of a row as one text, in SQL.
    pub(super) fn key_text(&self) -> String {
        let columns = self
            .key
            .iter()
            .map(|(name, _)| format!("CAST({} AS pg_catalog.text)", quoted(name)));
        let columns: Vec<String> = columns.collect();
        format!("pg_catalog.concat_ws(',', {})", columns.join(", "))
    }
}
