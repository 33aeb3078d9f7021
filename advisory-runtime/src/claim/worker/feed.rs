//! Claims as many rows as the worker has room for, waits if there are none, and gives back what
//! waits for too long.

use super::room::Suspect;
use super::shared::{LAST_END, Shared, Waiting};
use super::start::Start;
use super::{Settings, Source, Stop};
use crate::PoolError;
use crate::claim::rows::{ReleaseOnDrop, keep_all};
use crate::claim::table::{Claim, MaybePer, ttl};
use crate::claim::{Claimed, Error, Event};
use crate::error::{is_connection_lost, is_refused_by_citus, may_pass};
use crate::rows::{Backoff, Reach, UNANSWERED, unless};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

/// The pauses after failed claims.
const BACKOFF: Backoff = Backoff::between(Duration::from_millis(100), Duration::from_secs(10));
/// How long a connection, and a claim, may take at first: it waits for no row. The limit doubles
/// with each claim that had no answer.
const ANSWER: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(80)];

/// How long a row waits for a slot at most.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Claims until `stop` is ready.
pub(super) async fn feed<T: Claim, R: Reach>(
    source: &dyn Source<T, Reach = R>,
    settings: &Settings<'_, T>,
    mut stop: Stop<'_>,
    shared: &Shared<T, R>,
) -> Result<(), Error> {
    let (mut is_first, mut backoff) = (true, BACKOFF);
    let (mut is_fresh, mut answer) = (false, ANSWER[0]);
    let (mut refused, mut is_reached) = (None, true);
    let mut start = Start::new::<T>(settings.poll);
    loop {
        let Some(limit) = unless(stop.as_mut(), until_room(settings, shared)).await else {
            return Ok(());
        };
        // A connection is not waited for any more when the worker stops. A claim on its way is, for
        // some seconds.
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
                let claim = shared.unless_stopped_for(LAST_END, claim);
                match claim.await {
                    Some(Ok(taken)) => taken,
                    _ => Err(Error::Pool(PoolError::new("the server did not answer"))),
                }
            }
            Err(error) => Err(error),
        };
        // Where values have limits, another claim is then in vain until a row ends.
        let is_rest = T::Per::COLUMN.is_some() && matches!(&taken, Ok(taken) if !taken.may_be_more);
        let taken = start.record(&asked, taken);
        let taken = taken.and_then(|claimed| wait(source, settings, claimed, suspect, shared));
        // The pool may hand out another connection that is gone or that refuses the statement each
        // time.
        is_fresh = matches!(&taken, Err(Error::Pool(_) | Error::Database(_))) && !is_fresh;
        answer = match &taken {
            Err(Error::Pool(_)) => (answer * 2).min(ANSWER[1]),
            _ => ANSWER[0],
        };
        // What has come then is released.
        let is_stopped = is_ready(&mut stop).await;
        if is_stopped && taken.is_ok() {
            return Ok(());
        }
        match taken {
            Ok(has_come) => {
                if !std::mem::replace(&mut is_reached, true) {
                    settings.tell(Event::Reconnected);
                }
                (is_first, backoff) = (false, BACKOFF);
                if (has_come && !is_rest) || asked.from.is_some() {
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
async fn until_room<T: Claim, R: Reach>(settings: &Settings<'_, T>, shared: &Shared<T, R>) -> u32 {
    loop {
        let mut ended = pin!(shared.room.ended.notified());
        // The worker's future polls this one too when a body has returned or begins.
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
            // Each number is a statement of its own on each connection, so a few numbers have to
            // do.
            return 1 << wanted.checked_ilog2().unwrap_or(0);
        }
        return wanted;
    }
}

/// Lets claimed rows wait for a free slot, and has them renewed; whether there were any.
fn wait<T: Claim, R: Reach>(
    source: &dyn Source<T, Reach = R>,
    settings: &Settings<'_, T>,
    claimed: Vec<Claimed<T>>,
    mut suspect: Option<Suspect>,
    shared: &Shared<T, R>,
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
    let kept = keep_all(shared.pool, || source.reach(), claimed.clone())?;
    let since = Instant::now();
    let mut last = None;
    let mut waiting = shared.waiting();
    for (claimed, kept) in claimed.into_iter().zip(kept) {
        // It begins when all others have begun.
        let is_suspect = claimed.has_expired_before() && last.is_none();
        let place = shared
            .room
            .place(if is_suspect { suspect.take() } else { None });
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

/// Gives rows back that have waited for too long: another worker may have nothing to do.
pub(super) async fn give_back<T: Claim, R: Reach>(shared: &Shared<T, R>) {
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
        // Which releases them in the background.
        drop(late);
    }
}

/// Whether the server has refused the statement, and not a row been unreadable, the connection
/// lost, or the server read only for a while. For another reason that may pass it must have refused
/// it for some seconds, but a mistake in its text, or a kind of table that Citus refuses, is told
/// at once.
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

/// Waits until there may be a row: for a notification, the end of a row whose value has a limit, or
/// the time of the next look.
async fn until_woken<T: Claim, R: Reach>(settings: &Settings<'_, T>, shared: &Shared<T, R>) {
    let mut woken = pin!(shared.wake.notified());
    let waiting = async {
        loop {
            let mut ended = pin!(shared.room.ended.notified());
            let is_woken = poll_fn(|context| {
                if woken.as_mut().poll(context).is_ready() {
                    return Poll::Ready(true);
                }
                ended.as_mut().poll(context).map(|()| false)
            });
            if is_woken.await
                || T::Per::COLUMN.is_some()
                || (settings.is_until_empty && shared.room.held() == 0)
            {
                return;
            }
        }
    };
    drop(timeout(settings.poll, waiting).await);
}

async fn is_ready(stop: &mut Stop<'_>) -> bool {
    poll_fn(|context| Poll::Ready(stop.as_mut().poll(context).is_ready())).await
}
