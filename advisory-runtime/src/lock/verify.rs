//! Checks that session-level locks exclude other sessions.

use crate::Error;
use crate::driver::Driver;
use crate::sql::{self, probe, session};
use diesel::QueryResult;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// How often to check that the connections keep their sessions. A busy pooler assigns backends by chance.
const ROUNDS: usize = 8;

/// Whether the pooler in front of the server is known to be in session mode, by `verify` or by the setting. Once for the process.
static KEEPS_SESSIONS: AtomicBool = AtomicBool::new(false);

/// Refuses a session behind a pooler whose mode is not known, with an error that has
/// [`Marker::PooledSession`](crate::error::Marker).
///
/// Finding out takes two connections, and a call has one. So a program verifies it at its start, or sets `advisory.pooler`.
pub(crate) async fn check_pooler<D: Driver>(conn: &mut D) -> QueryResult<()> {
    if KEEPS_SESSIONS.load(Ordering::Relaxed) || !conn.is_pooled() {
        return Ok(());
    }
    conn.execute(&session::check_session_mode()).await?;
    KEEPS_SESSIONS.store(true, Ordering::Relaxed);
    Ok(())
}

/// See [`session::verify`](crate::session::verify).
pub(crate) async fn verify<D: Driver>(first: &mut D, second: &mut D) -> Result<(), Error> {
    let result = probe(first, second).await;
    if result.is_ok() && first.is_pooled() {
        KEEPS_SESSIONS.store(true, Ordering::Relaxed);
    }
    for conn in [first, second] {
        let quiet = conn.execute(sql::ROLLBACK).await.is_ok();
        if !quiet || matches!(result, Err(Error::PooledSession { .. })) {
            conn.status().set_in_error();
        }
    }
    result
}

async fn probe<D: Driver>(first: &mut D, second: &mut D) -> Result<(), Error> {
    let key = unlikely_key();
    if ask(first, probe::IN_RECOVERY).await? == "t" {
        let lock = key.to_string().into();
        return Err(Error::Standby { lock });
    }
    // Before any lock is taken: if sessions are shared, a lock can be left on a session that this client never gets again.
    let [own, other] = [pid(first).await?, pid(second).await?];
    let mut keeps = own != other;
    for round in 0..ROUNDS {
        // Skipped if the answer is already known: with a single backend, the second transaction would wait forever.
        keeps = keeps
            && if round % 2 == 0 {
                keep_backends([(&mut *first, &own), (&mut *second, &other)]).await?
            } else {
                keep_backends([(&mut *second, &other), (&mut *first, &own)]).await?
            };
    }
    if !keeps {
        let lock = key.to_string().into();
        return Err(Error::PooledSession { lock });
    }
    let is_taken = ask(first, &probe::try_session(key)).await?;
    let is_shared = ask(second, &probe::try_session(key)).await?;
    if is_shared == "t" {
        ask(second, &probe::unlock_session(key)).await?;
    }
    let is_released = ask(first, &probe::unlock_session(key)).await?;
    if is_taken != "t" || is_shared == "t" || is_released != "t" {
        let lock = key.to_string().into();
        return Err(Error::UnsupportedServer { lock });
    }
    Ok(())
}

/// Whether each connection still has its backend after both had a transaction at the same time, of which the second ended last.
///
/// A pooler that shares backends assigns either the one that came back last, or the one that has been idle for longest. With this
/// order, the first connection gets the other's backend from the former kind, and the second connection from the latter.
async fn keep_backends<D: Driver>(conns: [(&mut D, &str); 2]) -> Result<bool, Error> {
    let [(first, own), (last, other)] = conns;
    let mut keeps = pid(first).await? == own && pid(last).await? == other;
    if !keeps {
        return Ok(false);
    }
    first.execute("BEGIN").await.map_err(Error::Database)?;
    keeps = pid(first).await? == own;
    if keeps {
        last.execute("BEGIN").await.map_err(Error::Database)?;
        keeps = pid(last).await? == other;
    }
    for conn in [&mut *first, &mut *last] {
        conn.execute(sql::ROLLBACK).await.map_err(Error::Database)?;
    }
    Ok(keeps && pid(last).await? == other && pid(first).await? == own)
}

/// Whether the backend is the process that the connection learned of at its start. Behind a pooler it is not: about one in a thousand
/// made-up ids looks like a process id, and hardly ever is it the backend's.
#[cfg(feature = "migrations")]
pub(crate) async fn is_answered_by<D: Driver>(conn: &mut D, process: u32) -> Result<bool, Error> {
    Ok(pid(conn).await? == process.to_string())
}

async fn pid<D: Driver>(conn: &mut D) -> Result<String, Error> {
    ask(conn, probe::PID).await
}

/// Extracts the answer from the error's text.
async fn ask<D: Driver>(conn: &mut D, expression: &str) -> Result<String, Error> {
    let Err(refused) = conn.execute(&probe::say(expression)).await else {
        return Ok(String::new());
    };
    let answer = match &refused {
        diesel::result::Error::DatabaseError(_, answer) => answer.message(),
        _ => "",
    };
    let said = answer
        .split_once(probe::SAID)
        .and_then(|(_, rest)| rest.split_once('.'));
    match said {
        Some((said, _)) => Ok(said.to_owned()),
        None => Err(Error::Database(refused)),
    }
}

/// A key that no other session uses, so that a refusal is conclusive.
fn unlikely_key() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanoseconds = now.map_or(0, |now| u64::from(now.subsec_nanos()) | now.as_secs() << 30);
    // The multiplier of splitmix64 separates times that are close together.
    (nanoseconds ^ u64::from(std::process::id()))
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .cast_signed()
}
