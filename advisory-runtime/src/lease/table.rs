//! The lease table: its name, its migration, and the name of this process in it.

use super::sql::{Form, Texts};
use super::statement::count;
use super::{BusyKey, Error};
use crate::driver::Queries;
use crate::{Connection, Request, lock};
use advisory_pattern::Derivation;
use diesel::QueryResult;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

/// Creates `public.advisory_lease`: the migration's `up.sql`, for `batch_execute` in a transaction.
///
/// `cargo advisory migration lease` prints it, with `--table` for another name, as does
/// [`Table::up`].
pub const ADVISORY_LEASE_UP: &str =
    include_str!("../../migrations/2026-01-02-000000_advisory_lease/up.sql");

/// Drops the table and its last fencing token: the migration's `down.sql`.
pub const ADVISORY_LEASE_DOWN: &str =
    include_str!("../../migrations/2026-01-02-000000_advisory_lease/down.sql");

/// The key of the lock under which the table is created.
const SET_UP: &str = "advisory:lease:set_up";
/// The longest name of a holder, in bytes.
const LONGEST_HOLDER: usize = 255;
/// The longest name of a table or a schema: with the sequence's suffix it must fit into
/// PostgreSQL's 63 bytes.
const LONGEST_NAME: usize = 48;

// Its statements are made once in a process.
static DEFAULT: LazyLock<Arc<Texts>> =
    LazyLock::new(|| Arc::new(Texts::new("public", "advisory_lease")));
static THIS_PROCESS: LazyLock<Arc<str>> = LazyLock::new(this_process);

/// A lease table, and the name of this process in it.
///
/// Each method is one round trip on the caller's connection. [`Leases`](super::Leases) uses a pool,
/// renews in the background and releases on drop.
///
/// # Errors
///
/// Each method can fail with [`Error::MissingTable`] (42P01), [`Error::MissingRights`] (42501),
/// [`Error::Standby`] if it writes, [`Error::BrokenConnection`] and [`Error::Database`].
///
/// # Cancel safety
///
/// Dropping the future of a read has no effect. That of a change leaves the row changed or not; a
/// lease that was taken over lasts for its ttl.
///
/// ```
/// use advisory_runtime::lease::Table;
///
/// let table = Table::new().named("locks.app_lease")?.held_by("worker-7")?;
/// assert!(Table::new().named("Robert'); DROP TABLE").is_err());
/// # Ok::<_, advisory_runtime::lease::Error>(())
/// ```
#[derive(Clone)]
pub struct Table {
    /// Its name and its statements.
    pub(super) texts: Arc<Texts>,
    pub(super) holder: Arc<str>,
    pub(super) has_text: bool,
    /// `false` once a server has refused to tell its timeline. Not shared by all tables of the
    /// process, which can have several servers.
    pub(super) has_timeline: Arc<AtomicBool>,
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
            texts: Arc::clone(&DEFAULT),
            holder: Arc::clone(&THIS_PROCESS),
            has_text: false,
            has_timeline: Arc::new(AtomicBool::new(true)),
        }
    }

    /// Another table: `schema.table`, or `table` for one in `public`. Processes exclude each other
    /// only if they name the same table. Store the value: each makes its statements.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTable`] unless each name has at most 48 bytes, all lower-case ASCII letters,
    /// digits or `_`, with no digit first.
    pub fn named(self, name: &str) -> Result<Self, Error> {
        let (schema, table) = name.split_once('.').unwrap_or(("public", name));
        let is_word = |part: &str| {
            let is_letter = |letter| matches!(letter, 'a'..='z' | '_');
            let mut letters = part.chars();
            part.starts_with(is_letter) && letters.all(|l| is_letter(l) || l.is_ascii_digit())
        };
        let reason = if schema.len().max(table.len()) > LONGEST_NAME {
            "a schema and a table have at most 48 bytes each"
        } else if !is_word(schema) || !is_word(table) {
            "write `table` or `schema.table`, each of lower-case letters, digits and `_`, no digit first"
        } else {
            let texts = Arc::new(Texts::new(schema, table));
            return Ok(Self { texts, ..self });
        };
        let table = name.to_owned();
        Err(Error::InvalidTable { table, reason })
    }

    /// The name of this process for people who read the table: `program:pid@host` by default.
    /// Ownership does not depend on it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidHolder`] if it has more than 255 bytes or contains NUL.
    pub fn held_by(self, holder: impl Into<String>) -> Result<Self, Error> {
        let holder = holder.into();
        let reason = if holder.len() > LONGEST_HOLDER {
            "it has more than 255 bytes"
        } else if holder.contains('\0') {
            "it has a NUL character, which PostgreSQL's texts can't contain"
        } else {
            let holder = holder.into();
            return Ok(Self { holder, ..self });
        };
        Err(Error::InvalidHolder { holder, reason })
    }

    /// Stores a key's text while it is held, for people who read the table, which otherwise has
    /// only the key's hash and pattern. A release erases the text; if the holder died, the next
    /// grant or [`sweep`](Self::sweep) does.
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
        self.texts.full_name.to_string()
    }

    /// The SQL that creates this table: [`ADVISORY_LEASE_UP`] with the table's name.
    #[must_use]
    pub fn up(&self) -> String {
        self.renamed(ADVISORY_LEASE_UP)
    }

    /// The SQL that drops this table: [`ADVISORY_LEASE_DOWN`] with the table's name.
    #[must_use]
    pub fn down(&self) -> String {
        self.renamed(ADVISORY_LEASE_DOWN)
    }

    fn renamed(&self, sql: &str) -> String {
        let Texts { schema, name, .. } = &*self.texts;
        let sequence = format!("\"{schema}\".\"{name}_token\"");
        sql.replace("public.advisory_lease_token", &sequence)
            .replace("public.advisory_lease", &format!("\"{schema}\".\"{name}\""))
    }

    /// Creates the table if it does not exist, for development and tests. In production run the
    /// migration, by a role with more rights than the program's.
    ///
    /// # Locking
    ///
    /// A transaction-level advisory lock, so that two programs that start at once do not both
    /// create it.
    ///
    /// # Errors
    ///
    /// [`Error::Database`], such as for a missing schema or a missing right, and with the errors of
    /// [`xact::begin`](crate::xact::begin) and `finish` inside.
    pub async fn set_up<C: Connection>(&self, conn: &mut C) -> Result<(), Error> {
        self.set_up_on(conn.pg()).await
    }

    pub(crate) async fn set_up_on<D: Queries>(&self, conn: &mut D) -> Result<(), Error> {
        let key = Derivation::Sha256.key(SET_UP);
        let created: QueryResult<()> = async {
            let mut guard = lock::begin(conn, |conn| conn, Request::new(key)).await?;
            let conn = guard.conn();
            let created = match count(conn, self.texts.get(Form::IsMissing), &[]).await {
                Ok(0) => Ok(()),
                Ok(_) => conn.execute(&self.up()).await,
                Err(error) => Err(error),
            };
            guard.end(created.is_ok()).await?;
            created
        }
        .await;
        created.map_err(Error::Database)
    }

    pub(crate) fn busy_key(&self, key_hash: [u8; 32]) -> BusyKey {
        BusyKey {
            texts: Arc::clone(&self.texts),
            key_hash: Box::new(key_hash),
        }
    }

    /// The table of a key that a call did not get.
    pub(crate) fn of(busy: &BusyKey) -> Self {
        Self {
            texts: Arc::clone(&busy.texts),
            ..Self::new()
        }
    }

    /// Returns `true` if its statements are those of the migration's table.
    pub(super) fn is_default(&self) -> bool {
        Arc::ptr_eq(&self.texts, &DEFAULT)
    }

    /// The advisory lock of a grant's statement: one for each key and table.
    pub(super) fn grant_lock(&self, key_hash: &[u8; 32]) -> i64 {
        let first = key_hash.first_chunk().copied().unwrap_or_default();
        i64::from_be_bytes(first) ^ self.texts.grant_lock
    }
}

/// `program:pid@host`, as far as known.
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
