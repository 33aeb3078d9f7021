//! Checks of poolers: that each connection keeps a backend of its own, and that session-level locks
//! exclude other sessions.

use crate::driver::{CloseOnDrop, Driver};
use crate::error::{Marker, has_only_message};
use crate::random::random;
use crate::sql::{self, Arguments, probe};
use crate::{Error, Key};
use diesel::QueryResult;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of checks that the connections keep their sessions. A busy pooler assigns backends by
/// chance.
const ROUNDS: usize = 8;

/// True once `verify` or the setting has shown this process that the pooler is in session mode.
static KEEPS_SESSIONS: AtomicBool = AtomicBool::new(false);

/// The process id that the server sent when the connection was opened. It must be the backend's in
/// every statement that takes or releases session-level locks; a pooler sends a number of its own.
///
/// `None` if any backend may answer: behind a pooler that is known to be in session mode, and on a
/// blocking connection, which does not show the number.
pub(crate) fn own_process<D: Driver>(conn: &mut D) -> Option<i32> {
    if KEEPS_SESSIONS.load(Ordering::Relaxed) {
        return None;
    }
    // A number that is not an `int4` turns negative, which no process id is.
    conn.startup_process_id().map(u32::cast_signed)
}

/// Returns whether another backend than this one is known to serve the connection. For an
/// acquisition that failed as a prepared statement, before it compared the backends.
pub(crate) async fn has_other_backend<D: Driver>(conn: &mut D, process: Option<i32>) -> bool {
    match process {
        Some(process) => matches!(is_answered_by(conn, process).await, Ok(false)),
        None => false,
    }
}

/// Fails with [`Marker::PooledSession`] unless the setting `advisory.pooler` is `session`.
pub(crate) fn check_session_mode() -> String {
    let is_session = "COALESCE(pg_catalog.current_setting('advisory.pooler',true),'') \
         OPERATOR(pg_catalog.=) 'session'";
    sql::fail_unless(is_session, Marker::PooledSession.text())
}

/// Refuses a session behind a pooler whose mode is not known, with an error that has
/// [`Marker::PooledSession`].
#[cfg(feature = "migrations")]
pub(crate) async fn check_pooler<D: Driver>(conn: &mut D) -> QueryResult<()> {
    let Some(process) = own_process(conn) else {
        return Ok(());
    };
    let other_backend = probe::not_backend_sql(process);
    let check = probe::fail_if(&other_backend, Marker::PooledSession);
    match conn.execute(&check).await {
        Err(source) if Marker::of(&source) == Some(Marker::PooledSession) => {
            remember(conn.execute(&check_session_mode()).await)
        }
        checked => checked,
    }
}

/// Returns whether the connection is known to have a server session of its own: the backend that
/// answers has the process id that the connection received when it was opened.
#[cfg(all(feature = "migrations", feature = "diesel-async"))]
pub(crate) async fn is_direct<D: Driver>(conn: &mut D) -> Result<bool, Error> {
    match conn.startup_process_id() {
        Some(process) => is_answered_by(conn, process.cast_signed()).await,
        None => Ok(false),
    }
}

/// Takes the answer to [`check_session_mode`]. If one pooler is in session mode, this process no
/// longer compares backends on any connection.
pub(crate) fn remember(is_declared: QueryResult<()>) -> QueryResult<()> {
    if is_declared.is_ok() {
        KEEPS_SESSIONS.store(true, Ordering::Relaxed);
    }
    is_declared
}

/// See [`session::verify`](crate::session::verify). A drop, or an error that can have left a lock
/// or a transaction, closes both connections.
pub(crate) async fn verify<D: Driver>(first: &mut D, second: &mut D) -> Result<(), Error> {
    let (mut first, mut second) = (CloseOnDrop::new(first), CloseOnDrop::new(second));
    let mut has_tried = false;
    let result = probe(&mut *first, &mut *second, &mut has_tried).await;
    if result.is_ok()
        && let Some(process) = own_process(&mut *first)
        && !is_answered_by(&mut *first, process).await?
    {
        KEEPS_SESSIONS.store(true, Ordering::Relaxed);
    }
    for mut conn in [first, second] {
        if let Err(error) = &result {
            let is_quiet = conn.execute(sql::ROLLBACK).await.is_ok();
            if !is_quiet || has_tried {
                continue;
            }
            if matches!(error, Error::PooledSession { .. }) {
                conn.status().set_in_error();
            }
        }
        conn.disarm();
    }
    result
}

/// Sets `has_tried` before it takes the first lock: an error after that can have left a lock.
async fn probe<D: Driver>(
    first: &mut D,
    second: &mut D,
    has_tried: &mut bool,
) -> Result<(), Error> {
    // The answer is about the server, and not about a lock.
    let lock = "".into();
    if !is_false(first, probe::IN_RECOVERY, Marker::Standby).await? {
        return Err(Error::Standby { lock });
    }
    let backends = (backend(first).await?, backend(second).await?);
    let (Some((own, own_is_of_citus)), Some((other, other_is_of_citus))) = backends else {
        return Err(Error::PooledSession { lock });
    };
    // An address can lead to several nodes. The locks of any but the coordinator are its own.
    for (conn, is_of_citus) in [(&mut *first, own_is_of_citus), (second, other_is_of_citus)] {
        if is_of_citus && !is_false(conn, probe::IS_CITUS_WORKER, Marker::NotCoordinator).await? {
            return Err(Error::NotCoordinator);
        }
    }
    // Before any lock is taken: if sessions are shared, this client may never get the session of
    // its lock again.
    for _ in 0..ROUNDS {
        // With a single backend, the second transaction would wait forever.
        if own == other || !keep_backends([(&mut *first, own), (&mut *second, other)]).await? {
            return Err(Error::PooledSession { lock });
        }
    }
    *has_tried = true;
    for key in unlikely_keys() {
        if !excludes(first, second, key).await? {
            return Err(Error::UnsupportedServer);
        }
    }
    Ok(())
}

/// Returns whether the second session is refused a lock that the first one holds. Neither holds it
/// afterwards.
async fn excludes<D: Driver>(first: &mut D, second: &mut D, key: Key) -> Result<bool, Error> {
    let key = Arguments(key);
    let take = format!("pg_catalog.pg_try_advisory_lock({key})");
    let release = format!("pg_catalog.pg_advisory_unlock({key})");
    let is_taken = is_false(first, &format!("NOT {take}"), Marker::NotAvailable).await?;
    let is_refused = is_false(second, &take, Marker::NotAvailable).await?;
    if !is_refused {
        is_false(second, &format!("NOT {release}"), Marker::LockLost).await?;
    }
    let is_released = is_false(first, &format!("NOT {release}"), Marker::LockLost).await?;
    Ok(is_taken && is_refused && is_released)
}

/// Returns whether each connection still has its backend after both had a transaction open, and the
/// second transaction ended last.
///
/// A pooler that shares backends assigns either the backend that came back last, or the one that
/// has been idle for longest. The former kind gives the first connection the other's backend, the
/// latter kind the second.
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

async fn is_answered_by<D: Driver>(conn: &mut D, process: i32) -> Result<bool, Error> {
    is_false(
        conn,
        &probe::not_backend_sql(process),
        Marker::PooledSession,
    )
    .await
}

/// The process of the backend that answers, and whether it is a node of Citus. `None` if it could
/// not prepare the query, because another client of a pooler has used it.
async fn backend<D: Driver>(conn: &mut D) -> Result<Option<(i32, bool)>, Error> {
    conn.execute("BEGIN").await.map_err(Error::Database)?;
    let answer = conn.query_text(probe::PID_AND_CITUS).await;
    conn.execute(sql::ROLLBACK).await.map_err(Error::Database)?;
    match answer {
        Ok(answer) => Ok(answer.and_then(|answer| {
            let process = answer.strip_suffix(" citus");
            let is_of_citus = process.is_some();
            Some((process.unwrap_or(&answer).parse().ok()?, is_of_citus))
        })),
        Err(source) if has_only_message(&source) => Ok(None),
        Err(source) => Err(Error::Database(source)),
    }
}

/// Returns whether the condition is false at the server.
async fn is_false<D: Driver>(conn: &mut D, condition: &str, marker: Marker) -> Result<bool, Error> {
    match conn.execute(&probe::fail_if(condition, marker)).await {
        Ok(()) => Ok(true),
        Err(source) if Marker::of(&source) == Some(marker) => Ok(false),
        Err(source) => Err(Error::Database(source)),
    }
}

/// A key of each key space that no other session is likely to use, so that a refusal is conclusive.
fn unlikely_keys() -> [Key; 2] {
    let bits = random();
    let (first, second) = ((bits >> 32) as u32, (bits & 0xFFFF_FFFF) as u32);
    [
        Key::BigInt(bits.cast_signed()),
        Key::IntInt(first.cast_signed(), second.cast_signed()),
    ]
}
