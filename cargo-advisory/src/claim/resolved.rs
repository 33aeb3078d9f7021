//! A job table in the database: its schema, the types of the claim's columns, and its key.

use std::collections::BTreeMap;

use tokio_postgres::Client;

use super::jobs::read;
use crate::failure::{Result, bail};
use crate::job_table::{JobTable, quoted};
use crate::text::{joined, one_line};

/// The columns of the tables of this name. Those of the table on the search path come first.
const COLUMNS: &str = "\
SELECT n.nspname::text AS schema, pg_table_is_visible(c.oid) AS is_visible, a.attname::text AS name,
  format('%I.%I', s.nspname, t.typname) AS sql_type, array_position(i.indkey, a.attnum)::int8 AS place
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid
JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
JOIN pg_catalog.pg_namespace AS s ON s.oid = t.typnamespace
LEFT JOIN pg_catalog.pg_index AS i ON i.indrelid = c.oid AND i.indisprimary
WHERE c.relname = $1::name AND ($2 = '' OR n.nspname = $2::name)
  AND c.relkind = ANY ('{r,p,v,f}') AND a.attnum > 0::int2 AND NOT a.attisdropped
ORDER BY is_visible DESC, schema, a.attnum";

pub(super) struct Resolved {
    pub(super) table: JobTable,
    /// The table's name, with its schema if the table is not on the search path.
    pub(super) label: String,
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

impl Resolved {
    /// Finds the table: in its schema, on the search path, or in the only schema in which it has
    /// the claim's columns.
    pub(super) async fn find(client: &Client, wanted: &JobTable) -> Result<Self> {
        // The empty text is the name of no schema.
        let schema = wanted.schema.clone().unwrap_or_default();
        let names = [wanted.name.clone(), schema];
        let mut columns = read(client, COLUMNS, &names, |row| {
            Ok(Column {
                schema: row.try_get("schema")?,
                is_visible: row.try_get("is_visible")?,
                name: row.try_get("name")?,
                sql_type: row.try_get("sql_type")?,
                place: row.try_get("place")?,
            })
        })
        .await??;
        let name = wanted.label();
        let visible = columns.iter().find(|column| column.is_visible);
        let is_named = visible.is_some() || wanted.schema.is_some();
        let schema = match visible {
            Some(column) => column.schema.clone(),
            None => only_schema(&columns, wanted)?,
        };
        columns.retain(|column| column.schema == schema);
        let label = if is_named {
            name
        } else {
            one_line(&format!("{schema}.{}", wanted.name))
        };
        let types = columns.iter();
        let types = types.map(|column| (column.name.clone(), column.sql_type.clone()));
        let types: BTreeMap<String, String> = types.collect();
        let mut table = JobTable {
            schema: Some(schema),
            ..wanted.clone()
        };
        // The primary key of the table, or the claim's key if the table has none.
        columns.retain(|column| column.place.is_some());
        columns.sort_by_key(|column| column.place);
        let mut names: Vec<&String> = columns.iter().map(|column| &column.name).collect();
        if names.is_empty() {
            names = table.claim.key.iter().collect();
        }
        let with_type = |name: &String| Some((name.clone(), types.get(name)?.clone()));
        let key: Vec<_> = names.into_iter().filter_map(with_type).collect();
        if key.is_empty() {
            bail!(
                "`{label}` has no primary key: write the columns that identify a row, `--key id`"
            );
        }
        for argument in REQUIRED {
            let column = table.claim.column(argument);
            if let Some(column) = column.filter(|column| !types.contains_key(*column)) {
                let (option, column) = (argument.replace('_', "-"), one_line(column));
                bail!("`{label}` has no column `{column}`: write `--{option} COLUMN`");
            }
        }
        // Other columns that the table lacks are not used.
        let used = &mut table.claim.columns;
        used.retain(|(_, column)| types.contains_key(column));
        Ok(Self {
            table,
            label,
            types,
            key,
        })
    }

    pub(super) fn column(&self, argument: &str) -> Option<String> {
        self.table.claim.column(argument).map(quoted)
    }

    pub(super) fn type_of(&self, column: &str) -> Option<&str> {
        self.types.get(column).map(String::as_str)
    }

    /// The time of the statement, in the type of an argument's column: a time without a zone is in
    /// UTC.
    pub(super) fn now(&self, argument: &str) -> &'static str {
        let column = self.table.claim.column(argument);
        match column.and_then(|column| self.type_of(column)) {
            Some("pg_catalog.\"timestamp\"") => "timezone('UTC', statement_timestamp())",
            _ => "statement_timestamp()",
        }
    }

    /// The key of a row as one text, in SQL.
    pub(super) fn key_text(&self) -> String {
        let texts = self.key.iter().map(|(name, _)| quoted(name) + "::text");
        format!("concat_ws(',', {})", joined(texts, ", "))
    }
}

/// The arguments that name a column in every claim.
const REQUIRED: [&str; 2] = ["locked_until", "locked_by"];

/// The only schema that has the table with the claim's columns.
fn only_schema(columns: &[Column], wanted: &JobTable) -> Result<String> {
    let name = wanted.label();
    let mut schemas: Vec<&str> = columns.iter().map(|column| &*column.schema).collect();
    schemas.dedup();
    let has_columns = |schema: &&str| {
        let has = |name| {
            columns
                .iter()
                .any(|it| it.schema == *schema && it.name == name)
        };
        let names = REQUIRED.map(|argument| wanted.claim.column(argument));
        names.into_iter().flatten().all(has)
    };
    let mut others = schemas.into_iter().filter(has_columns);
    match (others.next(), others.next(), columns.first()) {
        (Some(only), None, _) => Ok(only.to_owned()),
        (Some(_), Some(_), _) => {
            bail!("several schemas have a table `{name}`: write `--table SCHEMA.{name}`")
        }
        (None, _, Some(column)) => Ok(column.schema.clone()),
        (None, _, None) => bail!(
            "there is no table `{name}`: write its name in SQL, `--table mail` or `--table shop.mail`"
        ),
    }
}
