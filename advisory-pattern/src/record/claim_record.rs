//! The record of a claim: a type of row that workers claim, written into a program next to the lock
//! sites.
//!
//! It has its own first words, so that a reader of lock sites alone skips it: a claim has no key,
//! and collides with nothing.

use super::format::{CLAIM_MAGIC, Field, RecordError, decode, encode, records_of};

/// The version of the format that this crate writes; a reader refuses a newer one.
const VERSION: u32 = 1;

/// A claim as a program contains it.
///
/// # Examples
///
/// ```
/// use advisory_pattern::ClaimRecord;
///
/// let record = ClaimRecord {
///     table: "schema::mail".into(),
///     columns: vec![("locked_by".into(), "worker".into())],
///     ..ClaimRecord::default()
/// };
/// assert_eq!((record.table_name(), record.column("locked_by")), ("mail", Some("worker")));
/// // As a program contains it, among other bytes.
/// let program = format!("…{}…", record.encode());
/// assert_eq!(ClaimRecord::find_all(program.as_bytes())?, [record]);
/// # Ok::<(), advisory_pattern::RecordError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimRecord {
    /// The table's path in Rust: `schema::mail`.
    pub table: String,
    /// The columns of a claim: each with the argument of `#[claim(…)]` that it is for, such as
    /// `locked_by`, and its name in SQL.
    pub columns: Vec<(String, String)>,
    /// The arguments with the value `"delete"`: `completed_at` if completing a job deletes its row.
    pub deletes: Vec<String>,
    /// The columns of the key, in SQL.
    pub key: Vec<String>,
    /// The columns of `order`, in SQL, each with its direction, such as `DESC`. Empty if the derive
    /// sets none.
    pub order: Vec<(String, String)>,
    /// The duration of a claim, if the derive sets it.
    pub ttl: Option<String>,
    /// The interval of its renewals, if the derive sets it.
    pub renew: Option<String>,
    /// The number of rows of one value of `per` that can be claimed at a time, if the derive sets
    /// it.
    pub limit: Option<String>,
    /// The number of the last attempt, if the derive sets it.
    pub max_attempts: Option<String>,
    /// The first line with text of the doc comment, at most 500 characters of it.
    pub purpose: Option<String>,
    /// The module's path.
    pub module: String,
    /// The type of the row.
    pub row: String,
    /// The source file, relative to the crate's manifest, or `$OUT_DIR/…` for what a build script
    /// wrote.
    pub file: String,
    /// Its line.
    pub line: u32,
    /// The crate.
    pub krate: String,
    /// The crate's version.
    pub version: String,
}

/// The start of a record, in two texts, which must not be together in a program except in a record.
/// It is only for the compiler: what refers to it when it runs can have the two side by side.
#[doc(hidden)]
pub const CLAIM_START: [&str; 2] = ["\u{1e}", "advisory claim\u{1f}"];

/// The start of each column's field. Only the compiler knows the column's name, and inserts it
/// after this text.
#[doc(hidden)]
pub const CLAIM_COLUMNS: [&str; 8] = [
    "\u{1f}column=locked_until\u{1c}",
    "\u{1f}column=locked_by\u{1c}",
    "\u{1f}column=completed_at\u{1c}",
    "\u{1f}column=failed_at\u{1c}",
    "\u{1f}column=error_message\u{1c}",
    "\u{1f}column=run_at\u{1c}",
    "\u{1f}column=attempts\u{1c}",
    "\u{1f}column=per\u{1c}",
];

/// The starts of the other fields that the compiler fills in: an end that deletes the row, a column
/// of the key, a column of the order, and the sign before that column's direction.
#[doc(hidden)]
pub const CLAIM_PARTS: [&str; 4] = ["\u{1f}deletes=", "\u{1f}key=", "\u{1f}order=", "\u{1c}"];

impl ClaimRecord {
    /// Returns the name of the column that an argument of `#[claim(…)]` is for.
    #[must_use]
    pub fn column(&self, argument: &str) -> Option<&str> {
        let mut columns = self.columns.iter();
        let found = columns.find(|(known, _)| known == argument)?;
        Some(&found.1)
    }

    /// Returns the columns by which rows are claimed, each with its direction: those of `order`, or
    /// the time of `run_at`, and the key.
    #[must_use]
    pub fn claim_order(&self) -> Vec<(&str, &str)> {
        if self.order.is_empty() {
            let run_at = self.column("run_at").into_iter();
            let columns = run_at.chain(self.key.iter().map(String::as_str));
            return columns.map(|column| (column, "")).collect();
        }
        let order = self.order.iter();
        order
            .map(|(column, direction)| (&**column, &**direction))
            .collect()
    }

    /// Returns the table's name without its schema: the last part of its path, which is its name in
    /// SQL unless the table's `#[sql_name = "…"]` says another.
    #[must_use]
    pub fn table_name(&self) -> &str {
        let name = self.table.rsplit("::").next().unwrap_or(&self.table);
        name.trim_start_matches("r#")
    }

    /// Writes the record. Control characters in values become spaces, except for
    /// [`MODULE_PATH`](super::MODULE_PATH), which the columns follow.
    #[must_use]
    pub fn encode(&self) -> String {
        encode(CLAIM_MAGIC, VERSION, self.clone().fields())
    }

    /// The columns follow the module, because the compiler inserts both there.
    fn fields(&mut self) -> [(&'static str, Field<'_>); 16] {
        [
            ("table", Field::Text(&mut self.table)),
            ("row", Field::Text(&mut self.row)),
            ("file", Field::Text(&mut self.file)),
            ("line", Field::Number(&mut self.line)),
            ("crate", Field::Text(&mut self.krate)),
            ("version", Field::Text(&mut self.version)),
            ("ttl", Field::Optional(&mut self.ttl)),
            ("renew", Field::Optional(&mut self.renew)),
            ("limit", Field::Optional(&mut self.limit)),
            ("max_attempts", Field::Optional(&mut self.max_attempts)),
            ("purpose", Field::Optional(&mut self.purpose)),
            ("module", Field::Module(&mut self.module)),
            ("column", Field::Pairs(&mut self.columns)),
            ("deletes", Field::Each(&mut self.deletes)),
            ("key", Field::Each(&mut self.key)),
            ("order", Field::Pairs(&mut self.order)),
        ]
    }

    fn decode(text: &str) -> Result<Self, RecordError> {
        let mut record: Self = decode(text, VERSION, Self::fields)?;
        for (_, direction) in &mut record.order {
            *direction = direction.trim().to_owned();
        }
        Ok(record)
    }

    /// Finds every claim's record in a program's bytes, sorted and without duplicates. The bytes
    /// can be anything.
    ///
    /// # Errors
    /// The first record that cannot be read.
    pub fn find_all(bytes: &[u8]) -> Result<Vec<Self>, RecordError> {
        records_of(CLAIM_MAGIC, bytes, Self::decode)
    }
}
