//! Claims as many rows as the worker has room for, waits if there are none, and gives back what
//! waits for too long.

use super::job::LAST_END;
use super::room::Suspect;
use super::{Settings, Shared, Waiting};
use crate::claim::rows::keep_all;
use crate::claim::run::ReleaseOnDrop;
use crate::claim::sql::{FromPosition, Wanted};
use crate::claim::table::{Claim, MaybePer, ttl};
use crate::claim::take::{position_of, take};
use crate::claim::{Claimed, Error, Event};
use crate::driver::Driver as _;
use crate::error::{is_connection_lost, is_refused_by_citus, may_pass};
use crate::rows::{Borrowed, Pooled, UNANSWERED, may_stick};
use crate::{Connection, Pool, PoolError};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_async::AsyncPgConnection;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

/// The first pause after a failed claim, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];
/// How long a connection, and a claim, may take at first: it waits for no row. The limit doubles
/// with each claim that had no answer.
const ANSWER: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(80)];

/// How long a row waits for a slot at most.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A claim that takes longer asks for the position of its last row, so that the next one can begin
/// there. It costs little beside the claim.
const SLOW: Duration = Duration::from_millis(2);

type Stop<'w> = Pin<Box<dyn Future<Output = ()> + Send + 'w>>;

/// Claims until `stop` is ready.
pub(super) async fn feed<T: Claim, P>(
    settings: &Settings<'_, T, P>,
    mut stop: Stop<'_>,
    shared: &Shared<T, P>,
) -> Result<(), Error>
where
    P: Pool + Clone + Send + 'static,
{
    let (mut is_first, mut pause) = (true, PAUSES[0]);
    let (mut is_fresh, mut answer) = (false, ANSWER[0]);
    let (mut refused, mut is_reached) = (None, true);
    let mut start = Start::new::<T>(settings.poll);
    loop {
        let Some(limit) = unless(&mut stop, until_room(settings, shared)).await else {
            return Ok(());
        };
        // A connection is not waited for any more when the worker stops. A claim on its way is, for
        // some seconds.
        let conn = timeout(answer, connection(settings.pool, is_fresh));
        let conn = match unless(&mut stop, conn).await {
            None => return Ok(()),
            Some(Ok(conn)) => conn.map_err(Error::Pool),
            Some(Err(late)) => Err(Error::Pool(PoolError::new(late))),
        };
        let is_alone = shared.room.held() == 0;
        let suspect = Suspect::try_new::<T>();
        let passes_over = suspect.is_none();
        let asks_position = start.can_advance;
        let from = start.position();
        let is_from_first = from.is_none();
        let wanted = Wanted {
            is_fresh: passes_over,
            from: from.map(|from| from as _),
            ..settings.wanted()
        };
        let asked = Asked {
            limit,
            wanted,
            answer,
            asks_position,
        };
        let taken = match conn {
            Ok(conn) => claim(settings, conn, asked, shared).await,
            Err(error) => Err(error),
        };
        let mut is_rest = false;
        let taken = taken.map(|Taken { claimed, position }| {
            let may_be_more = claimed.len() >= limit as usize;
            start.advance::<T>(position, may_be_more);
            // Where values have limits, a claim of fewer rows has found all that have room. Another
            // one is in vain until a row ends.
            is_rest = T::Per::COLUMN.is_some() && !may_be_more;
            claimed
        });
        if let Err(error) = &taken {
            start.fail(error);
        }
        let taken = taken.and_then(|claimed| wait(settings, claimed, suspect, shared));
        // The pool may hand out another connection that is gone or that refuses the statement each
        // time.
        is_fresh = matches!(&taken, Err(Error::Pool(_) | Error::Database(_))) && !is_fresh;
        answer = match &taken {
            Err(Error::Pool(_)) => (answer * 2).min(ANSWER[1]),
            _ => ANSWER[0],
        };
        // What has come then is released.
        if is_ready(&mut stop).await && taken.is_ok() {
            return Ok(());
        }
        match taken {
            Ok(has_come) => {
                if !std::mem::replace(&mut is_reached, true) {
                    settings.tell(Event::Reconnected);
                }
                (is_first, pause) = (false, PAUSES[0]);
                if (has_come && !is_rest) || !is_from_first {
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
                let now = pause;
                pause = (pause * 2).min(PAUSES[1]);
                if unless(&mut stop, sleep_until(Instant::now() + now))
                    .await
                    .is_none()
                {
                    return Ok(());
                }
                continue;
            }
        }
        if unless(&mut stop, until_woken(settings, shared))
            .await
            .is_none()
        {
            return Ok(());
        }
    }
}

/// Waits until rows are wanted, and returns how many.
async fn until_room<T, P>(settings: &Settings<'_, T, P>, shared: &Shared<T, P>) -> u32
where
    T: Claim,
    P: Pool + Clone + Send + 'static,
{
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
fn wait<T, P>(
    settings: &Settings<'_, T, P>,
    claimed: Vec<Claimed<T>>,
    mut suspect: Option<Suspect>,
    shared: &Shared<T, P>,
) -> Result<bool, Error>
where
    T: Claim,
    P: Pool + Clone + Send + 'static,
{
    if claimed.is_empty() {
        return Ok(false);
    }
    let reach = || Pooled::new(settings.pool.clone());
    for claimed in &claimed {
        if let Some(observer) = &settings.observer {
            claimed.set_observer(observer);
        }
        settings.tell(Event::Acquired(claimed));
    }
    let kept = keep_all(settings.pool.identity(), reach, claimed.clone())?;
    let since = Instant::now();
    let mut last = None;
    let mut waiting = shared.waiting();
    for (claimed, kept) in claimed.into_iter().zip(kept) {
        // It begins when all others have begun.
        let is_suspect = claimed.has_expired_before() && last.is_none();
        let place = shared.place(if is_suspect { suspect.take() } else { None });
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
pub(super) async fn give_back<T, P>(shared: &Shared<T, P>)
where
    T: Claim,
    P: Pool + Clone + Send + 'static,
{
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
            shared.pace().block();
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
async fn until_woken<T, P>(settings: &Settings<'_, T, P>, shared: &Shared<T, P>)
where
    T: Claim,
    P: Pool + Clone + Send + 'static,
{
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

/// Where claims begin in the order: at the first row, or where an earlier claim ended. Then the rows
/// before that one are found when there are no more after it, and at the latest after the time
/// between two looks.
struct Start {
    /// And since when claims do not begin at the first row.
    position: Option<(FromPosition, Instant)>,
    poll: Duration,
    can_advance: bool,
}

impl Start {
    fn new<T: Claim>(poll: Duration) -> Self {
        Self {
            position: None,
            poll,
            can_advance: T::Per::COLUMN.is_none() && FromPosition::is_possible::<T>(),
        }
    }

    fn position(&mut self) -> Option<&FromPosition> {
        self.position
            .take_if(|(_, since)| since.elapsed() >= self.poll);
        self.position.as_ref().map(|(position, _)| position)
    }

    fn advance<T: Claim>(&mut self, position: Option<String>, may_be_more: bool) {
        if !may_be_more || !self.can_advance {
            self.position = None;
        } else if let Some(position) = position {
            let since = self.position.take().map(|(_, since)| since);
            let position = FromPosition::new::<T>(position);
            self.position = Some((position, since.unwrap_or_else(Instant::now)));
        }
    }

    fn fail(&mut self, error: &Error) {
        // The type of a column may have no order in `pg_catalog`.
        let is_of_position = self.position.take().is_some();
        if is_of_position && matches!(error, Error::Database(error) if !is_connection_lost(error)) {
            self.can_advance = false;
        }
    }
}

/// A connection of the pool, or a fresh one outside of it.
enum Claiming<C> {
    Pooled(C),
    Fresh(Box<AsyncPgConnection>),
}

async fn connection<P: Pool>(
    pool: &P,
    is_fresh: bool,
) -> Result<Claiming<P::Connection<'_>>, PoolError> {
    if is_fresh && let Ok(conn) = pool.dedicated().await {
        return Ok(Claiming::Fresh(Box::new(conn)));
    }
    Ok(Claiming::Pooled(pool.connection().await?))
}

/// A claim of a worker.
#[derive(Clone, Copy)]
struct Asked<'a> {
    limit: u32,
    wanted: Wanted<'a>,
    answer: Duration,
    asks_position: bool,
}

/// Its answer.
struct Taken<T: Claim> {
    claimed: Vec<Claimed<T>>,
    /// That of the last row, if the claim was slow and there may be more.
    position: Option<String>,
}

async fn claim<T, P, C>(
    settings: &Settings<'_, T, P>,
    conn: Claiming<C>,
    asked: Asked<'_>,
    shared: &Shared<T, P>,
) -> Result<Taken<T>, Error>
where
    T: Claim,
    P: Pool + Clone + Send + 'static,
    C: Connection,
{
    match conn {
        Claiming::Pooled(conn) => claim_on(settings, conn, asked, shared).await,
        Claiming::Fresh(conn) => claim_on(settings, *conn, asked, shared).await,
    }
}

async fn claim_on<T, P, C>(
    settings: &Settings<'_, T, P>,
    conn: C,
    asked: Asked<'_>,
    shared: &Shared<T, P>,
) -> Result<Taken<T>, Error>
where
    T: Claim,
    P: Pool + Clone + Send + 'static,
    C: Connection,
{
    let mut borrowed = Borrowed::new(conn);
    let Asked {
        limit,
        wanted,
        answer,
        asks_position,
    } = asked;
    let sent = Instant::now();
    let claim = take(borrowed.pg(), &settings.name, limit, wanted);
    let claim = shared.unless_stopped_for(LAST_END, timeout(answer, claim));
    let Some(Ok(taken)) = claim.await else {
        return Err(Error::Pool(PoolError::new("the server did not answer")));
    };
    if let Err(Error::Database(error)) = &taken
        && may_stick(error)
    {
        borrowed.pg().close(false);
    }
    let mut position = None;
    if let Ok(claimed) = &taken
        && asks_position
        && sent.elapsed() >= SLOW
        && claimed.len() >= limit as usize
        && let Some(last) = claimed.last()
    {
        // The rows do not wait for it: without the answer the connection is closed.
        let Ok(answered) = timeout(SLOW * 50, position_of(borrowed.pg(), last)).await else {
            return Ok(Taken {
                claimed: taken?,
                position,
            });
        };
        position = answered.ok().flatten();
    }
    borrowed.record_answer();
    let claimed = taken?;
    Ok(Taken { claimed, position })
}

async fn is_ready(stop: &mut Stop<'_>) -> bool {
    poll_fn(|context| {
        let is_ready = stop.as_mut().poll(context).is_ready();
        if is_ready {
            // It must not be polled again, and is ready from now on.
            *stop = Box::pin(std::future::ready(()));
        }
        Poll::Ready(is_ready)
    })
    .await
}

/// The future's output, or `None` if the worker is stopped first.
async fn unless<F: Future>(stop: &mut Stop<'_>, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| {
        if stop.as_mut().poll(context).is_ready() {
            *stop = Box::pin(std::future::ready(()));
            return Poll::Ready(None);
        }
        future.as_mut().poll(context).map(Some)
    })
    .await
}
