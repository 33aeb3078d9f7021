//! Claims rows with a limit for each value of a column: locks the values, then counts and claims,
//! in one transaction.

use super::Error;
use super::claimed::{Answer, Answered, Claimed};
use super::conflicts::Conflicts;
use super::spent::fail_spent;
use super::sql::limit::{BEGIN, COMMIT, NEAR, ROLLBACK};
use super::sql::{Form, Statement, Value, Wanted};
use super::table::Claim;
use crate::driver::{CloseOnDrop, Queries, depth};
use crate::random::random;
use crate::rows::{Backoff, Moment};
use diesel::QueryResult;
use diesel::pg::Pg;
use diesel::prelude::QueryableByName;
use diesel::query_builder::QueryFragment;
use diesel::result::Error as DieselError;
use diesel::sql_types::{BigInt, Bool, Text};
use std::time::Duration;

/// The number of values that the first retry locks in addition, because the rows of the first
/// values may be locked.
const MORE: u32 = 16;
/// The most values that a retry locks in addition.
const MOST: u32 = 256;
/// The factor by which a reservation reaches farther after one that has locked nothing.
const FARTHER: u32 = 8;
/// The most pauses of a claim while other sessions have locked all values that have room. Each of
/// them holds its locks for a statement or two.
const PAUSES: u32 = 8;

/// The answer of a reservation.
#[derive(QueryableByName)]
#[diesel(check_for_backend(Pg))]
struct Reserved {
    /// The locked values, as an array in SQL.
    #[diesel(sql_type = Text)]
    locked: String,
    /// `true` if other sessions have locked every value that has room.
    #[diesel(sql_type = Bool)]
    is_busy: bool,
    /// `true` if there are rows that the reservation has not reached.
    #[diesel(sql_type = Bool)]
    has_more: bool,
    /// The time that it waited for the lock, in microseconds.
    #[diesel(sql_type = BigInt)]
    waited: i64,
    /// `true` if the snapshot of the open transaction may be too old.
    #[diesel(sql_type = Bool)]
    is_stale: bool,
}

/// An empty array in SQL.
const NONE: &str = "{}";

/// Claims at most `limit` rows. Returns with them `true` if there are rows that it has not reached.
pub(super) async fn take<T: Claim, D: Queries>(
    conn: &mut D,
    worker: &str,
    limit: u32,
    wanted: Wanted<'_>,
) -> Result<(Vec<Claimed<T>>, bool), Error> {
    let skips_expired = wanted.skips_expired;
    let form = Form::NextOfReserved {
        limit,
        skips_expired,
    };
    let claim = Statement::of::<T>(form).claim::<T>(worker, false, wanted);
    let mut passed_over = NONE.to_owned();
    let mut backoff = Backoff::between(Duration::from_millis(1), Duration::from_millis(128));
    let (mut more, mut pauses) = (0, 0);
    let mut reach = NEAR;
    while reach < limit {
        reach = reach.saturating_mul(FARTHER);
    }
    // If the reservation must be prepared first, the claim overtakes it.
    let mut is_pipelined = claim.is_safe_to_cache_prepared(&Pg).unwrap_or(false);
    loop {
        let width = limit.saturating_add(more);
        let form = Form::Reserve {
            width,
            reach,
            skips_expired,
        };
        let reserve = Statement::of::<T>(form)
            .with("passed_over", Value::Text(passed_over.clone().into()))
            .with("start", Value::Number(random().cast_signed()))
            .wanted(wanted);
        let (reserved, Answer { claimed, spent }) =
            reserve_and_take(conn, &reserve, &claim, is_pipelined).await?;
        if !claimed.is_empty() {
            if let Some(spent) = &spent {
                fail_spent(conn, worker, spent, wanted).await?;
            }
            return Ok((claimed, reserved.has_more));
        }
        if reserved.locked == NONE && reserved.has_more {
            reach = reach.saturating_mul(FARTHER);
        } else if reserved.locked == NONE {
            if !reserved.is_busy || pauses == PAUSES {
                return Ok((Vec::new(), false));
            }
            pauses += 1;
            D::pause(backoff.pause()).await;
        } else if is_pipelined {
            // If the connection had to prepare the reservation, the claim may have overtaken it.
            is_pipelined = false;
        } else if let Some(spent) = &spent {
            fail_spent(conn, worker, spent, wanted).await?;
        } else {
            // Another session has claimed the last row meanwhile, or has locked the rows. More may
            // follow them.
            passed_over = together(&passed_over, &reserved.locked);
            // Each value takes a lock, and the server's lock table has room for some thousands.
            more = more.saturating_mul(4).clamp(MORE, MOST);
        }
    }
}

pub(super) async fn take_by_key<T: Claim, D: Queries>(
    conn: &mut D,
    worker: &str,
    key: &(dyn QueryFragment<Pg> + Send + Sync),
    wanted: Wanted<'_>,
) -> Result<Vec<Claimed<T>>, Error> {
    let reserve = Statement::of::<T>(Form::ReserveKey).key(key);
    let claim = Statement::of::<T>(Form::ReservedKey).key(key);
    let claim = claim.claim::<T>(worker, false, wanted);
    let (reserved, mut answer) = reserve_and_take(conn, &reserve, &claim, true).await?;
    let is_empty = answer.claimed.is_empty() && answer.spent.is_none();
    if is_empty && reserved.locked != NONE {
        (_, answer) = reserve_and_take(conn, &reserve, &claim, false).await?;
    }
    if let Some(spent) = &answer.spent {
        fail_spent(conn, worker, spent, wanted).await?;
    }
    Ok(answer.claimed)
}

/// Sends both statements, in a new transaction unless one is open.
async fn reserve_and_take<T: Claim, D: Queries>(
    conn: &mut D,
    reserve: &Statement<'_>,
    claim: &Statement<'_>,
    mut is_pipelined: bool,
) -> Result<(Reserved, Answer<T>), Error> {
    let mut conflicts = Conflicts::on(conn);
    let is_outside = depth(conn).map_err(Error::Database)?.is_none();
    loop {
        let mut open = CloseOnDrop::armed_if(is_outside, conn);
        let sent = Moment::now();
        let answered: QueryResult<(Vec<Reserved>, Vec<Answered<T>>)> = if is_pipelined {
            let around = is_outside.then_some([BEGIN, COMMIT]);
            open.load_both(around, reserve, claim).await
        } else {
            let one_by_one = async {
                if is_outside {
                    open.execute(BEGIN).await?;
                }
                let reserved = open.load(reserve).await?;
                let claimed = open.load(claim).await?;
                if is_outside {
                    open.execute(COMMIT).await?;
                }
                Ok((reserved, claimed))
            };
            one_by_one.await
        };
        // A commit that was cancelled can leave a failed transaction.
        if is_outside && answered.is_err() && open.execute(ROLLBACK).await.is_err() {
            open.close(true);
        }
        open.disarm();
        match answered {
            Ok((reserved, rows)) => {
                let reserved = reserved.into_iter().next();
                let reserved = reserved.ok_or(Error::Database(DieselError::NotFound))?;
                if !reserved.is_stale {
                    // The claim's statement began after the wait.
                    let waited = Duration::from_micros(reserved.waited.try_into().unwrap_or(0));
                    return Ok((reserved, Answer::of(rows, sent.after_wait(waited))?));
                }
                if !is_outside || !is_pipelined {
                    let claim = super::sql::table_name::<T>();
                    return Err(Error::StaleSnapshot { claim });
                }
                // The claim arrived after the end of its transaction.
                is_pipelined = false;
            }
            Err(error) if conflicts.retry(&error) => {}
            Err(error) => return Err(Error::Database(error)),
        }
    }
}

/// Concatenates two arrays.
fn together(one: &str, other: &str) -> String {
    match (one, other) {
        (NONE, array) | (array, NONE) => array.to_owned(),
        _ => format!(
            "{},{}",
            one.trim_end_matches('}'),
            other.trim_start_matches('{')
        ),
    }
}
