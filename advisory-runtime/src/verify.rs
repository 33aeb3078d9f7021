//! Whether a session-level lock really keeps another session out.

use crate::link::Link;
use crate::{Error, sql};
use std::time::{SystemTime, UNIX_EPOCH};

/// See [`session::verify`](crate::session::verify).
pub(crate) async fn verify<L: Link>(first: &mut L, second: &mut L) -> Result<(), Error> {
    let result = probe(first, second).await;
    // Where the sessions are shared, the lock can be on either.
    for conn in [first, second] {
        let quiet = conn.execute(sql::ROLLBACK).await.is_ok();
        if !quiet || matches!(result, Err(Error::PooledSession { .. })) {
            conn.status().set_in_error();
        }
    }
    result
}

async fn probe<L: Link>(first: &mut L, second: &mut L) -> Result<(), Error> {
    let key = unlikely_key();
    let (take, give) = (sql::try_session(key), sql::unlock_session(key));
    let before = ask(first, sql::PID).await?;
    let is_taken = ask(first, &take).await?;
    // With a transaction open, the second has a backend for itself; the first must still have its own.
    second.execute("BEGIN").await.map_err(Error::Database)?;
    let both = ask(second, &format!("{},'/',{take}", sql::PID)).await;
    let after = ask(first, sql::PID).await;
    second
        .execute(sql::ROLLBACK)
        .await
        .map_err(Error::Database)?;
    let (both, after) = (both?, after?);
    let (other, is_shared) = both.split_once('/').unwrap_or_default();
    if is_shared == "t" {
        ask(second, &give).await?;
    }
    let is_released = ask(first, &give).await?;
    let lock = key.to_string().into();
    if before != after || before == other {
        return Err(Error::PooledSession { lock });
    }
    if is_taken != "t" || is_shared == "t" || is_released != "t" {
        return Err(Error::UnsupportedServer { lock });
    }
    Ok(())
}

/// The answer, out of the error's text.
async fn ask<L: Link>(conn: &mut L, expression: &str) -> Result<String, Error> {
    let Err(refused) = conn.execute(&sql::say(expression)).await else {
        return Ok(String::new());
    };
    let answer = match &refused {
        diesel::result::Error::DatabaseError(_, answer) => answer.message(),
        _ => "",
    };
    let said = answer
        .split_once(sql::SAID)
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
