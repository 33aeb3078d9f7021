//! A job table and the columns of its claims, from a program's inventory or from options.

use advisory_pattern::ClaimRecord;
use advisory_runtime::claim::Schema;
use clap::Args;

use crate::failure::{Result, bail};
use crate::inventory::Inventory;
use crate::text::{in_backticks, one_line};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobTable {
    pub(crate) schema: Option<String>,
    pub(crate) name: String,
    pub(crate) claim: ClaimRecord,
}

/// The value of an option for a column that the table does not have.
const NONE: &str = "none";
/// The value of an option if the row is deleted instead of written to the column.
const DELETE: &str = "delete";

// The table of a claim, and its columns, as `#[claim(…)]` names them.
#[derive(Args)]
pub(crate) struct ClaimOptions {
    /// The table: `mail`, or `shop.mail`
    #[arg(long, global = true)]
    pub(crate) table: Option<String>,
    #[arg(long, value_name = "COLUMNS", global = true, help_heading = COLUMNS, help = "The primary key, such as `house, id` [default: id]")]
    key: Option<String>,
    #[arg(long, value_name = "COLUMNS", global = true, help_heading = COLUMNS, help = "Those of `#[claim(order = \"…\")]`, such as `priority desc, id` [default: `run_at` and the key]")]
    order: Option<String>,
    #[arg(long, value_name = "COLUMN", global = true, help_heading = COLUMNS, help = "Until when a row is claimed [default: locked_until]")]
    locked_until: Option<String>,
    #[arg(long, value_name = "COLUMN", global = true, help_heading = COLUMNS, help = "By whom [default: locked_by]")]
    locked_by: Option<String>,
    #[arg(long, value_name = "COLUMN", global = true, help_heading = COLUMNS, help = "When it was completed, or `none` or `delete` [default: completed_at]")]
    completed_at: Option<String>,
    #[arg(long, value_name = "COLUMN", global = true, help_heading = COLUMNS, help = "When it failed, or `none` [default: failed_at]")]
    failed_at: Option<String>,
    #[arg(long, value_name = "COLUMN", global = true, help_heading = COLUMNS, help = "Why, or `none` [default: error_message]")]
    error_message: Option<String>,
    #[arg(long, value_name = "COLUMN", global = true, help_heading = COLUMNS, help = "From when on it can be claimed, or `none` [default: run_at]")]
    run_at: Option<String>,
    #[arg(long, value_name = "COLUMN", global = true, help_heading = COLUMNS, help = "How often it was claimed, or `none` [default: attempts]")]
    attempts: Option<String>,
    #[arg(long, value_name = "COLUMN", global = true, help_heading = COLUMNS, help = "That of `#[claim(per = \"…\")]`, which the table has already")]
    per: Option<String>,
}

const COLUMNS: &str = "Columns, without an inventory";

impl ClaimOptions {
    /// The arguments of a claim, with their options and their default columns.
    fn columns(&self) -> [(&'static str, &Option<String>, Option<&'static str>); 8] {
        [
            ("locked_until", &self.locked_until, Some("locked_until")),
            ("locked_by", &self.locked_by, Some("locked_by")),
            ("completed_at", &self.completed_at, Some("completed_at")),
            ("failed_at", &self.failed_at, Some("failed_at")),
            ("error_message", &self.error_message, Some("error_message")),
            ("run_at", &self.run_at, Some("run_at")),
            ("attempts", &self.attempts, Some("attempts")),
            ("per", &self.per, None),
        ]
    }

    /// The table that is named, or those of the claims of a program if it is named too, or no table
    /// is. The options for columns do not apply to a program, so they are refused; `instead` says
    /// what to do.
    pub(crate) fn tables(
        &self,
        is_program_named: bool,
        instead: &str,
        inventory: impl FnOnce() -> Result<Inventory>,
    ) -> Result<Vec<JobTable>> {
        if let (Some(table), false) = (&self.table, is_program_named) {
            return Ok(vec![self.on(table)?]);
        }
        if let Some(option) = self.given() {
            bail!(
                "`{option}` does not apply to the claims of a program, which has its columns: {instead}"
            );
        }
        JobTable::of_inventory(&inventory()?.claims, self.table.as_deref())
    }

    /// The first option for a column that is given.
    fn given(&self) -> Option<String> {
        let others = [("key", &self.key, None), ("order", &self.order, None)];
        let mut all = others.into_iter().chain(self.columns());
        let (name, ..) = all.find(|(_, value, _)| value.is_some())?;
        Some(format!("--{}", name.replace('_', "-")))
    }

    fn on(&self, table: &str) -> Result<JobTable> {
        let mut claim = ClaimRecord {
            key: names(self.key.as_deref().unwrap_or("id")),
            row: "row".to_owned(),
            ..ClaimRecord::default()
        };
        for (argument, given, default) in self.columns() {
            match given.as_deref().or(default) {
                Some(DELETE) if argument == "completed_at" => {
                    claim.deletes.push(argument.to_owned());
                }
                Some(DELETE) if argument == "failed_at" => bail!(
                    "`--failed-at` cannot be `delete`: write `none`, and call `claim::delete` where a row is to be deleted"
                ),
                Some(NONE) if matches!(argument, "locked_until" | "locked_by") => {
                    let option = argument.replace('_', "-");
                    bail!("`--{option}` cannot be `{NONE}`: a claim is written into this column")
                }
                Some(NONE) | None => {}
                Some(column) => claim.columns.push((argument.to_owned(), column.to_owned())),
            }
        }
        if let Some(order) = &self.order {
            let columns = order.split(',').map(direction);
            claim.order = columns.collect::<Result<_, _>>()?;
        }
        let (schema, name) = match table.split_once('.') {
            Some((schema, name)) => (Some(schema.to_owned()), name),
            None => (None, table),
        };
        name.clone_into(&mut claim.table);
        Ok(JobTable {
            schema,
            name: name.to_owned(),
            claim,
        })
    }
}

impl JobTable {
    /// The tables of an inventory's claims, or only those of this name. A table of two types of row
    /// is returned twice if they use different columns.
    pub(crate) fn of_inventory(claims: &[ClaimRecord], table: Option<&str>) -> Result<Vec<Self>> {
        let mut tables: Vec<Self> = Vec::new();
        let named = table.map(|table| match table.rsplit_once('.') {
            Some((schema, name)) => (Some(schema), name),
            None => (None, table),
        });
        for claim in claims {
            let name = claim.table_name();
            if named.is_some_and(|(_, wanted)| wanted != name) {
                continue;
            }
            if claim.key.is_empty() {
                // The row is generic, or an earlier version wrote the inventory.
                bail!(
                    "the inventory does not have the columns of the claim `{}` on `{name}`: it is generic, or was written by an \
                     earlier version; name the columns, with `--table {name}` and without an inventory",
                    one_line(&claim.row)
                );
            }
            let table = Self {
                schema: named.and_then(|(schema, _)| schema).map(str::to_owned),
                name: name.to_owned(),
                claim: claim.clone(),
            };
            if !tables.iter().any(|known| known.is_as(&table)) {
                tables.push(table);
            }
        }
        if !tables.is_empty() {
            return Ok(tables);
        }
        let Some(table) = table.map(one_line) else {
            bail!("the program claims no rows: name a table, `--table mail`");
        };
        let mut others: Vec<&str> = claims.iter().map(ClaimRecord::table_name).collect();
        others.dedup();
        let others = match in_backticks(others) {
            none if none.is_empty() => "none".to_owned(),
            some => some,
        };
        bail!("the program claims no rows of `{table}`: it claims {others}")
    }

    fn is_as(&self, other: &Self) -> bool {
        self.name == other.name
            && self.claim.columns == other.claim.columns
            && self.claim.deletes == other.claim.deletes
            && self.claim.claim_order() == other.claim.claim_order()
            && self.claim.key == other.claim.key
    }

    pub(crate) fn quoted(&self) -> String {
        self.qualified(&self.name)
    }

    pub(crate) fn qualified(&self, name: &str) -> String {
        let schema = self.schema.iter().map(|schema| quoted(schema) + ".");
        schema.collect::<String>() + &quoted(name)
    }

    /// The table's name, with its schema if it is known.
    pub(crate) fn label(&self) -> String {
        let schema = self.schema.iter().map(|schema| format!("{schema}."));
        one_line(&(schema.collect::<String>() + &self.name))
    }

    /// What a migration adds to the table.
    pub(crate) fn definition(&self) -> Schema {
        Schema::of_claim(self.schema.as_deref(), &self.name, self.claim.clone())
    }

    pub(crate) fn pending(&self) -> Vec<String> {
        let ends = ["completed_at", "failed_at"].iter();
        let columns = ends.filter_map(|argument| self.claim.column(argument));
        let conditions = columns.map(|column| quoted(column) + " IS NULL");
        conditions.collect()
    }
}

/// A name as an SQL identifier in quotes, as Diesel writes it.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn names(columns: &str) -> Vec<String> {
    let columns = columns.split(',').map(|column| column.trim().to_owned());
    columns.filter(|column| !column.is_empty()).collect()
}

fn direction(part: &str) -> Result<(String, String)> {
    let mut words = part.split_whitespace();
    let column = words.next().unwrap_or_default();
    let words: Vec<String> = words.map(str::to_lowercase).collect();
    let direction = match &*words.join(" ") {
        _ if column.is_empty() => None,
        "" | "asc" | "nulls last" | "asc nulls last" => Some(""),
        "nulls first" | "asc nulls first" => Some("NULLS FIRST"),
        "desc" | "desc nulls first" => Some("DESC"),
        "desc nulls last" => Some("DESC NULLS LAST"),
        _ => None,
    };
    match direction {
        Some(direction) => Ok((column.to_owned(), direction.to_owned())),
        None => bail!(
            "`--order` cannot contain `{}`: write columns, such as `--order 'priority desc, id'`",
            part.trim()
        ),
    }
}
