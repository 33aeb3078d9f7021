//! Sends the statements that end claims.

use super::message::{cut, is_of_row};
use crate::claim::Error;
use crate::claim::claimed::{Claimed, EndedRow, SettledRow, Transaction, no_answer};
use crate::claim::conflicts::{change, load};
use crate::claim::key::KeyValue;
use crate::claim::mutex::locked;
use crate::claim::sql::{Ending, Fixed, Fragment, How, Id, Locked, ManyKeys, OneEnd, Statement};
use crate::claim::sql::{LONGEST_PAUSE, TypeSets, text, transaction_of, triggers};
use crate::claim::table::Claim;
use crate::driver::{Queries, depth};
use crate::error::{is_connection_lost, may_follow_commit};
use crate::rows::{End, Inside};
use diesel::pg::Pg;
use diesel::query_builder::QueryFragment;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::sql_types::Bool;
use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard};

/// The number of refusals after which the reason is not taken to be in single rows.
const MOST_REFUSED: u32 = 32;

/// Ends one claim for a caller of the public functions.
pub(crate) async fn end_one<T: Claim, D: Queries>(
    conn: &mut D,
    job: &Claimed<T>,
    end: End,
    message: &str,
    changes: &[Fragment<'_>],
) -> Result<(), Error> {
    if let End::Retry { after: Some(after) } = end
        && after > LONGEST_PAUSE
    {
        let too_long =
            "a pause of more than ten years is not possible: write a shorter one, or `claim::fail`";
        return Err(Error::Database(DieselError::QueryBuilderError(
            too_long.into(),
        )));
    }
    let is_outside = matches!(depth(conn), Ok(None));
    match send_end(conn, job, ending(end, Some(&text(message)), changes)).await {
        Err(Error::Database(error)) if is_outside && is_connection_lost(&error) => {
            Err(job.unknown(error))
        }
        ended => ended,
    }
}

/// Ends a claim. If the row refuses the message, this sends the end again with the message cut, and
/// then without it. Returns the refusal.
pub(crate) async fn end_fitting<T: Claim, D: Queries>(
    conn: &mut D,
    job: &Claimed<T>,
    end: End,
    message: &str,
) -> Result<Option<DieselError>, Error> {
    let can_repeat = end.has_message() && matches!(depth(conn), Ok(None));
    let refused = match send_end(conn, job, ending(end, Some(message), &[])).await {
        Err(Error::Database(refused)) if can_repeat && is_of_row(&refused) => refused,
        ended => return ended.map(|()| None),
    };
    let cut = cut(message, &refused);
    match send_end(conn, job, ending(end, Some(&cut), &[])).await {
        Err(Error::Database(again)) if is_of_row(&again) => {}
        ended => return ended.map(|()| Some(refused)),
    }
    let ended = send_end(conn, job, ending(end, None, &[])).await;
    ended.map(|()| Some(refused))
}

const fn ending<'a>(end: End, message: Option<&'a str>, changes: &'a [Fragment<'a>]) -> Ending<'a> {
    Ending {
        end,
        message,
        changes,
        how: How::AtOnce,
    }
}

async fn send_end<T: Claim, D: Queries>(
    conn: &mut D,
    job: &Claimed<T>,
    ending: Ending<'_>,
) -> Result<(), Error> {
    let is_inside = !matches!(depth(conn), Ok(None));
    let hold = job.hold().ending();
    let answer = job.answer();
    let outcome = if is_inside {
        end_inside(conn, job, ending).await
    } else {
        let is_ended = end_outside(conn, job, ending).await;
        is_ended.map(|is_ended| is_ended.then_some(0))
    };
    let outcome = match outcome {
        Err(Error::Database(error)) if is_connection_lost(&error) => {
            return Err(Error::Database(error));
        }
        Err(Error::Database(error))
            if !is_inside && may_follow_commit(&error) && !is_ours(conn, job).await =>
        {
            return Err(job.unknown(error));
        }
        outcome => outcome,
    };
    answer.arrived();
    let Some(transaction) = outcome? else {
        return Err(job.lost());
    };
    hold.done(is_inside.then(|| Inside::of(conn, transaction)));
    Ok(())
}

/// Returns `true` if the row still has the claim's `locked_by`: its end was not committed.
async fn is_ours<T: Claim, D: Queries>(conn: &mut D, job: &Claimed<T>) -> bool {
    let rows: Result<Vec<SettledRow>, Error> = load(conn, &ManyKeys::settled(&[job])).await;
    let row = rows.ok().and_then(|rows| rows.into_iter().next());
    row.is_some_and(|row| row.holder.as_deref() == Some(job.locked_by()))
}

/// Ends a claim in an open transaction. Returns the transaction's id if the claim was held.
async fn end_inside<T: Claim, D: Queries>(
    conn: &mut D,
    job: &Claimed<T>,
    ending: Ending<'_>,
) -> Result<Option<i64>, Error> {
    let ended: Vec<Transaction> = if needs_witness::<T, D>(conn, ending.end).await? {
        if !end_witnessed(conn, job, ending).await? {
            return Ok(None);
        }
        let transaction = conn.load(diesel::sql_query(transaction_of::<T>())).await;
        transaction.map_err(Error::Database)?
    } else {
        let ending = Ending {
            how: How::Inside,
            ..ending
        };
        load(conn, &statement::<T, ()>(job, &ending)).await?
    };
    Ok(ended.first().map(|Transaction(transaction)| *transaction))
}

/// Ends a claim outside of a transaction. Returns `true` if it was held.
async fn end_outside<T: Claim, D: Queries>(
    conn: &mut D,
    job: &Claimed<T>,
    mut ending: Ending<'_>,
) -> Result<bool, Error> {
    if needs_witness::<T, D>(conn, ending.end).await? {
        return end_witnessed(conn, job, ending).await;
    }
    let at_once = if ending.end == End::Complete && ending.changes.is_empty() {
        change(conn, &statement::<T, Fixed<1>>(job, &ending)).await
    } else {
        change(conn, &statement::<T, ()>(job, &ending)).await
    };
    match at_once {
        Ok(true) => return Ok(true),
        Ok(false) => {}
        Err(Error::Database(error)) if has_waited(&error) => {}
        Err(error) => return Err(error),
    }
    // It is lost or about to expire, or its row is locked.
    ending.how = How::Waiting;
    let is_ended = change(conn, &statement::<T, ()>(job, &ending)).await?;
    if !is_ended && look_for_triggers::<T, D>(conn).await? {
        // A trigger was created after this process looked for them. It may have moved the row.
        return Err(job.unknown(no_answer()));
    }
    Ok(is_ended)
}

fn statement<'a, T: Claim, N: Id>(
    job: &'a Claimed<T>,
    ending: &Ending<'a>,
) -> Statement<'a, T, impl QueryFragment<Pg> + Send + Sync + use<'a, T, N>, N> {
    Statement::end(job.locked_by(), (**job).key().bound(), ending)
}

fn has_waited(error: &DieselError) -> bool {
    matches!(error, DieselError::DatabaseError(DatabaseErrorKind::Unknown, answer)
        if answer.message().contains("advisory:waited"))
}

/// Ends one claim by the statement for many, which returns the claims that were held instead of the
/// number of changed rows.
async fn end_witnessed<T: Claim, D: Queries>(
    conn: &mut D,
    job: &Claimed<T>,
    ending: Ending<'_>,
) -> Result<bool, Error> {
    let ends = [(job, ending.end, ending.message)];
    let statement = ManyKeys::end(&ends, ending.changes, Locked::Wait);
    let rows: Vec<EndedRow> = load(conn, &statement).await?;
    Ok(!rows.is_empty())
}

/// Returns `true` if the number of changed rows does not show that the claim was held, because of a
/// trigger, or if the row's type sets columns at the end. A process looks for triggers once.
async fn needs_witness<T: Claim, D: Queries>(conn: &mut D, end: End) -> Result<bool, Error> {
    Ok(!TypeSets::at(end).is_empty::<T>() || has_triggers::<T, D>(conn).await?)
}

async fn has_triggers<T: Claim, D: Queries>(conn: &mut D) -> Result<bool, Error> {
    let seen = triggers_seen().get(&TypeId::of::<T>()).copied();
    match seen {
        Some(has_triggers) => Ok(has_triggers),
        None => look_for_triggers::<T, D>(conn).await,
    }
}

async fn look_for_triggers<T: Claim, D: Queries>(conn: &mut D) -> Result<bool, Error> {
    #[derive(diesel::QueryableByName)]
    #[diesel(check_for_backend(Pg))]
    struct Triggers {
        #[diesel(sql_type = Bool)]
        has_triggers: bool,
    }
    let answer = conn.load(diesel::sql_query(triggers::<T>())).await;
    let answer: Vec<Triggers> = answer.map_err(Error::Database)?;
    let has_triggers = answer.first().is_some_and(|answer| answer.has_triggers);
    triggers_seen().insert(TypeId::of::<T>(), has_triggers);
    Ok(has_triggers)
}

/// Locks the map from a type of row to `true` if its table has triggers.
fn triggers_seen() -> MutexGuard<'static, HashMap<TypeId, bool>> {
    static TRIGGERS: LazyLock<Mutex<HashMap<TypeId, bool>>> = LazyLock::new(Mutex::default);
    locked(&TRIGGERS)
}

/// Ends claims with one statement, which waits for locked rows for a short time at most. Returns
/// one value for each claim, in order: `true` if it was ended. The caller must end the others one
/// by one, because they are lost, or because their row is locked or refuses the end.
pub(crate) async fn end_all<T: Claim, D: Queries>(
    conn: &mut D,
    ends: &[OneEnd<'_, T>],
) -> Result<Vec<bool>, Error> {
    let mut ended = vec![false; ends.len()];
    // Inside a transaction the statement's `lock_timeout` would stay.
    let is_outside = matches!(depth(conn), Ok(None));
    let mut locked = if is_outside && !has_triggers::<T, D>(conn).await? {
        Locked::Fail
    } else {
        Locked::Skip
    };
    let mut parts: Vec<_> = std::iter::once(0..ends.len()).collect();
    let mut refused = 0;
    while let Some(part) = parts.pop() {
        let asked = &ends[part.clone()];
        let holds: Vec<_> = asked
            .iter()
            .map(|(job, ..)| (job.hold().ending(), job.answer()))
            .collect();
        let answered: Result<Vec<EndedRow>, Error> =
            load(conn, &ManyKeys::end(asked, &[], locked)).await;
        // Each row that is then found to be no longer held may have been ended by this statement.
        let is_unknown = matches!(&answered, Err(Error::Database(error))
            if is_connection_lost(error) || may_follow_commit(error) && !has_waited(error));
        for EndedRow(nth) in answered.as_deref().unwrap_or_default() {
            if let Some(ended) = ended.get_mut(part.start + nth) {
                *ended = true;
            }
        }
        for ((ending, answer), nth) in holds.into_iter().zip(part.clone()) {
            if !is_unknown {
                answer.arrived();
            }
            if ended[nth] {
                ending.done(None);
            }
        }
        match answered {
            Err(Error::Database(error)) if locked == Locked::Fail && is_of_row(&error) => {
                locked = Locked::Skip;
                parts.push(part);
            }
            Err(Error::Database(error)) if is_of_row(&error) => {
                refused += 1;
                if refused == MOST_REFUSED {
                    return if ended.contains(&true) {
                        Ok(ended)
                    } else {
                        Err(Error::Database(error))
                    };
                }
                // One row must not hold up its neighbours.
                let middle = part.start + part.len() / 2;
                if part.len() > 2 {
                    parts.extend([part.start..middle, middle..part.end]);
                }
            }
            answered => drop(answered?),
        }
    }
    Ok(ended)
}
