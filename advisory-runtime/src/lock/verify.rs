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
    for round in 0..ROUNDS {
        let keeps = if round % 2 == 0 {
            keeps_apart(first, &own, second, &other).await?
        } else {
            keeps_apart(second, &other, first, &own).await?
        };
        if !keeps {
            let lock = key.to_string().into();
            return Err(Error::PooledSession { lock });
        }
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

/// Whether each connection has its own backend still, while `busy` has a transaction open and so a backend for itself.
async fn keeps_apart<D: Driver>(
    idle: &mut D,
    idle_pid: &str,
    busy: &mut D,
    busy_pid: &str,
) -> Result<bool, Error> {
    // A pooler that lends its backends in turn lends the next one to the second question. It could lend the right ones below, where the
    // two connections take turns too.
    for _ in 0..2 {
        if pid(idle).await? != idle_pid {
            return Ok(false);
        }
    }
    busy.execute("BEGIN").await.map_err(Error::Database)?;
    let mut keeps = pid(busy).await? == busy_pid && busy_pid != idle_pid;
    // Not asked where the answer is known: a pooler with no other backend would let the question wait.
    if keeps {
        keeps = pid(idle).await? == idle_pid;
    }
    busy.execute(sql::ROLLBACK).await.map_err(Error::Database)?;
    Ok(keeps)
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
