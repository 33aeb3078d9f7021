//! Whether a session-level lock keeps another session out.

use crate::Error;
use crate::driver::Driver;
use crate::sql::{self, probe, session};
use diesel::QueryResult;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// How often it is looked whether the connections keep their sessions: a pooler that others use too lends by chance.
const ROUNDS: usize = 8;

/// Whether it was shown, or the database says, that the pooler before the server keeps the sessions of its clients. Once for the
/// process.
static KEEPS_SESSIONS: AtomicBool = AtomicBool::new(false);

/// Refuses a session of a pooler of which nothing is known, with the answer that [`Marker::PooledSession`](crate::error::Marker) marks.
///
/// Two connections are needed to find out, and a call has one. So a program shows it at its start, or the setting `advisory.pooler`
/// says it.
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
    // Before any lock is taken: where sessions are shared, one can be left on a session that nobody gets again.
    let [own, other] = [pid(first).await?, pid(second).await?];
    let mut keeps = own != other;
    for round in 0..ROUNDS {
        // Not asked where the answer is known: a pooler with one backend would let the second transaction wait.
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

/// Whether each connection has its backend still, after both had a transaction at once, of which the second ended last.
///
/// A pooler that shares backends lends the one that came back last, or the one that is idle for longest. Asked in this order, the
/// second connection gets the other's backend from a pooler of the latter kind, and the first one from a pooler of the former.
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

/// Whether this process answers: the one that the session was told of at its start, unless a pooler is in front of the server. One in a
/// thousand of the ids that a pooler makes up can be that of a process, and hardly ever that of the backend.
#[cfg(feature = "migrations")]
pub(crate) async fn is_answered_by<D: Driver>(conn: &mut D, process: u32) -> Result<bool, Error> {
    Ok(pid(conn).await? == process.to_string())
}

async fn pid<D: Driver>(conn: &mut D) -> Result<String, Error> {
    ask(conn, probe::PID).await
}

/// The answer, out of the error's text.
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

/// A key that nobody else has, so that a refusal means what it says.
fn unlikely_key() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanoseconds = now.map_or(0, |now| u64::from(now.subsec_nanos()) | now.as_secs() << 30);
    // The multiplier of splitmix64 spreads neighbouring times.
    (nanoseconds ^ u64::from(std::process::id()))
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .cast_signed()
}
