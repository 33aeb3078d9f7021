//! Checks that session-level locks exclude other sessions.

use super::call::Call;
use super::way::session;
use crate::driver::Driver;
use crate::error::{Marker, is_interrupted};
use crate::sql::{self, probe};
use crate::{Error, Key};
use diesel::QueryResult;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// How often to check that the connections keep their sessions. A busy pooler assigns backends by chance.
const ROUNDS: usize = 8;

/// Whether the pooler in front of the server is known to be in session mode, by `verify` or by the setting. Once for the process.
static KEEPS_SESSIONS: AtomicBool = AtomicBool::new(false);

/// The process that must be the backend of every statement that takes or releases session-level locks: the one that the connection was
/// told at its start. A pooler tells a number of its own.
///
/// `None` if the backend may be any: behind a pooler that is known to be in session mode, and on a blocking connection, whose number is
/// not known.
pub(super) fn own_process<D: Driver>(conn: &mut D) -> Option<i32> {
    if KEEPS_SESSIONS.load(Ordering::Relaxed) {
        return None;
    }
    // A number that is not an `int4` turns negative, which no process id is.
    conn.told_process_id().map(u32::cast_signed)
}

/// Whether a call that was refused because of its pooler can be repeated: the setting `advisory.pooler` says that the pooler is in
/// session mode, and from then on no backend is compared in this process; or it is Pgpool-II, which has no other mode, and this call
/// alone compares none, because another connection can be behind another pooler.
///
/// Finding out otherwise takes two connections, and a call has one.
pub(super) async fn may_repeat<D: Driver>(conn: &mut D, call: &mut Call, refused: &Error) -> bool {
    let (Some(process), Error::PooledSession { .. }) = (call.process, refused) else {
        return false;
    };
    // Inside a test's transaction Pgpool-II may balance no reads. No other one is open, since a failed one would not have answered.
    let is_at_primary = call.outer.is_none() && matches!(is_primary(conn).await, Ok(true));
    if is_at_primary {
        // The refused statement failed there, and then Pgpool-II lets the standby's session fail too, until a transaction ends.
        drop(conn.execute(sql::ROLLBACK).await);
    }
    let check = session::check_session_mode();
    let is_declared = remember(session::check(conn, call, &check).await);
    let is_kept = is_declared.is_ok() || is_at_primary && balances_reads(conn, process).await;
    if is_kept {
        call.process = None;
    }
    is_kept
}

/// Whether Pgpool-II balances reads: the backend that the connection was told reads, perhaps on a standby, and another one takes locks, on
/// the primary. If not even reads are answered by the one that was told, there is another pooler behind it.
async fn balances_reads<D: Driver>(conn: &mut D, process: i32) -> bool {
    // PostgreSQL has no setting of this name.
    matches!(is_answered_by(conn, process).await, Ok(true))
        && conn.execute("SHOW pool_version").await.is_ok()
}

/// Whether the server says that another backend than the connection's own serves it. A prepared statement of an acquisition fails there
/// in one way or another, before it has compared anything.
pub(super) async fn is_pooled<D: Driver>(conn: &mut D, call: &Call) -> bool {
    match call.process {
        Some(process) => matches!(is_answered_by(conn, process).await, Ok(false)),
        None => false,
    }
}

/// Refuses a session behind a pooler whose mode is not known, with an error that has [`Marker::PooledSession`].
#[cfg(feature = "migrations")]
pub(crate) async fn check_pooler<D: Driver>(conn: &mut D) -> QueryResult<()> {
    let Some(process) = own_process(conn) else {
        return Ok(());
    };
    let is_other = probe::is_not_backend(process);
    let check = probe::fail_if(&is_other, Marker::PooledSession);
    match conn.execute(&check).await {
        Err(source) if Marker::of(&source) == Some(Marker::PooledSession) => {
            remember(conn.execute(&session::check_session_mode()).await)
        }
        checked => checked,
    }
}

/// Whether the connection is known to have its server session to itself: the process that it was told is the backend.
#[cfg(all(feature = "migrations", feature = "diesel-async"))]
pub(crate) async fn is_direct<D: Driver>(conn: &mut D) -> Result<bool, Error> {
    match conn.told_process_id() {
        Some(process) => is_answered_by(conn, process.cast_signed()).await,
        None => Ok(false),
    }
}

/// What the setting says of one pooler counts for the process.
fn remember(is_declared: QueryResult<()>) -> QueryResult<()> {
    if is_declared.is_ok() {
        KEEPS_SESSIONS.store(true, Ordering::Relaxed);
    }
    is_declared
}

/// See [`session::verify`](crate::session::verify).
pub(crate) async fn verify<D: Driver>(first: &mut D, second: &mut D) -> Result<(), Error> {
    let mut has_tried = false;
    let result = probe(first, second, &mut has_tried).await;
    if result.is_ok()
        && let Some(process) = own_process(first)
        && !is_locked_by(first, process).await?
    {
        KEEPS_SESSIONS.store(true, Ordering::Relaxed);
    }
    if let Err(error) = &result {
        for conn in [first, second] {
            let is_quiet = conn.execute(sql::ROLLBACK).await.is_ok();
            if !is_quiet || has_tried || matches!(error, Error::PooledSession { .. }) {
                conn.status().set_in_error();
            }
        }
    }
    result
}

/// An error after the first try of a lock can have left it to the session.
async fn probe<D: Driver>(
    first: &mut D,
    second: &mut D,
    has_tried: &mut bool,
) -> Result<(), Error> {
    // What it finds out is about the server, and not about a lock.
    let lock = "".into();
    if !is_primary(first).await? {
        return Err(Error::Standby { lock });
    }
    // Before any lock is taken: if sessions are shared, a lock can be left on a session that this client never gets again.
    if !keep_sessions(first, second).await? {
        return Err(Error::PooledSession { lock });
    }
    *has_tried = true;
    for key in unlikely_keys() {
        if !excludes(first, second, key).await? {
            return Err(Error::UnsupportedServer);
        }
    }
    Ok(())
}

/// Whether the second session does not get the lock that the first one has taken. Neither has it afterwards.
async fn excludes<D: Driver>(first: &mut D, second: &mut D, key: Key) -> Result<bool, Error> {
    let (take, release) = (probe::try_session(key), probe::unlock_session(key));
    let is_taken = holds(first, &format!("NOT {take}"), Marker::NotAvailable).await?;
    let is_refused = holds(second, &take, Marker::NotAvailable).await?;
    if !is_refused {
        holds(second, &format!("NOT {release}"), Marker::LockLost).await?;
    }
    let is_released = holds(first, &format!("NOT {release}"), Marker::LockLost).await?;
    Ok(is_taken && is_refused && is_released)
}

async fn keep_sessions<D: Driver>(first: &mut D, second: &mut D) -> Result<bool, Error> {
    let (Some(own), Some(other)) = (pid(first).await?, pid(second).await?) else {
        return Ok(false);
    };
    let mut keeps = own != other;
    for _ in 0..ROUNDS {
        // Skipped if the answer is already known: with a single backend, the second transaction would wait forever.
        keeps = keeps && keep_backends([(&mut *first, own), (&mut *second, other)]).await?;
    }
    Ok(keeps)
}

/// Whether each connection still has its backend after both had a transaction at the same time, of which the second ended last.
///
/// A pooler that shares backends assigns either the one that came back last, or the one that has been idle for longest. With this
/// order, the first connection gets the other's backend from the former kind, and the second connection from the latter.
async fn keep_backends<D: Driver>(conns: [(&mut D, i32); 2]) -> Result<bool, Error> {
    let [(first, own), (last, other)] = conns;
    let mut keeps = is_answered_by(first, own).await? && is_answered_by(last, other).await?;
    if !keeps {
        return Ok(false);
    }
    first.execute("BEGIN").await.map_err(Error::Database)?;
    keeps = is_answered_by(first, own).await?;
    if keeps {
        last.execute("BEGIN").await.map_err(Error::Database)?;
        keeps = is_answered_by(last, other).await?;
    }
    for conn in [&mut *first, &mut *last] {
        conn.execute(sql::ROLLBACK).await.map_err(Error::Database)?;
    }
    Ok(keeps && is_answered_by(last, other).await? && is_answered_by(first, own).await?)
}

/// Whether locks are taken and released on a primary: `pg_is_in_recovery()` is volatile, as their functions are, so Pgpool-II sends it where
/// it sends them, and with a list of functions that can be a standby.
async fn is_primary<D: Driver>(conn: &mut D) -> Result<bool, Error> {
    holds(conn, probe::IN_RECOVERY, Marker::Standby).await
}

/// Whether the backend is this process.
async fn is_answered_by<D: Driver>(conn: &mut D, process: i32) -> Result<bool, Error> {
    holds(conn, &probe::is_not_backend(process), Marker::PooledSession).await
}

/// Whether the backend is this process for a statement that takes locks: as one that calls a volatile function, Pgpool-II sends it to the
/// primary.
async fn is_locked_by<D: Driver>(conn: &mut D, process: i32) -> Result<bool, Error> {
    let is_other = probe::is_not_backend(process);
    let is_other = format!("{} IS NOT NULL AND {is_other}", probe::IN_RECOVERY);
    holds(conn, &is_other, Marker::PooledSession).await
}

/// The process that answers. `None` if the query could not be prepared: another client of a pooler has used the same backend.
async fn pid<D: Driver>(conn: &mut D) -> Result<Option<i32>, Error> {
    conn.execute("BEGIN").await.map_err(Error::Database)?;
    let answer = conn.query_text(probe::PID).await;
    conn.execute(sql::ROLLBACK).await.map_err(Error::Database)?;
    match answer {
        Ok(pid) => Ok(pid.and_then(|pid| pid.parse().ok())),
        Err(source) if is_interrupted(&source) => Ok(None),
        Err(source) => Err(Error::Database(source)),
    }
}

/// Whether the opposite of the condition is true.
async fn holds<D: Driver>(conn: &mut D, condition: &str, marker: Marker) -> Result<bool, Error> {
    match conn.execute(&probe::fail_if(condition, marker)).await {
        Ok(()) => Ok(true),
        Err(source) if Marker::of(&source) == Some(marker) => Ok(false),
        Err(source) => Err(Error::Database(source)),
    }
}

/// A key of each key space that no other session uses, so that a refusal is conclusive.
fn unlikely_keys() -> [Key; 2] {
    let process = std::process::id();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default();
    let nanoseconds = u64::from(now.subsec_nanos()) | now.as_secs() << 30;
    // The multiplier of splitmix64 separates times that are close together.
    let number = (nanoseconds ^ u64::from(process)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    [
        Key::BigInt(number.cast_signed()),
        Key::IntInt(process.cast_signed(), now.subsec_nanos().cast_signed()),
    ]
}
