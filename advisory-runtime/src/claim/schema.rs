//! The migration of a table whose rows are claimed.

use super::index::{create, name};
use super::sql::{quoted, schema};

/// The SQL that makes a queue of a table: columns, indexes, and the triggers that wake up a
/// [`Worker`](super::Worker).
///
/// `cargo advisory migration claim --table mail` prints it. It fits `#[claim(run_at, attempts)]` on
/// a table whose key is `id`; edit what it prints for columns of other names or types. What exists
/// already is left as it is.
///
/// ```
/// use advisory_runtime::claim::Schema;
///
/// let up = Schema::of("shop.mail").per("tenant_id").up();
/// assert!(up.starts_with("ALTER TABLE \"shop\".\"mail\"\n    ADD COLUMN IF NOT EXISTS run_at"));
/// ```
#[derive(Clone, Debug)]
pub struct Schema {
    /// The schema's name.
    namespace: Option<String>,
    table: String,
    per: Option<String>,
    order: Vec<(String, &'static str)>,
}

impl Schema {
    /// Of this table: `mail`, or `shop.mail`. Names are written as they are, capital letters
    /// included, as Diesel does.
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

    /// For `#[claim(per = "…", limit = …)]`: indexes by this column, which the table must have.
    #[must_use]
    pub fn per(mut self, column: &str) -> Self {
        self.per = Some(column.to_owned());
        self
    }

    /// For `#[claim(order = "…")]`: the columns, each with `true` if it is descending. By default
    /// `run_at` and `id`, the order of `#[claim(run_at)]` on a table whose key is `id`.
    #[must_use]
    pub fn order<'c>(mut self, columns: impl IntoIterator<Item = (&'c str, bool)>) -> Self {
        let order = columns.into_iter().map(|(column, is_descending)| {
            let direction = if is_descending { " DESC" } else { "" };
            (column.to_owned(), direction)
        });
        self.order = order.collect();
        self
    }

    /// Adds columns, indexes and triggers. For a large table in use, write
    /// `CREATE INDEX CONCURRENTLY` in a migration that runs outside of a transaction.
    #[must_use]
    pub fn up(&self) -> String {
        let table = self.quoted();
        let indexes = self.indexes().into_iter();
        let indexes: String = indexes
            .map(|(name, definition)| create(&table, &name, &definition) + "\n")
            .collect();
        let triggers = schema::create_triggers(&table, self.per.is_some());
        format!("{}{indexes}{triggers}", schema::add_columns(&table))
    }

    /// Drops them, and with the columns what they contain. The function that notifies stays,
    /// because other tables may use it.
    #[must_use]
    pub fn down(&self) -> String {
        let table = self.quoted();
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

    /// The names and definitions of the indexes.
    fn indexes(&self) -> Vec<(String, String)> {
        let indexes = schema::indexes(&self.order, self.per.as_deref());
        let named = |definition: String| (name(&self.table, &definition), definition);
        indexes.into_iter().map(named).collect()
    }

    fn quoted(&self) -> String {
        self.qualified(&self.table)
    }

    fn qualified(&self, name: &str) -> String {
        let namespace = self.namespace.as_ref();
        let namespace = namespace.map(|namespace| quoted(namespace) + ".");
        namespace.unwrap_or_default() + &quoted(name)
    }
}
