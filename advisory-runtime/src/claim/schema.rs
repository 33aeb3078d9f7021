//! The migration that makes a table a queue.

use super::index::{create, name};
use super::sql::limit::indexes_of;
use super::sql::{literal, only, quoted};
use advisory_pattern::ClaimRecord;

/// The columns that can be added, by the arguments of `#[claim(…)]`, with their types.
const COLUMNS: [(&str, &str); 7] = [
    ("run_at", "timestamptz NOT NULL DEFAULT now()"),
    ("attempts", "integer NOT NULL DEFAULT 0"),
    ("locked_until", "timestamptz"),
    ("locked_by", "text"),
    ("completed_at", "timestamptz"),
    ("failed_at", "timestamptz"),
    ("error_message", "text"),
];

/// The SQL that makes a table a queue: columns, indexes, and the triggers that wake up a
/// [`Worker`](super::Worker).
///
/// `cargo advisory migration claim --table mail` prints it. It fits `#[claim(run_at, attempts)]` on
/// a table with the key `id`. Edit the output for columns with other names or types. Columns and
/// indexes that exist stay as they are.
///
/// ```
/// use advisory_runtime::claim::Schema;
///
/// let up = Schema::of("shop.mail").per("tenant_id").up();
/// assert!(up.starts_with("ALTER TABLE \"shop\".\"mail\"\n    ADD COLUMN IF NOT EXISTS \"run_at\""));
/// ```
#[derive(Clone, Debug)]
pub struct Schema {
    /// The table's schema.
    namespace: Option<String>,
    table: String,
    claim: ClaimRecord,
}

impl Schema {
    /// Creates the schema of a table: `mail`, or `shop.mail`. Like Diesel, it quotes names, so
    /// capital letters count.
    #[must_use]
    pub fn of(table: &str) -> Self {
        let (namespace, table) = match table.split_once('.') {
            Some((namespace, table)) => (Some(namespace), table),
            None => (None, table),
        };
        let columns = COLUMNS.map(|(column, _)| (column.to_owned(), column.to_owned()));
        let claim = ClaimRecord {
            key: vec!["id".to_owned()],
            columns: columns.into(),
            ..ClaimRecord::default()
        };
        Self::of_claim(namespace, table, claim)
    }

    /// Creates the schema for a claim of an inventory, with the columns of that claim.
    #[doc(hidden)]
    #[must_use]
    pub fn of_claim(namespace: Option<&str>, table: &str, claim: ClaimRecord) -> Self {
        Self {
            namespace: namespace.map(str::to_owned),
            table: table.to_owned(),
            claim,
        }
    }

    /// Adds the indexes for `#[claim(per = "…", limit = …)]`. The table must have the column.
    #[must_use]
    pub fn per(mut self, column: &str) -> Self {
        self.claim
            .columns
            .push(("per".to_owned(), column.to_owned()));
        self
    }

    /// Sets the order of `#[claim(order = "…")]`: the columns, each with `true` if it is
    /// descending. The default is `run_at` and `id`, the order of `#[claim(run_at)]` on a table
    /// with the key `id`.
    #[must_use]
    pub fn order<'c>(mut self, columns: impl IntoIterator<Item = (&'c str, bool)>) -> Self {
        let order = columns.into_iter().map(|(column, is_descending)| {
            let direction = if is_descending { "DESC" } else { "" };
            (column.to_owned(), direction.to_owned())
        });
        self.claim.order = order.collect();
        self
    }

    /// Returns the SQL that adds the columns, indexes and triggers. For a large table in use, write
    /// `CREATE INDEX CONCURRENTLY` in a migration that runs outside of a transaction.
    #[must_use]
    pub fn up(&self) -> String {
        let table = self.qualified(&self.table);
        let columns = self.columns().map(|(column, sql_type)| {
            format!("    ADD COLUMN IF NOT EXISTS {} {sql_type}", quoted(column))
        });
        let indexes = self.indexes().into_iter();
        let indexes: String = indexes
            .map(|(name, definition)| create(&table, &name, &definition) + "\n")
            .collect();
        format!(
            "ALTER TABLE {table}\n{};\n{indexes}{}",
            columns.collect::<Vec<_>>().join(",\n"),
            self.create_triggers(&table)
        )
    }

    /// Returns the SQL that drops the columns, with their contents, the indexes and the triggers.
    /// The function that notifies stays, because other tables may use it.
    #[must_use]
    pub fn down(&self) -> String {
        let table = self.qualified(&self.table);
        let indexes = self.indexes().into_iter();
        let indexes: Vec<_> = indexes
            .map(|(name, _)| format!("DROP INDEX IF EXISTS {};\n", self.qualified(&name)))
            .collect();
        let columns = self
            .columns()
            .map(|(column, _)| format!("    DROP COLUMN IF EXISTS {}", quoted(column)));
        format!(
            "DROP TRIGGER IF EXISTS advisory_claim_inserted ON {table};\n\
             DROP TRIGGER IF EXISTS advisory_claim_released ON {table};\n\
             DROP TRIGGER IF EXISTS advisory_claim_deleted ON {table};\n\
             {}ALTER TABLE {table}\n{};\n",
            indexes.concat(),
            columns.collect::<Vec<_>>().join(",\n")
        )
    }

    /// Returns the names and definitions of the indexes.
    #[doc(hidden)]
    #[must_use]
    pub fn indexes(&self) -> Vec<(String, String)> {
        let claim = &self.claim;
        let order = claim.claim_order().into_iter();
        let order = order.map(|(column, direction)| match direction {
            "" => quoted(column),
            direction => format!("{} {direction}", quoted(column)),
        });
        let order = order.collect::<Vec<_>>().join(", ");
        let pending = self.pending();
        let mut definitions = Vec::new();
        // Otherwise the primary key is enough.
        if !claim.order.is_empty() || claim.column("run_at").is_some() || !pending.is_empty() {
            definitions.push(format!("({order}){}", only(&pending)));
        }
        if let Some(per) = claim.column("per") {
            definitions.extend(indexes_of(per, &order, pending, self.locked_by()));
        }
        let named = |definition: String| (name(&self.table, &definition), definition);
        definitions.into_iter().map(named).collect()
    }

    /// Returns the columns of the claim that can be added, with their types.
    fn columns(&self) -> impl Iterator<Item = (&str, &'static str)> {
        let all = COLUMNS.into_iter();
        all.filter_map(|(argument, sql_type)| Some((self.claim.column(argument)?, sql_type)))
    }

    /// Returns the conditions of a row that has not ended.
    fn pending(&self) -> Vec<String> {
        let ends = ["completed_at", "failed_at"].into_iter();
        let columns = ends.filter_map(|argument| self.claim.column(argument));
        columns
            .map(|column| format!("{} IS NULL", quoted(column)))
            .collect()
    }

    fn locked_by(&self) -> &str {
        self.claim.column("locked_by").unwrap_or("locked_by")
    }

    /// Returns the triggers that wake workers up, for new rows and for rows that can be claimed
    /// again. With a limit for each value, they also run at the end of any claim, which makes room
    /// for another.
    fn create_triggers(&self, table: &str) -> String {
        let (name, by) = (literal(table), quoted(self.locked_by()));
        let (mut open, mut deleted) = (String::new(), String::new());
        if self.claim.column("per").is_some() {
            deleted = format!(
                "CREATE OR REPLACE TRIGGER advisory_claim_deleted AFTER DELETE ON {table}\n    \
                 FOR EACH ROW WHEN (OLD.{by} IS NOT NULL) EXECUTE FUNCTION advisory_claim_notify();\n"
            );
        } else {
            let pending = self.pending().into_iter();
            open.extend(pending.map(|is_open| format!("\n        AND NEW.{is_open}")));
        }
        // A trigger for each row runs on the partition, so the function looks for the root.
        format!(
            "CREATE OR REPLACE FUNCTION advisory_claim_notify() RETURNS trigger\n\
             LANGUAGE plpgsql SET search_path TO pg_catalog, pg_temp AS $$\n\
             BEGIN\n    \
             PERFORM pg_notify('advisory_claim', COALESCE(pg_partition_root(TG_RELID)::oid, TG_RELID)::text);\n    \
             RETURN NULL;\n\
             END $$;\n\
             DO $$ BEGIN -- A partition runs the triggers of its parent for rows only.\n    \
             EXECUTE format('CREATE OR REPLACE TRIGGER advisory_claim_inserted AFTER INSERT ON %s\n        \
             FOR EACH %s EXECUTE FUNCTION advisory_claim_notify()', {name}::regclass,\n        \
             CASE WHEN (SELECT relkind FROM pg_class WHERE oid = {name}::regclass) = 'p' THEN 'ROW' ELSE 'STATEMENT' END);\n\
             END $$;\n\
             CREATE OR REPLACE TRIGGER advisory_claim_released AFTER UPDATE OF {by} ON {table}\n    \
             FOR EACH ROW WHEN (OLD.{by} IS NOT NULL AND NEW.{by} IS NULL{open})\n    \
             EXECUTE FUNCTION advisory_claim_notify();\n{deleted}"
        )
    }

    fn qualified(&self, name: &str) -> String {
        let namespace = self.namespace.as_ref();
        let namespace = namespace.map(|namespace| quoted(namespace) + ".");
        namespace.unwrap_or_default() + &quoted(name)
    }
}
