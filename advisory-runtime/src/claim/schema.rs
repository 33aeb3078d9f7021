//! The migration that makes a table a queue, and the indexes that make a claim as fast in a large
//! table as in a small one.

use super::key::KeyColumns;
use super::optional_column::{MaybePer, MaybeRunAt, MaybeTime, TimeColumn};
use super::sql::{literal, table, table_name};
use super::table::Claim;
use crate::sql::quoted;
use advisory_pattern::ClaimRecord;
use diesel::Column;

/// The length to which PostgreSQL cuts names, in bytes.
const LONGEST_NAME: usize = 63;

/// Returns the SQL of the partial index that [`next`](super::next) needs: pending rows in the order
/// of the claims. Print it into a migration.
///
/// With `#[claim(per = …)]` there are two more indexes: the order of each value, and the claimed
/// rows of each value, which each claim and each end change. Without an order, terminal columns and
/// `per`, there are none, because the primary key is enough. No index contains `locked_until`, so
/// without `per` a claim changes no index, and a renewal never does.
///
/// For a large table in use, write `CREATE INDEX CONCURRENTLY` in a migration that runs outside of
/// a transaction. If that fails, drop the invalid index that it leaves.
///
/// The name ends in a hash of the definition: the table, the order and the terminal columns. Types
/// with one definition share an index. If the definition changes, the statement creates another
/// index, and every insert still updates the earlier one. Drop the earlier one when no running
/// program claims by its order.
///
/// For `#[claim(order = "priority desc")]` and a table with `completed_at`:
///
/// ```sql
/// CREATE INDEX IF NOT EXISTS "sync_jobs_claim_1a0252c5"
///     ON "sync_jobs" ("priority" DESC) WHERE "completed_at" IS NULL;
/// ```
#[must_use]
pub fn indexes<T: Claim>() -> Vec<String> {
    let name_of = |time: TimeColumn| time.name;
    let columns = [
        ("locked_by", Some(T::LockedBy::NAME)),
        ("completed_at", T::CompletedAt::COLUMN.map(name_of)),
        ("failed_at", T::FailedAt::COLUMN.map(name_of)),
        ("run_at", T::RunAt::COLUMN.map(name_of)),
        ("per", T::Per::COLUMN),
    ];
    let columns = columns.into_iter();
    let columns = columns.filter_map(|(argument, name)| Some((argument.into(), name?.into())));
    let order = T::ORDER.iter().map(|order| {
        let [column, direction] = order.parts;
        (column.to_owned(), direction.trim().to_owned())
    });
    let claim = ClaimRecord {
        columns: columns.collect(),
        key: T::Key::NAMES.iter().map(|&name| name.into()).collect(),
        order: order.collect(),
        ..ClaimRecord::default()
    };
    let indexes = Schema::of_claim(None, &table_name::<T>(), claim).indexes();
    let create = |(name, definition): (String, String)| create(&table::<T>(), &name, &definition);
    indexes.into_iter().map(create).collect()
}

/// Returns the statement that creates an index. `table` is quoted.
fn create(table: &str, name: &str, definition: &str) -> String {
    let name = quoted(name);
    format!("CREATE INDEX IF NOT EXISTS {name} ON {table} {definition};")
}

/// Returns the name of an index. It depends on the definition, because `IF NOT EXISTS` compares
/// only names.
fn name(table: &str, definition: &str) -> String {
    let hash = advisory_pattern::sha256(&format!("{} {definition}", quoted(table)));
    let suffix = format!(
        "_claim_{:08x}",
        u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
    );
    let mut end = table.len().min(LONGEST_NAME - suffix.len());
    while !table.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{suffix}", &table[..end])
}

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
/// assert!(up.starts_with("ALTER TABLE \"shop\".\"mail\"\n    ADD COLUMN IF NOT EXISTS"));
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
        let per = ("per".to_owned(), column.to_owned());
        self.claim.columns.push(per);
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
        let columns = self.change_columns(|column, sql_type| {
            format!("    ADD COLUMN IF NOT EXISTS {column} {sql_type}")
        });
        let indexes = self.indexes().into_iter();
        let indexes: String = indexes
            .map(|(name, definition)| create(&table, &name, &definition) + "\n")
            .collect();
        format!(
            "ALTER TABLE {table}\n{columns};\n{indexes}{}",
            self.create_triggers(&table)
        )
    }

    /// Returns the SQL that drops the columns, with their contents, the indexes and the triggers.
    /// The function that notifies stays, because other tables may use it.
    #[must_use]
    pub fn down(&self) -> String {
        let table = self.qualified(&self.table);
        let indexes = self.indexes().into_iter();
        let drop = |name: String| format!("DROP INDEX IF EXISTS {};\n", self.qualified(&name));
        let indexes: String = indexes.map(|(name, _)| drop(name)).collect();
        let columns =
            self.change_columns(|column, _| format!("    DROP COLUMN IF EXISTS {column}"));
        format!(
            "DROP TRIGGER IF EXISTS advisory_claim_inserted ON {table};\n\
             DROP TRIGGER IF EXISTS advisory_claim_released ON {table};\n\
             DROP TRIGGER IF EXISTS advisory_claim_deleted ON {table};\n\
             {indexes}ALTER TABLE {table}\n{columns};\n"
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
            let value = format!("pg_catalog.hash_record_extended(ROW({}),0)", quoted(per));
            // The rows of each value in order, and its claimed rows.
            definitions.push(format!("({value}, {order}){}", only(&pending)));
            let is_claimed = format!("{} IS NOT NULL", quoted(self.locked_by()));
            definitions.push(format!(
                "({value}){}",
                only(&[pending, vec![is_claimed]].concat())
            ));
        }
        let named = |definition: String| (name(&self.table, &definition), definition);
        definitions.into_iter().map(named).collect()
    }

    /// Writes a change of each column of the claim that can be added, from its name and type.
    fn change_columns(&self, change: impl Fn(&str, &str) -> String) -> String {
        let all = COLUMNS.into_iter();
        let changes = all.filter_map(|(argument, sql_type)| {
            Some(change(&quoted(self.claim.column(argument)?), sql_type))
        });
        changes.collect::<Vec<_>>().join(",\n")
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
             CASE WHEN (SELECT relkind FROM pg_catalog.pg_class WHERE oid = {name}::regclass) = 'p' THEN 'ROW' ELSE 'STATEMENT' END);\n\
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

/// Returns the condition of a partial index.
fn only(conditions: &[String]) -> String {
    if conditions.is_empty() {
        return String::new();
    }
    format!(" WHERE {}", conditions.join(" AND "))
}
