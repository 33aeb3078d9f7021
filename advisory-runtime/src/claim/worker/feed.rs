//! Claims as many rows as the worker has room for, waits if there are none, and releases rows that
//! have waited too long for a slot.

use super::room::Suspect;
use super::shared::{Shared, Waiting};
use super::start::Start;
use super::{Settings, Source, Stop};
use crate::PoolError;
use crate::claim::optional_column::MaybePer;
use crate::claim::rows::ReleaseOnDrop;
use crate::claim::table::{Claim, ttl};
use crate::claim::{Claimed, Error, Event};
use crate::error::{is_connection_lost, is_refused_by_citus, may_pass};
use crate::rows::{Backoff, UNANSWERED, unless};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

/// The pauses after failed claims.
const BACKOFF: Backoff = Backoff::between(Duration::from_millis(100), Duration::from_secs(10));
/// The shortest and the longest timeout of a connection and of a claim, which waits for no row. It
/// doubles after each claim without an answer.
const ANSWER: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(80)];
/// The longest time that a row waits for a slot.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Claims until `stop` is ready.
pub(super) async fn feed<T: Claim, S: Source<T>>(
    source: &S,
    settings: &Settings<'_, T>,
    mut stop: Stop<'_>,
    shared: &Shared<T>,
) -> Result<(), Error> {
    let (mut is_first, mut backoff) = (true, BACKOFF);
    let (mut is_fresh, mut answer) = (false, ANSWER[0]);
    let (mut refused, mut is_reached) = (None, true);
    let mut start = Start::new::<T>(settings.poll);
    loop {
        let Some(limit) = unless(stop.as_mut(), until_room(settings, shared)).await else {
            return Ok(());
        };
        // A stop cancels the wait for a connection. A claim that is sent gets some seconds more.
        let conn = timeout(answer, source.connection(is_fresh));
        let conn = match unless(stop.as_mut(), conn).await {
            None => return Ok(()),
            Some(Ok(conn)) => conn.map_err(Error::Pool),
            Some(Err(late)) => Err(Error::Pool(PoolError::new(late))),
        };
        let is_alone = shared.room.held() == 0;
        let suspect = Suspect::try_new::<T>();
        let passes_over = suspect.is_none();
        let asked = start.ask(limit, passes_over);
        let taken = match conn {
            Ok(conn) => {
                let claim = timeout(answer, conn(asked.clone()));
                match shared.unless_stopped(claim).await {
                    Some(Ok(taken)) => taken,
                    _ => Err(Error::Pool(PoolError::new("the server did not answer"))),
                }
            }
            Err(error) => Err(error),
        };
        // With a limit for each value, the next claim finds nothing until a row ends.
        let is_rest = T::Per::COLUMN.is_some() && matches!(&taken, Ok(taken) if !taken.may_be_more);
        let taken = start.record(&asked, taken);
        let taken = taken.and_then(|claimed| wait(source, settings, claimed, suspect, shared));
        // The pool's other connections may be lost too, or refuse the statement too.
        is_fresh = matches!(&taken, Err(Error::Pool(_) | Error::Database(_))) && !is_fresh;
        answer = match &taken {
            Err(Error::Pool(_)) => (answer * 2).min(ANSWER[1]),
            _ => ANSWER[0],
        };
        // Rows that arrive after the stop are released.
        let is_stopped = poll_fn(|context| Poll::Ready(stop.as_mut().poll(context).is_ready()));
        let is_stopped = is_stopped.await;
        if is_stopped && taken.is_ok() {
            return Ok(());
        }
        match taken {
            Ok(has_come) => {
                if !std::mem::replace(&mut is_reached, true) {
                    settings.tell(Event::Reconnected);
                }
                (is_first, backoff) = (false, BACKOFF);
                if (has_come && !is_rest) || asked.position.is_some() {
                    continue;
                }
                if !has_come && settings.is_until_empty && is_alone && !passes_over {
                    return Ok(());
                }
            }
            Err(Error::Database(error)) if is_first && is_final(&error, &mut refused) => {
                return Err(Error::Database(error));
            }
            Err(error) => {
                settings.tell(match &error {
                    Error::Pool(_) => Event::NoConnection(&error),
                    _ => Event::Refused(&error),
                });
                is_reached = false;
                let over = sleep_until(Instant::now() + backoff.pause());
                if is_stopped || unless(stop.as_mut(), over).await.is_none() {
                    return Ok(());
                }
                continue;
            }
        }
        if unless(stop.as_mut(), until_woken(settings, shared))
            .await
            .is_none()
        {
            return Ok(());
        }
    }
}

/// Waits until rows are wanted, and returns how many.
async fn until_room<T: Claim>(settings: &Settings<'_, T>, shared: &Shared<T>) -> u32 {
    loop {
        let mut ended = pin!(shared.room.ended.notified());
        // The worker's future also polls this one when a body returns or begins.
        let wanted = poll_fn(|context| match shared.wanted(settings) {
            0 => ended.as_mut().poll(context).map(|()| None),
            wanted => Poll::Ready(Some(wanted)),
        })
        .await;
        let Some(wanted) = wanted else {
            continue;
        };
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        if T::Per::COLUMN.is_some() {
            // Each limit is a separate prepared statement on each connection, so only powers of two
            // are used.
            return 1 << wanted.checked_ilog2().unwrap_or(0);
        }
        return wanted;
    }
}

/// Adds claimed rows to those that wait for a slot, and has the keeper renew them. Returns `true`
/// if there were any.
fn wait<T: Claim, S: Source<T>>(
    source: &S,
    settings: &Settings<'_, T>,
    claimed: Vec<Claimed<T>>,
    mut suspect: Option<Suspect>,
    shared: &Shared<T>,
) -> Result<bool, Error> {
    if claimed.is_empty() {
        return Ok(false);
    }
    for claimed in &claimed {
        if let Some(observer) = &settings.observer {
            claimed.set_observer(observer);
        }
        settings.tell(Event::Acquired(claimed));
    }
    let kept = source.keep(shared.pool, &claimed)?;
    let since = Instant::now();
    let mut last = None;
    let mut waiting = shared.waiting();
    for (claimed, kept) in claimed.into_iter().zip(kept) {
        // A suspect begins after all others.
        let is_suspect = claimed.has_expired_before() && last.is_none();
        let place = shared.room.place(suspect.take_if(|_| is_suspect));
        let row = Waiting {
            claimed,
            kept: ReleaseOnDrop::new(kept, place),
            since,
        };
        if is_suspect {
            last = Some(row);
        } else {
            waiting.push_back(row);
        }
    }
    waiting.extend(last);
    drop(waiting);
    shared.has_come.notify_one();
    Ok(true)
}

/// Releases rows that have waited too long for a slot, because another worker may be idle.
pub(super) async fn give_back<T: Claim>(shared: &Shared<T>) {
    let longest = (ttl::<T>() / 4).min(LONGEST_WAIT);
    loop {
        let first = shared.waiting().front().map(|row| row.since);
        let Some(since) = first else {
            shared.has_come.notified().await;
            continue;
        };
        sleep_until(since + longest).await;
        let mut waiting = shared.waiting();
        let late = waiting.iter().take_while(|row| row.since <= since).count();
        let late: Vec<_> = waiting.drain(..late).collect();
        drop(waiting);
        if !late.is_empty() {
            shared.pace().is_blocked = true;
        }
        // Dropping the rows releases them in the background.
        drop(late);
    }
}

/// Returns `true` if the worker must return the error, because a later claim would fail too. That
/// is so at once for a mistake in the statement and for a kind of table that Citus does not
/// support. A reason that may pass becomes final after some seconds. A row that cannot be read, a
/// lost connection and a server that is read only are never final.
fn is_final(error: &DieselError, refused: &mut Option<Instant>) -> bool {
    match error {
        DieselError::DeserializationError(_)
        | DieselError::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, _) => false,
        DieselError::DatabaseError(_, answer) if answer.statement_position().is_some() => true,
        error if is_refused_by_citus(error) => true,
        error if may_pass(error) => {
            refused.get_or_insert_with(Instant::now).elapsed() >= UNANSWERED
        }
        error => !is_connection_lost(error),
    }
}

/// Waits for a notification, for the end of a row if values have limits, or for the next poll.
async fn until_woken<T: Claim>(settings: &Settings<'_, T>, shared: &Shared<T>) {
    let mut woken = pin!(shared.wake.notified());
    let waiting = async {
        loop {
            let ended = unless(woken.as_mut(), shared.room.ended.notified()).await;
            if ended.is_none()
                || T::Per::COLUMN.is_some()
                || (settings.is_until_empty && shared.room.held() == 0)
            {
                return;
            }
        }
    };
    drop(timeout(settings.poll, waiting).await);
}
