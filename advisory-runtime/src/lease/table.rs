//! Which table leases are in, and how this process calls itself there.

use super::sql::Texts;
use crate::Error;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

/// The longest name of a holder, in bytes.
const LONGEST_HOLDER: usize = 255;
/// The longest name of a table or a schema: what the migration names after it has to fit into PostgreSQL's 63 bytes too.
const LONGEST_NAME: usize = 48;

/// Where leases are: a table, and how this process calls itself in it.
///
/// Each method is one round trip on a connection of the caller's. [`Leases`](super::Leases) does the same with a pool, renews in
/// the background and releases what is dropped.
///
/// ```
/// use advisory_runtime::lease::Table;
///
/// let table = Table::new().named("locks.app_lease")?.held_by("worker-7")?;
/// assert!(Table::new().named("Robert'); DROP TABLE").is_err());
/// # Ok::<_, advisory_runtime::Error>(())
/// ```
#[derive(Clone)]
pub struct Table(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) schema: String,
    pub(super) name: String,
    pub(super) texts: Texts,
    pub(super) holder: String,
    pub(super) has_text: bool,
    pub(super) channel: AtomicU8,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table")
            .field("name", &self.name())
            .field("holder", &self.0.holder)
            .finish_non_exhaustive()
    }
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

impl Table {
    /// The table of the migration, `public.advisory_lease`.
    #[must_use]
    pub fn new() -> Self {
        Self::with("public", "advisory_lease", own_name(), false)
    }

    fn with(schema: &str, name: &str, holder: String, has_text: bool) -> Self {
        Self(Arc::new(Inner {
            schema: schema.to_owned(),
            name: name.to_owned(),
            texts: Texts::new(&format!("\"{schema}\".\"{name}\"")),
            holder,
            has_text,
            channel: AtomicU8::new(0),
        }))
    }

    /// Another table: `schema.table`, or `table` for one in `public`. One table is one key space: all who exclude each other name
    /// the same one.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTable`] unless each is lower-case ASCII letters, digits and `_`, no digit first, at most 48 bytes.
    pub fn named(self, name: &str) -> Result<Self, Error> {
        let (schema, table) = name.split_once('.').unwrap_or(("public", name));
        for part in [schema, table] {
            let starts = part.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
            let fits = |letter: u8| {
                letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'_'
            };
            let reason = if part.len() > LONGEST_NAME {
                "a schema and a table have at most 48 bytes each"
            } else if !starts || !part.bytes().all(fits) {
                "write `table` or `schema.table`, each of lower-case letters, digits and `_`, no digit first"
            } else {
                continue;
            };
            let table = name.to_owned();
            return Err(Error::InvalidTable { table, reason });
        }
        Ok(Self::with(
            schema,
            table,
            self.0.holder.clone(),
            self.0.has_text,
        ))
    }

    /// How this process calls itself in the table, for whoever looks; `program:pid@host` unless it is said. Ownership does not
    /// depend on it: each grant has a number of its own.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTable`] for more than 255 bytes, or a NUL.
    pub fn held_by(self, holder: impl Into<String>) -> Result<Self, Error> {
        let holder = holder.into();
        if holder.len() > LONGEST_HOLDER || holder.contains('\0') {
            return Err(Error::InvalidTable {
                table: self.0.name.clone(),
                reason: "a holder's name has at most 255 bytes, and no NUL",
            });
        }
        let inner = &self.0;
        Ok(Self::with(
            &inner.schema,
            &inner.name,
            holder,
            inner.has_text,
        ))
    }

    /// Keeps the keys' text beside their hashes, for whoever looks, while they are held. A release erases it; where a holder died,
    /// the next grant or [`erase`](Self::erase) does. Without this the table has hashes alone.
    #[must_use]
    pub fn with_text(self) -> Self {
        let inner = &self.0;
        Self::with(&inner.schema, &inner.name, inner.holder.clone(), true)
    }

    /// `schema.table`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}.{}", self.0.schema, self.0.name)
    }
}

pub(super) use advisory_pattern::sha256;

/// `program:pid@host`, as far as it is known.
fn own_name() -> String {
    let program = std::env::current_exe().ok();
    let program = program
        .as_deref()
        .and_then(|path| path.file_stem()?.to_str())
        .unwrap_or("unknown");
    let host = std::env::var("HOSTNAME")
        .ok()
        .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok())
        .unwrap_or_default();
    let mut name = format!("{program}:{}@{}", std::process::id(), host.trim());
    name.retain(|letter| letter != '\0');
    while name.len() > LONGEST_HOLDER {
        name.pop();
    }
    name
}
