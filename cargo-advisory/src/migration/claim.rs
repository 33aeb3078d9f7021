//! The migration of claims: the columns that a program's claim uses, and its indexes and triggers.

use clap::Args;

use crate::cli::Output;
use crate::failure::{Result, bail};
use crate::guard::literal;
use crate::job_table::{ClaimColumns, JobTable, quoted};
use crate::selection::Artifacts;
use crate::text::joined;

/// The types of the columns that can be added.
const TYPES: [(&str, &str); 7] = [
    ("run_at", "timestamptz NOT NULL DEFAULT now()"),
    ("attempts", "integer NOT NULL DEFAULT 0"),
    ("locked_until", "timestamptz"),
    ("locked_by", "text"),
    ("completed_at", "timestamptz"),
    ("failed_at", "timestamptz"),
    ("error_message", "text"),
];

const LONGEST_NAME: usize = 63;

/// The channel on which idle workers listen.
pub(crate) const CHANNEL: &str = "advisory_claim";

/// Columns, indexes and triggers for a job table
///
/// Prints what the claims of a program need: the columns that they use, the indexes of
/// `claim::indexes`, and the triggers that wake up an idle `claim::Worker`. What exists already is
/// left as it is.
///
/// The claims are those of the program, which is built, or read from `--artifact`. With `--table`
/// alone, there is one claim on this table, with the columns of `#[claim(run_at, attempts)]` or
/// those that the options name.
#[derive(Args)]
pub(super) struct Arguments {
    /// The table: `mail`, or `shop.mail`
    #[arg(long)]
    table: Option<String>,
    #[command(flatten)]
    columns: ClaimColumns,
    /// Prints `down.sql`, which drops the columns and their contents
    #[arg(long)]
    down: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    artifacts: Artifacts,
}

impl Arguments {
    pub(super) fn run(&self) -> Result<()> {
        let tables = self.tables()?;
        let sql = tables
            .iter()
            .map(|table| if self.down { down(table) } else { up(table) });
        self.output.write(&joined(sql, "\n"))
    }

    fn tables(&self) -> Result<Vec<JobTable>> {
        if let (Some(table), false) = (&self.table, self.artifacts.are_named()) {
            return Ok(vec![self.columns.on(table)?]);
        }
        if let Some(option) = self.columns.given() {
            let instead = match &self.table {
                Some(_) => "leave it out, or `--artifact`",
                None => "name the table, `--table mail`",
            };
            bail!(
                "`{option}` does not apply to the claims of a program, which has its columns: {instead}"
            );
        }
        JobTable::of_inventory(&self.artifacts.inventory()?.claims, self.table.as_deref())
    }
}

fn up(table: &JobTable) -> String {
    let name = table.quoted();
    let columns = columns(table).map(|(column, sql_type)| {
        format!("    ADD COLUMN IF NOT EXISTS {} {sql_type}", quoted(column))
    });
    let indexes = indexes(table).into_iter().map(|(index, definition)| {
        let index = quoted(&index);
        format!("CREATE INDEX IF NOT EXISTS {index} ON {name} {definition};\n")
    });
    format!(
        "ALTER TABLE {name}\n{};\n{}{}",
        joined(columns, ",\n"),
        indexes.collect::<String>(),
        create_triggers(table)
    )
}

/// Leaves the function that notifies, because other tables may use it.
fn down(table: &JobTable) -> String {
    let name = table.quoted();
    let indexes = indexes(table).into_iter();
    let indexes =
        indexes.map(|(index, _)| format!("DROP INDEX IF EXISTS {};\n", table.qualified(&index)));
    let columns =
        columns(table).map(|(column, _)| format!("    DROP COLUMN IF EXISTS {}", quoted(column)));
    format!(
        "DROP TRIGGER IF EXISTS advisory_claim_inserted ON {name};\n\
         DROP TRIGGER IF EXISTS advisory_claim_released ON {name};\n\
         DROP TRIGGER IF EXISTS advisory_claim_deleted ON {name};\n{}ALTER TABLE {name}\n{};\n",
        indexes.collect::<String>(),
        joined(columns, ",\n")
    )
}

/// The columns that the claim uses and that can be added, with their types.
fn columns(table: &JobTable) -> impl Iterator<Item = (&str, &'static str)> {
    let all = TYPES.into_iter();
    all.filter_map(|(argument, sql_type)| Some((table.column(argument)?, sql_type)))
}

/// The names and definitions of the indexes. A test compares them with `claim::indexes`.
pub(crate) fn indexes(table: &JobTable) -> Vec<(String, String)> {
    let pending = table.pending();
    let claim = &table.claim;
    let order = claim.claim_order().into_iter();
    let order = order
        .map(|(column, direction)| format!("{} {direction}", quoted(column)).trim().to_owned());
    let order = joined(order, ", ");
    let mut definitions = Vec::new();
    // Otherwise the primary key is enough.
    if !claim.order.is_empty() || table.column("run_at").is_some() || !pending.is_empty() {
        definitions.push(format!("({order}){}", only(&pending)));
    }
    if let Some(per) = table.column("per") {
        let value = hash_of(&quoted(per));
        definitions.push(format!("({value}, {order}){}", only(&pending)));
        let by = table.column("locked_by").unwrap_or("locked_by");
        let mut claimed = pending;
        claimed.push(format!("{} IS NOT NULL", quoted(by)));
        definitions.push(format!("({value}){}", only(&claimed)));
    }
    let named = |definition: String| (index_name(&table.name, &definition), definition);
    definitions.into_iter().map(named).collect()
}

/// The SQL of the hash by which an index finds the rows with one value.
pub(crate) fn hash_of(column: &str) -> String {
    format!("pg_catalog.hash_record_extended(ROW({column}),0)")
}

/// The condition of a partial index.
fn only(conditions: &[String]) -> String {
    if conditions.is_empty() {
        return String::new();
    }
    format!(" WHERE {}", conditions.join(" AND "))
}

/// `IF NOT EXISTS` compares names only, so the name must follow from the definition.
fn index_name(table: &str, definition: &str) -> String {
    let hash = advisory_pattern::sha256(&format!("{} {definition}", quoted(table)));
    let [first, second, third, fourth, ..] = hash;
    let number = u32::from_be_bytes([first, second, third, fourth]);
    let suffix = format!("_claim_{number:08x}");
    let mut end = table.len().min(LONGEST_NAME - suffix.len());
    while !table.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{suffix}", &table[..end])
}

/// The triggers that wake up workers: for new rows, and for rows that can be claimed again. With a
/// limit for each value, the end of any claim makes room for another one.
fn create_triggers(table: &JobTable) -> String {
    let name = table.quoted();
    let literal = literal(&name);
    let by = quoted(table.column("locked_by").unwrap_or("locked_by"));
    let (mut open, mut deleted) = (String::new(), String::new());
    if table.column("per").is_some() {
        deleted = format!(
            "CREATE OR REPLACE TRIGGER advisory_claim_deleted AFTER DELETE ON {name}\n    \
             FOR EACH ROW WHEN (OLD.{by} IS NOT NULL) EXECUTE FUNCTION advisory_claim_notify();\n"
        );
    } else {
        let pending = table.pending().into_iter();
        open.extend(pending.map(|it| format!("\n        AND NEW.{it}")));
    }
    // A trigger for rows runs for the partition, so the function looks for the root of the table.
    format!(
        "CREATE OR REPLACE FUNCTION advisory_claim_notify() RETURNS trigger\n\
         LANGUAGE plpgsql SET search_path TO pg_catalog, pg_temp AS $$\n\
         BEGIN\n    \
             PERFORM pg_notify('{CHANNEL}', COALESCE(pg_partition_root(TG_RELID)::oid, TG_RELID)::text);\n    \
             RETURN NULL;\n\
         END $$;\n\
         DO $$ BEGIN -- A partition runs the triggers of its parent for rows only.\n    \
         EXECUTE format('CREATE OR REPLACE TRIGGER advisory_claim_inserted AFTER INSERT ON %s\n        \
         FOR EACH %s EXECUTE FUNCTION advisory_claim_notify()', {literal}::regclass,\n        \
         CASE WHEN (SELECT relkind FROM pg_class WHERE oid = {literal}::regclass) = 'p' THEN 'ROW' ELSE 'STATEMENT' END);\n\
         END $$;\n\
         CREATE OR REPLACE TRIGGER advisory_claim_released AFTER UPDATE OF {by} ON {name}\n    \
         FOR EACH ROW WHEN (OLD.{by} IS NOT NULL AND NEW.{by} IS NULL{open})\n    \
         EXECUTE FUNCTION advisory_claim_notify();\n{deleted}"
    )
}
