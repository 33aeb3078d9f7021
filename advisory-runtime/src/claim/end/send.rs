//! Sends the statements that end claims.

use crate::claim::Error;
use crate::claim::claimed::{Claimed, index_of, no_answer};
use crate::claim::conflicts::{change, load};
use crate::claim::mutex::locked;
use crate::claim::sql::ends::{self, OneEnd, end_of};
use crate::claim::sql::{Form, Fragment, Locked, Statement, sets_columns, settled, text};
use crate::claim::table::{Claim, LONGEST};
use crate::driver::{Queries, depth};
use crate::error::{is_connection_lost, may_follow_commit};
use crate::rows::{Change, End, Inside};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::sql_types::{Bool, Untyped};
use std::any::TypeId;
use std::borrow::Cow;
use std::collections::HashMap;
use std::slice;
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
    if let Change::SetMessage { pause: Some(pause) } = end.change()
        && pause > LONGEST
    {
        let too_long =
            "a pause of more than ten years is not possible: write a shorter one, or `claim::fail`";
        let too_long = DieselError::QueryBuilderError(too_long.into());
        return Err(Error::Database(too_long));
    }
    let is_outside = matches!(depth(conn), Ok(None));
    match send_end(conn, (job, end, Some(&text(message))), changes).await {
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
    let refused = match send_end(conn, (job, end, Some(message)), &[]).await {
        Err(Error::Database(refused)) if can_repeat && is_of_row(&refused) => refused,
        ended => return ended.map(|()| None),
    };
    let cut = cut(message, &refused);
    match send_end(conn, (job, end, Some(&cut)), &[]).await {
        Err(Error::Database(again)) if is_of_row(&again) => {}
        ended => return ended.map(|()| Some(refused)),
    }
    let ended = send_end(conn, (job, end, None), &[]).await;
    ended.map(|()| Some(refused))
}

async fn send_end<T: Claim, D: Queries>(
    conn: &mut D,
    one: OneEnd<'_, T>,
    changes: &[Fragment<'_>],
) -> Result<(), Error> {
    let (job, ..) = one;
    let is_inside = !matches!(depth(conn), Ok(None));
    let form = form_of_one::<T, D>(conn, one, is_inside).await?;
    let hold = job.hold().ending();
    let answer = job.answer();
    let outcome = if is_inside {
        let statement = match form {
            Some(form) => Statement::of::<T>(form).changes(changes).about(job),
            None => ends::end(&[one], changes, Locked::WaitInside),
        };
        load(conn, &statement).await.map(|ids| ids.first().copied())
    } else {
        let is_ended = end_outside(conn, one, changes, form).await;
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
    let rows = load(conn, &settled(slice::from_ref(job))).await.ok();
    let row: Option<(i64, Option<String>, Option<String>)> = rows.and_then(|mut rows| rows.pop());
    row.is_some_and(|(.., holder)| holder.as_deref() == Some(job.locked_by()))
}

/// Returns the statement that ends one claim without the arrays of `end_all.sql`, if one can.
async fn form_of_one<T: Claim, D: Queries>(
    conn: &mut D,
    (_, end, _): OneEnd<'_, T>,
    is_inside: bool,
) -> Result<Option<Form>, Error> {
    let end = end_of::<T>(end);
    let form = match (end.change(), is_inside) {
        (Change::SetMessage { .. }, _) | (Change::Delete, true) => return Ok(None),
        (Change::Set, true) => Form::EndInside(end),
        (Change::Set | Change::Delete, false) => Form::EndAtOnce(end),
    };
    // A trigger can hide from the changed rows that the claim was held.
    let can = !sets_columns::<T>(end) && !has_triggers::<T, D>(conn).await?;
    Ok(can.then_some(form))
}

/// Ends a claim outside of a transaction, first by `form`. Returns `true` if it was held.
async fn end_outside<T: Claim, D: Queries>(
    conn: &mut D,
    one: OneEnd<'_, T>,
    changes: &[Fragment<'_>],
    form: Option<Form>,
) -> Result<bool, Error> {
    let (job, ..) = one;
    let mut has_found_none = false;
    if let Some(form) = form {
        let ended = if form == Form::EndAtOnce(End::Complete) && changes.is_empty() {
            let statement = Statement::<Untyped, T, 2>::of::<T>(form);
            change(conn, &statement.about(job)).await
        } else {
            let statement = Statement::<Untyped>::of::<T>(form).changes(changes);
            change(conn, &statement.about(job)).await
        };
        match ended {
            Ok(true) => return Ok(true),
            Ok(false) => has_found_none = true,
            Err(Error::Database(error)) if has_waited(&error) => {}
            Err(error) => return Err(error),
        }
    }
    // It has a message, it is lost or about to expire, or its row is locked.
    let ended: Vec<i64> = load(conn, &ends::end(&[one], changes, Locked::Wait)).await?;
    let is_doubtful = has_found_none || (form.is_some() && ended.is_empty());
    if is_doubtful && look_for_triggers::<T, D>(conn).await? {
        // A trigger was created after this process looked for them. It may have moved the row, or
        // kept it as it was.
        return Err(job.unknown(no_answer()));
    }
    Ok(!ended.is_empty())
}

fn has_waited(error: &DieselError) -> bool {
    matches!(error, DieselError::DatabaseError(DatabaseErrorKind::Unknown, answer)
        if answer.message().contains("advisory:waited"))
}

/// Returns `true` if the table has triggers that can change what an end writes. A process looks for
/// them once.
async fn has_triggers<T: Claim, D: Queries>(conn: &mut D) -> Result<bool, Error> {
    let seen = triggers_seen().get(&TypeId::of::<T>()).copied();
    match seen {
        Some(has_triggers) => Ok(has_triggers),
        None => look_for_triggers::<T, D>(conn).await,
    }
}

async fn look_for_triggers<T: Claim, D: Queries>(conn: &mut D) -> Result<bool, Error> {
    let found: Vec<bool> = load(conn, &Statement::<Bool>::of::<T>(Form::Triggers)).await?;
    let has_triggers = found.contains(&true);
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
        let answered: Result<Vec<i64>, Error> = load(conn, &ends::end(asked, &[], locked)).await;
        // Each row that is then found to be no longer held may have been ended by this statement.
        let is_unknown = matches!(&answered, Err(Error::Database(error))
            if is_connection_lost(error) || may_follow_commit(error) && !has_waited(error));
        for nth in answered.as_deref().unwrap_or_default() {
            if let Some(ended) = ended[part.clone()].get_mut(index_of(*nth)) {
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

/// The length of a text that a column has refused without saying how much it takes.
const CUT: usize = 100;

/// Returns `true` if the row's content was refused: a text that does not fit, a `CHECK`, a trigger.
pub(in crate::claim) fn is_of_row(error: &DieselError) -> bool {
    let DieselError::DatabaseError(kind, answer) = error else {
        return false;
    };
    match kind {
        DatabaseErrorKind::CheckViolation
        | DatabaseErrorKind::NotNullViolation
        | DatabaseErrorKind::UniqueViolation
        | DatabaseErrorKind::ForeignKeyViolation => true,
        // A mistake in the statement has a position.
        DatabaseErrorKind::Unknown => answer.statement_position().is_none(),
        _ => false,
    }
}

/// Cuts a text to the length that the server says the column takes. If it does not say, cuts it to
/// [`CUT`] characters and replaces those that an encoding may lack.
fn cut<'m>(message: &'m str, refused: &DieselError) -> Cow<'m, str> {
    let stated = match refused {
        DieselError::DatabaseError(_, answer) => longest(answer.message()),
        _ => None,
    };
    let Some(longest) = stated else {
        let short = message.chars().take(CUT);
        let plain = short.map(|letter| if letter.is_ascii() { letter } else { '?' });
        return plain.collect::<String>().into();
    };
    let end = message.char_indices().nth(longest);
    message[..end.map_or(message.len(), |(end, _)| end)].into()
}

/// The length in `value too long for type character varying(50)`, which no translation changes.
fn longest(refusal: &str) -> Option<usize> {
    let (_, rest) = refusal.rsplit_once('(')?;
    rest.split_once(')')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{cut, longest};
    use diesel::result::Error as DieselError;

    #[test]
    fn every_language_says_how_long_a_text_may_be() {
        assert_eq!(longest("Wert zu lang für Typ character(7)"), Some(7));
        assert_eq!(longest("new row violates check constraint \"short\""), None);
    }

    #[test]
    fn a_text_is_cut_to_what_every_encoding_has() {
        let long = "é".repeat(500);
        assert_eq!(cut(&long, &DieselError::NotFound), "?".repeat(100));
        assert_eq!(cut("why", &DieselError::NotFound), "why");
    }
}
