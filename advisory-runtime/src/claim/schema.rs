//! The migration that makes a table a queue.

use super::index::{create, name};
use super::sql::{quoted, schema};

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
/// assert!(up.starts_with("ALTER TABLE \"shop\".\"mail\"\n    ADD COLUMN IF NOT EXISTS run_at"));
/// ```
#[derive(Clone, Debug)]
pub struct Schema {
    /// The table's schema.
    namespace: Option<String>,
    table: String,
    per: Option<String>,
    order: Vec<(String, &'static str)>,
}

impl Schema {
    /// Creates the schema of a table: `mail`, or `shop.mail`. Like Diesel, it quotes names, so
    /// capital letters count.
    #[must_use]
    pub fn of(table: &str) -> Self {
        let (namespace, table) = match table.split_once('.') {
            Some((namespace, table)) => (Some(namespace.to_owned()), table),
            None => (None, table),
        };
        Self {
            namespace,
            table: table.to_owned(),
            per: None,
            order: vec![("run_at".to_owned(), ""), ("id".to_owned(), "")],
        }
    }

    /// Adds the indexes for `#[claim(per = "…", limit = …)]`. The table must have the column.
    #[must_use]
    pub fn per(mut self, column: &str) -> Self {
        self.per = Some(column.to_owned());
        self
    }

    /// Sets the order of `#[claim(order = "…")]`: the columns, each with `true` if it is
    /// descending. The default is `run_at` and `id`, the order of `#[claim(run_at)]` on a table
    /// with the key `id`.
    #[must_use]
    pub fn order<'c>(mut self, columns: impl IntoIterator<Item = (&'c str, bool)>) -> Self {
        let order = columns.into_iter().map(|(column, is_descending)| {
            let direction = if is_descending { " DESC" } else { "" };
            (column.to_owned(), direction)
        });
        self.order = order.collect();
        self
    }

    /// Returns the SQL that adds the columns, indexes and triggers. For a large table in use, write
    /// `CREATE INDEX CONCURRENTLY` in a migration that runs outside of a transaction.
    #[must_use]
    pub fn up(&self) -> String {
        let table = self.qualified(&self.table);
        let indexes = self.indexes().into_iter();
        let indexes: String = indexes
            .map(|(name, definition)| create(&table, &name, &definition) + "\n")
            .collect();
        let triggers = schema::create_triggers(&table, self.per.is_some());
        format!("{}{indexes}{triggers}", schema::add_columns(&table))
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
        format!(
            "{}{}{}",
            schema::drop_triggers(&table),
            indexes.concat(),
            schema::drop_columns(&table)
        )
    }

    /// Returns the names and definitions of the indexes.
    fn indexes(&self) -> Vec<(String, String)> {
        let indexes = schema::indexes(&self.order, self.per.as_deref());
        let named = |definition: String| (name(&self.table, &definition), definition);
        indexes.into_iter().map(named).collect()
    }

    fn qualified(&self, name: &str) -> String {
        let namespace = self.namespace.as_ref();
        let namespace = namespace.map(|namespace| quoted(namespace) + ".");
        namespace.unwrap_or_default() + &quoted(name)
    }
}
