//! How locks are asked for, in either scope.

use crate::finish::inside;
use crate::guard::{Held, Phase, Place, Scope};
use crate::holding::held_by_this_task;
use crate::kept::{self, Standing};
use crate::link::{Link, depth, enter};
use crate::prepared;
use crate::refusal::{Refused, refused, take_back, undo};
use crate::sql::{self, Around, Prepared};
use crate::taken::Taken;
use crate::trail::Trail;
use crate::{Error, Isolation, Request, Wait, order};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Opens a transaction that holds the locks.
pub(crate) async fn begin<O: ?Sized, L: Link>(
    owner: &mut O,
    place: Place<O, L>,
    request: Request,
) -> Result<Held<'_, O, L>, Error> {
    let trail = request.trail("xact");
    followed(trail, begun(owner, place, request).await)
}

async fn begun<O: ?Sized, L: Link>(
    owner: &mut O,
    place: Place<O, L>,
    request: Request,
) -> Result<Held<'_, O, L>, Error> {
    let mut held = held(owner, place, Scope::Xact, &request)?;
    held.pg().settle().await;
    refuse_self_deadlock(&mut held, &request).await?;
    note_order(&mut held, &request).await;
    let token = held.token;
    match held.outer {
        None if request.isolation == Isolation::ReadCommitted => {
            let sent = send_shortest(&mut held, &request, sql::begin_prepared, sql::begin).await;
            sent.map_err(Refused::error)?;
        }
        None => {
            let message = sql::hand_over(token, &request);
            if let Err(refused) = send(&mut held, &request, &message).await {
                return Err(Box::pin(take_back(held, refused)).await);
            }
        }
        Some(outer) => {
            let message = sql::begin_nested(outer, token, &request, false);
            let mut sent = send(&mut held, &request, &message).await;
            if let Err(Refused { error, .. }) = &sent
                && matches!(error, Error::StaleSnapshot { .. })
            {
                // Without harm where this transaction has held the keys since before its snapshot.
                let message = sql::begin_nested(outer, token, &request, true);
                sent = send(&mut held, &request, &message).await;
            }
            sent.map_err(Refused::error)?;
        }
    }
    enter(held.pg()).map_err(Error::Database)?;
    Ok(held)
}

/// Takes session-level locks.
pub(crate) async fn acquire<O: ?Sized, L: Link>(
    owner: &mut O,
    place: Place<O, L>,
    request: Request,
) -> Result<Held<'_, O, L>, Error> {
    let trail = request.trail("session");
    followed(trail, taken(owner, place, request).await)
}

fn followed<O: ?Sized, L: Link>(
    mut trail: Trail,
    held: Result<Held<'_, O, L>, Error>,
) -> Result<Held<'_, O, L>, Error> {
    match held {
        Ok(mut held) => {
            trail.acquired(held.waited);
            let depth = match held.scope {
                Scope::Xact => Some(inside(held.outer)),
                Scope::Session => None,
            };
            held.standing.held(depth);
            held.trail = Some(trail);
            Ok(held)
        }
        Err(error) => {
            trail.refused(&error);
            Err(error)
        }
    }
}

async fn taken<O: ?Sized, L: Link>(
    owner: &mut O,
    place: Place<O, L>,
    request: Request,
) -> Result<Held<'_, O, L>, Error> {
    let mut held = held(owner, place, Scope::Session, &request)?;
    held.pg().settle().await;
    refuse_self_deadlock(&mut held, &request).await?;
    note_order(&mut held, &request).await;
    let in_full = match held.around() {
        Around::Nothing => sql::acquire,
        Around::TestTransaction => sql::acquire_in_test,
    };
    let sent = send_shortest(&mut held, &request, sql::acquire_prepared, in_full).await;
    if let Err(refused) = sent {
        return Err(Box::pin(take_back(held, refused)).await);
    }
    Ok(held)
}

/// Checks what can be known without the server.
fn held<'o, O: ?Sized, L: Link>(
    owner: &'o mut O,
    place: Place<O, L>,
    scope: Scope,
    request: &Request,
) -> Result<Held<'o, O, L>, Error> {
    let mut held = Held::new(owner, place, scope, next_token(), request);
    let lock = held.lock;
    if request.keys.is_empty() {
        let (lock, slice) = (lock.text(), "keys");
        return Err(Error::NoKeys { lock, slice });
    }
    let conn = held.pg();
    let outer = match depth(conn) {
        Ok(Some(outer)) => Some(outer),
        Ok(None) if !conn.is_broken() => None,
        _ => return Err(Error::BrokenConnection { lock: lock.text() }),
    };
    // A transaction that a test began is, to the code under test, none.
    let is_inside = outer.is_some_and(|outer| outer > NonZeroU32::MIN || conn.is_broken());
    let needs_outside = scope == Scope::Session
        || request.refuses_nested
        || request.isolation != Isolation::ReadCommitted;
    if is_inside && needs_outside {
        return Err(Error::InTransaction { lock: lock.text() });
    }
    held.outer = outer;
    // In a test's transaction the level is the test's own, and there is nothing to hand over.
    held.is_handed_over &= outer.is_none();
    if cfg!(debug_assertions) {
        let (address, taken) = (held.address(), Taken::new(held.token, request));
        held.standing = Standing::asked(address, taken);
    }
    Ok(held)
}

/// In debug builds: waiting for what this task itself holds on another connection would never end.
async fn refuse_self_deadlock<O: ?Sized, L: Link>(
    held: &mut Held<'_, O, L>,
    request: &Request,
) -> Result<(), Error> {
    if !cfg!(debug_assertions) || request.budget() == Wait::Never {
        return Ok(());
    }
    let keys = held_by_this_task(held.address(), request);
    if keys.is_empty() {
        return Ok(());
    }
    // The same number may be held in another database.
    let question = sql::held_elsewhere(&keys);
    let answer = held.pg().ask(&question).await.map_err(Error::Database)?;
    if answer.is_some_and(|count| count != "0") {
        return Err(Error::SelfDeadlock {
            lock: held.lock.text(),
        });
    }
    Ok(())
}

/// In debug builds: under which locks this one is asked for.
async fn note_order<O: ?Sized, L: Link>(held: &mut Held<'_, O, L>, request: &Request) {
    if !cfg!(debug_assertions) {
        return;
    }
    let address = held.address();
    let mut left = kept::doubtful(address);
    if !left.is_empty() {
        // Without a transaction nothing is left; and what a test's transaction keeps, the program would not.
        let may_be = held.outer.is_some() && held.pg().is_broken();
        let (held, gone) = if may_be {
            Box::pin(still_held(held, left)).await
        } else {
            (Vec::new(), left)
        };
        kept::forget(address, &gone);
        left = held;
    }
    if request.budget() != Wait::Never
        && let Some(taken) = held.standing.taken()
    {
        order::asked(Some(address), &left, taken);
    }
}

/// Which of the locks this session still holds, and which it does not.
async fn still_held<O: ?Sized, L: Link>(
    held: &mut Held<'_, O, L>,
    doubtful: Vec<Arc<Taken>>,
) -> (Vec<Arc<Taken>>, Vec<Arc<Taken>>) {
    let locks: Vec<_> = doubtful
        .iter()
        .map(|taken| (taken.keys().collect(), taken.mode))
        .collect();
    let answer = held.pg().ask(&sql::held_here(&locks)).await;
    // A letter each. Where the transaction has failed there is no answer, and no lock to come either.
    let answer = answer.ok().flatten().unwrap_or_default();
    let mut letters = answer.chars();
    doubtful
        .into_iter()
        .partition(|_| letters.next() == Some('1'))
}

/// Sends a begin or an acquisition: by statements that the session has prepared where it can be told from others, and where
/// it turns out to have none by the same `in_full`.
async fn send_shortest<O: ?Sized, L: Link>(
    held: &mut Held<'_, O, L>,
    request: &Request,
    prepared: fn(u64, &Request, Prepared) -> String,
    in_full: fn(u64, &Request) -> String,
) -> Result<(), Refused> {
    let (token, is_session) = (held.token, held.scope == Scope::Session);
    if held.outer.is_none()
        && let Some(needed) = Prepared::needed(request, is_session)
        && let Some(session) = held.pg().session()
        && let Some(missing) = prepared::missing(session, needed)
    {
        let message = prepared(token, request, missing);
        if missing != Prepared::default() {
            // Already now: they stand before the wait for the lock, which can be refused or dropped.
            prepared::has(session, needed);
        }
        match send(held, request, &message).await {
            Err(refused) if refused.is_by_name() => prepared::loses(session),
            sent => {
                held.is_prepared = true;
                return sent;
            }
        }
    }
    let message = in_full(token, request);
    send(held, request, &message).await
}

/// Sends the message.
async fn send<O: ?Sized, L: Link>(
    held: &mut Held<'_, O, L>,
    request: &Request,
    message: &str,
) -> Result<(), Refused> {
    held.phase = Phase::Waiting;
    let started = held.started;
    let is_try = request.budget() == Wait::Never;
    let is_session = held.scope == Scope::Session || held.is_handed_over;
    let mut all = String::new();
    let sent = if is_try {
        all = sql::step_of_all(held.token, request, is_session);
        held.pg().execute_and_ask(message, &all).await
    } else {
        held.pg().execute(message).await.map(|()| Ok(None))
    };
    held.waited = started.elapsed() + request.queued;
    let source = match sent {
        Ok(step) if is_try => {
            let missed = match step {
                Ok(step) if step.as_deref() == Some(&all) => {
                    held.phase = Phase::Held;
                    held.acquired_at = Instant::now();
                    return Ok(());
                }
                Ok(_) => Error::NotAvailable {
                    lock: held.lock.text(),
                },
                // What it got is not known, such as after a `DEALLOCATE ALL`.
                Err(source) => Error::Database(source),
            };
            return Err(Box::pin(undo(held, is_session, missed)).await);
        }
        Ok(_) => {
            held.phase = Phase::Held;
            held.acquired_at = Instant::now();
            return Ok(());
        }
        Err(source) => source,
    };
    // Boxed, as all that is rare, so that a call's future is no larger than what it does when nothing goes wrong.
    Err(Box::pin(refused(held, request, source)).await)
}

/// A number that no other transaction of this session can have.
fn next_token() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
