//! The lease table, and what one round trip on a connection of the caller's does with it.

use super::patience::{Patience, Refusal};
use super::request::milliseconds;
use super::sql::{Answer, HELD, IS_STANDBY, PREPARED_NAMES, TAKEN, Texts};
use super::standing::{Lease, Standing};
use super::statement::{Statement, Value};
use super::{FencingToken, Request, Row, running};
use crate::link::{Link, depth};
use crate::{Connection, Error, LockKey};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_async::AsyncPgConnection;
use std::borrow::Cow;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tokio::time::Instant;

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
    has_text: bool,
    channel: AtomicU8,
}

/// How statements are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    Prepared = 1,
    Said = 2,
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

    /// Acquires a lease, on a connection of the caller's, and does not renew it.
    ///
    /// # Locking
    ///
    /// An `UPDATE` of the row and, for a key that was never leased, an `INSERT`, in one statement of its own: one round trip a
    /// try. It waits for nobody inside the server: where the request has a wait, it tries again, after 10 ms at first and never
    /// longer than half a second apart. Held until [`release`](Self::release), or until its ttl is over. `synchronous_commit` is
    /// forced for it.
    ///
    /// # Errors
    ///
    /// [`Error::NotAvailable`], [`Error::TimedOut`], [`Error::KeyTooLong`], [`Error::InvalidLease`], [`Error::InTransaction`]
    /// inside a transaction, whose end would decide on it (one that was begun by SQL and not by Diesel is not found out);
    /// [`Error::MissingTable`], [`Error::Standby`], [`Error::BrokenConnection`], [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a lease that was granted meanwhile lasts for its ttl. [`Leases::acquire`](super::Leases::acquire) is.
    pub async fn acquire<C: Connection>(
        &self,
        conn: &mut C,
        request: impl Into<Request>,
    ) -> Result<Lease, Error> {
        let request = request.into();
        request.check()?;
        drop(running::asked(&request));
        let mut patience = Patience::new(&request);
        loop {
            match self.attempt(conn.pg(), &request).await? {
                Ok(grant) => return Ok(grant.lease(self, &request, patience.waited())),
                Err(refusal) => patience.wait(refusal).await?,
            }
        }
    }

    /// One try.
    pub(super) async fn attempt(
        &self,
        conn: &mut AsyncPgConnection,
        request: &Request,
    ) -> Result<Result<Grant, Refusal>, Error> {
        let lock = || request.name();
        outside(conn, lock)?;
        let (key_hash, grant_id) = (request.key_hash(), random());
        let texts = &self.0.texts;
        let sent = Instant::now();
        let answer = self
            .rows(
                conn,
                Statement {
                    text: &texts.acquire,
                    values: [
                        Value::Hash(key_hash),
                        Value::Number(grant_id),
                        Value::Text(&self.0.holder),
                        if self.0.has_text {
                            Value::Text(&request.key)
                        } else {
                            Value::NoText
                        },
                        Value::Number(milliseconds(request.ttl)),
                    ],
                    answer: Answer::Committed,
                    outcome: &texts.outcome,
                },
            )
            .await;
        let answer = match answer {
            Ok(rows) => rows.into_iter().next().unwrap_or_default(),
            // Under a stricter level of the role's own: somebody else wrote the row at the same moment.
            Err(DieselError::DatabaseError(DatabaseErrorKind::SerializationFailure, _)) => {
                return Ok(Err(Refusal::Again));
            }
            Err(error) => return Err(self.explain(conn, error, lock()).await),
        };
        let mut words = answer.split(' ');
        if words.next() == Some(TAKEN)
            && let Some(token) = words.next().and_then(|token| token.parse().ok())
        {
            return Ok(Ok(Grant {
                key_hash,
                grant_id,
                token: FencingToken(token),
                sent,
                is_test: depth(conn).is_ok_and(|depth| depth.is_some()),
            }));
        }
        Ok(Err(Refusal::held(words.next(), words.next())))
    }

    /// Makes a lease last its ttl from now on; `false` when it is not held any more, and then it never is again. It never gets
    /// shorter. A fencing token stays what it is.
    ///
    /// # Errors
    ///
    /// [`Error::InTransaction`] inside a transaction, which could undo it; [`Error::MissingTable`], [`Error::Standby`],
    /// [`Error::BrokenConnection`], [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it is renewed or not, and the lease's own clock counts from before.
    pub async fn renew<C: Connection>(
        &self,
        conn: &mut C,
        lease: &Lease,
        ttl: Duration,
    ) -> Result<bool, Error> {
        outside(conn.pg(), || lease.name())?;
        let sent = Instant::now();
        let is_held = self
            .own(conn.pg(), lease, &self.0.texts.renew, Some(ttl))
            .await?;
        if is_held {
            lease.standing.extend(sent, ttl);
        } else {
            lease.standing.lose();
        }
        Ok(is_held)
    }

    /// Releases a lease; `false` when it was not held any more. The row stays, and with it the token.
    ///
    /// It does not wait for the disk: a crash of the server that forgets a release leaves the key taken until the ttl is over.
    ///
    /// # Errors
    ///
    /// As [`renew`](Self::renew).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: it may be released or not.
    pub async fn release<C: Connection>(&self, conn: &mut C, lease: &Lease) -> Result<bool, Error> {
        outside(conn.pg(), || lease.name())?;
        let released = self
            .own(conn.pg(), lease, &self.0.texts.release, None)
            .await;
        lease.standing.lose();
        released
    }

    /// Leaves the key taken for so long from now on, by nobody who could renew, release or write under it; `false` when it was
    /// not held any more. Who asks again keeps it anew.
    ///
    /// # Errors
    ///
    /// As [`renew`](Self::renew).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: it may be kept or not.
    pub async fn keep<C: Connection>(
        &self,
        conn: &mut C,
        lease: &Lease,
        keep: Duration,
    ) -> Result<bool, Error> {
        outside(conn.pg(), || lease.name())?;
        let kept = self
            .own(conn.pg(), lease, &self.0.texts.keep, Some(keep))
            .await;
        lease.standing.lose();
        kept
    }

    /// What only the holder may do.
    async fn own(
        &self,
        conn: &mut AsyncPgConnection,
        lease: &Lease,
        text: &str,
        time: Option<Duration>,
    ) -> Result<bool, Error> {
        let [hash, grant, token] = lease.values();
        let rows = match time {
            Some(time) => {
                let time = Value::Number(milliseconds(time));
                let statement = flag(text, [hash, grant, token, time]);
                self.rows(conn, statement).await
            }
            None => self.rows(conn, flag(text, [hash, grant, token])).await,
        };
        match rows {
            Ok(rows) => Ok(rows.iter().any(|row| row == HELD)),
            Err(error) => Err(self.explain(conn, error, lease.name()).await),
        }
    }

    /// Who holds the lease on a key.
    ///
    /// # Errors
    ///
    /// [`Error::MissingTable`], [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn find<C: Connection>(
        &self,
        conn: &mut C,
        key: impl LockKey,
    ) -> Result<Option<Row>, Error> {
        self.find_text(conn, &key.rendered()).await
    }

    /// As [`find`](Self::find), by the key's text.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn find_text<C: Connection>(
        &self,
        conn: &mut C,
        key: &str,
    ) -> Result<Option<Row>, Error> {
        let hash = [Value::Hash(sha256(key))];
        let rows = self.read(conn.pg(), &self.0.texts.find, hash).await?;
        Ok(rows.into_iter().next())
    }

    /// Whether anybody holds the lease on a key.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn is_held<C: Connection>(
        &self,
        conn: &mut C,
        key: impl LockKey,
    ) -> Result<bool, Error> {
        Ok(self.find(conn, key).await?.is_some())
    }

    /// Whether this lease is still held, by the server's word. A moment later it may not be: to write under it use
    /// [`Lease::fence`].
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn holds<C: Connection>(&self, conn: &mut C, lease: &Lease) -> Result<bool, Error> {
        self.own(conn.pg(), lease, &self.0.texts.holds, None).await
    }

    /// Every lease that is held, soonest to expire first. It reads the whole table: for administrators.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn list<C: Connection>(&self, conn: &mut C) -> Result<Vec<Row>, Error> {
        self.read(conn.pg(), &self.0.texts.list, []).await
    }

    /// As [`list`](Self::list), those of one holder. There is no index on it, which would cost each renewal.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn list_of<C: Connection>(
        &self,
        conn: &mut C,
        holder: &str,
    ) -> Result<Vec<Row>, Error> {
        let holder = [Value::Text(holder)];
        self.read(conn.pg(), &self.0.texts.list_of, holder).await
    }

    /// Erases the texts of keys whose holders died without a release. Rows and tokens stay. It reads the whole table: for a
    /// nightly job, where [`with_text`](Self::with_text) is used.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: they are erased or not.
    pub async fn erase<C: Connection>(&self, conn: &mut C) -> Result<(), Error> {
        let statement = Statement {
            text: &self.0.texts.erase,
            values: [],
            answer: Answer::Committed,
            outcome: "''",
        };
        let conn = conn.pg();
        match self.rows(conn, statement).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.explain(conn, error, self.name().into()).await),
        }
    }

    async fn read<const N: usize>(
        &self,
        conn: &mut AsyncPgConnection,
        text: &str,
        values: [Value<'_>; N],
    ) -> Result<Vec<Row>, Error> {
        let statement = Statement {
            text,
            values,
            answer: Answer::Rows,
            outcome: "",
        };
        match self.rows(conn, statement).await {
            Ok(rows) => {
                let mut rows: Vec<Row> = rows.iter().filter_map(|row| Row::parse(row)).collect();
                rows.sort_by_key(|row| row.expires_at);
                Ok(rows)
            }
            Err(error) => Err(self.explain(conn, error, self.name().into()).await),
        }
    }

    pub(super) async fn rows<const N: usize>(
        &self,
        conn: &mut AsyncPgConnection,
        statement: Statement<'_, N>,
    ) -> Result<Vec<String>, DieselError> {
        let channel = self.channel(conn).await;
        statement.rows(conn, channel).await
    }

    /// Asked once, and only behind a pooler: whether it tracks prepared statements. One that does renames them.
    async fn channel(&self, conn: &mut AsyncPgConnection) -> Channel {
        let known = &self.0.channel;
        if known.load(Ordering::Relaxed) == Channel::Said as u8 {
            return Channel::Said;
        }
        if known.load(Ordering::Relaxed) == Channel::Prepared as u8
            || !crate::cancel::is_pooled(&conn.cancel_token())
        {
            return Channel::Prepared;
        }
        // An answer that is an error would be the end of an open transaction.
        if !matches!(depth(conn), Ok(None)) {
            return Channel::Said;
        }
        let is_tracked = match conn.ask(PREPARED_NAMES).await {
            Ok(Some(names)) => !names.split(',').any(is_own_name),
            Ok(None) | Err(_) => false,
        };
        let channel = if is_tracked {
            Channel::Prepared
        } else {
            Channel::Said
        };
        known.store(channel as u8, Ordering::Relaxed);
        channel
    }

    /// Whether a question has an answer.
    async fn is_so(&self, conn: &mut AsyncPgConnection, question: &str) -> bool {
        let rows = self.rows(conn, question_of(question)).await;
        rows.is_ok_and(|rows| !rows.is_empty())
    }

    /// What a refused statement means.
    pub(super) async fn explain(
        &self,
        conn: &mut AsyncPgConnection,
        error: DieselError,
        lock: Cow<'static, str>,
    ) -> Error {
        let DieselError::DatabaseError(kind, _) = &error else {
            return Error::Database(error);
        };
        match kind {
            DatabaseErrorKind::ReadOnlyTransaction if self.is_so(conn, IS_STANDBY).await => {
                Error::Standby { lock }
            }
            DatabaseErrorKind::Unknown if self.is_so(conn, &self.0.texts.is_missing).await => {
                let (table, source) = (self.name(), error);
                Error::MissingTable { table, source }
            }
            _ => Error::Database(error),
        }
    }
}

pub(super) fn question_of(text: &str) -> Statement<'_, 0> {
    Statement {
        text,
        values: [],
        answer: Answer::Rows,
        outcome: "",
    }
}

pub(super) fn flag<'s, const N: usize>(text: &'s str, values: [Value<'s>; N]) -> Statement<'s, N> {
    Statement {
        text,
        values,
        answer: Answer::Flag,
        outcome: "",
    }
}

/// Whether no transaction is open that could undo what was told to be done; a test's counts as none.
fn outside(
    conn: &mut AsyncPgConnection,
    lock: impl Fn() -> Cow<'static, str>,
) -> Result<(), Error> {
    match depth(conn) {
        Ok(None | Some(NonZeroU32::MIN)) if !conn.is_broken() => Ok(()),
        Ok(Some(_)) => Err(Error::InTransaction { lock: lock() }),
        _ => Err(Error::BrokenConnection { lock: lock() }),
    }
}

/// What was granted.
#[expect(
    clippy::struct_field_names,
    reason = "`grant_id` is what the table calls it"
)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) key_hash: [u8; 32],
    pub(super) grant_id: i64,
    pub(super) token: FencingToken,
    /// Before the server could begin to count.
    pub(super) sent: Instant,
    /// Granted inside a test's transaction.
    pub(super) is_test: bool,
}

impl Grant {
    pub(super) fn lease(self, table: &Table, request: &Request, waited: Duration) -> Lease {
        Lease {
            table: table.clone(),
            lock: request.name(),
            key_hash: self.key_hash,
            grant_id: self.grant_id,
            token: self.token,
            waited,
            is_test: self.is_test,
            standing: Arc::new(Standing::new(self.sent, request.ttl)),
        }
    }
}

/// How tokio-postgres names what it prepares.
fn is_own_name(name: &str) -> bool {
    name.strip_prefix('s').is_some_and(|digits| {
        !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
    })
}

pub(super) use advisory_pattern::sha256;

/// A number that no other grant has: after a fail-over that forgets grants a token comes twice, this does not.
pub(super) fn random() -> i64 {
    use std::hash::{BuildHasher, RandomState};
    use std::sync::atomic::AtomicU64;
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |now| now.as_nanos());
    // Keyed by the operating system's randomness.
    RandomState::new()
        .hash_one((
            NEXT.fetch_add(1, Ordering::Relaxed),
            now,
            std::process::id(),
        ))
        .cast_signed()
}

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
