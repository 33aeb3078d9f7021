//! Which table are leases in, how is it made, and how does this process call itself there?

use super::request::hex;
use super::sql::Texts;
use super::statement::count;
use crate::{Connection, Error, Request, xact};
use diesel_async::SimpleAsyncConnection;
use std::sync::{Arc, LazyLock};

/// Creates `public.advisory_lease`: the migration's `up.sql`, for `batch_execute` in a transaction.
///
/// `cargo advisory migration lease` prints it for a folder of migrations, with `--table` for a table of another name; so does
/// [`Table::up`].
pub const ADVISORY_LEASE_UP: &str =
    include_str!("../../migrations/2026-01-02-000000_advisory_lease/up.sql");

/// Drops it, and forgets the last fencing token: the migration's `down.sql`.
pub const ADVISORY_LEASE_DOWN: &str =
    include_str!("../../migrations/2026-01-02-000000_advisory_lease/down.sql");

/// The lock under which two programs that start at once create the table.
const SET_UP: &str = "advisory:lease:set_up";
/// The longest name of a holder, in bytes.
const LONGEST_HOLDER: usize = 255;
/// The longest name of a table or a schema: the sequence that is named after it has to fit into PostgreSQL's 63 bytes too.
const LONGEST_NAME: usize = 48;

/// Made once for the process: neither is cheap.
static DEFAULT: LazyLock<Arc<Named>> = LazyLock::new(|| Named::new("public", "advisory_lease"));
static THIS_PROCESS: LazyLock<Arc<str>> = LazyLock::new(this_process);

/// Where leases are: a table, and the name of this process in it.
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
pub struct Table {
    pub(super) named: Arc<Named>,
    pub(super) holder: Arc<str>,
    pub(super) has_text: bool,
}

/// A table's name, and the statements on it.
pub(super) struct Named {
    schema: String,
    name: String,
    pub(super) texts: Texts,
}

impl Named {
    fn new(schema: &str, name: &str) -> Arc<Self> {
        let texts = Texts::new(
            &format!("\"{schema}\".\"{name}\""),
            &format!("\"{schema}\".\"{name}_token\""),
        );
        Arc::new(Self {
            schema: schema.to_owned(),
            name: name.to_owned(),
            texts,
        })
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table")
            .field("name", &self.name())
            .field("holder", &self.holder)
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
        Self {
            named: Arc::clone(&DEFAULT),
            holder: Arc::clone(&THIS_PROCESS),
            has_text: false,
        }
    }

    /// Another table: `schema.table`, or `table` for one in `public`. One table is one key space: all who exclude each other name
    /// the same one. Keep the value: its statements are written once.
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
        let named = Named::new(schema, table);
        Ok(Self { named, ..self })
    }

    /// The name of this process in the table, for whoever reads it; `program:pid@host` unless you set it. Ownership does not
    /// depend on it: each grant has a number of its own.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidHolder`] for more than 255 bytes, or a NUL.
    pub fn held_by(self, holder: impl Into<String>) -> Result<Self, Error> {
        let holder = holder.into();
        if holder.len() > LONGEST_HOLDER {
            let reason = "it has more than 255 bytes";
            return Err(Error::InvalidHolder { holder, reason });
        }
        if holder.contains('\0') {
            let reason = "it has a NUL character, which PostgreSQL's texts can't hold";
            return Err(Error::InvalidHolder { holder, reason });
        }
        let holder = holder.into();
        Ok(Self { holder, ..self })
    }

    /// Stores the keys' text beside their hashes while they are held, for whoever reads the table. Otherwise it has their patterns
    /// alone. A release erases the text; if a holder died, the next grant or [`sweep`](Self::sweep) does.
    #[must_use]
    pub fn with_text(self) -> Self {
        Self {
            has_text: true,
            ..self
        }
    }

    /// `schema.table`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}.{}", self.named.schema, self.named.name)
    }

    /// The SQL that creates this table: [`ADVISORY_LEASE_UP`] with its name.
    #[must_use]
    pub fn up(&self) -> String {
        self.renamed(ADVISORY_LEASE_UP)
    }

    /// The SQL that drops it: [`ADVISORY_LEASE_DOWN`] with its name.
    #[must_use]
    pub fn down(&self) -> String {
        self.renamed(ADVISORY_LEASE_DOWN)
    }

    fn renamed(&self, sql: &str) -> String {
        let Named { schema, name, .. } = &*self.named;
        let sequence = format!("\"{schema}\".\"{name}_token\"");
        sql.replace("public.advisory_lease_token", &sequence)
            .replace("public.advisory_lease", &format!("\"{schema}\".\"{name}\""))
    }

    /// Creates the table if it is not there: for development and tests. In production run the migration, with the rights that
    /// programs should not have.
    ///
    /// # Locking
    ///
    /// A transaction-level advisory lock, so that two programs that start at once do not both create it.
    ///
    /// # Errors
    ///
    /// [`Error::Database`], such as for a schema that does not exist or a role that may not; and those of [`xact::begin`] and
    /// [`xact::finish`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the table is there or not.
    pub async fn set_up<C: Connection>(&self, conn: &mut C) -> Result<(), Error> {
        let key = advisory_pattern::Derivation::Sha256.key(SET_UP);
        let mut held = xact::begin(conn, Request::new(key)).await?;
        let created = self.create(held.conn()).await;
        xact::finish(held, created).await
    }

    async fn create<C: Connection>(&self, conn: &mut C) -> Result<(), Error> {
        let conn = conn.pg();
        let missing = count(conn, &self.named.texts.is_missing, []).await;
        if missing.map_err(Error::Database)? > 0 {
            let created = conn.batch_execute(&self.up()).await;
            created.map_err(Error::Database)?;
        }
        Ok(())
    }

    /// The number of the lock that a grant of this key takes while it is made: another one in another table, and no number that a
    /// key pattern gives.
    pub(super) fn grant_lock(&self, key_hash: &[u8; 32]) -> i64 {
        let text = format!("advisory:lease:grant:{}:{}", self.name(), hex(key_hash));
        advisory_pattern::Derivation::Sha256.key(&text)
    }
}

/// `program:pid@host`, as far as it is known.
fn this_process() -> Arc<str> {
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
    name.into()
}
