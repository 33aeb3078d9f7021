//! Claims as many rows as the worker has slots for, and waits if there are none.

use super::{Settings, Shared};
use crate::claim::ending::end;
use crate::claim::sql::How;
use crate::claim::table::{Claim, MaybePer};
use crate::claim::take::take_batch;
use crate::claim::{Claimed, Error};
use crate::error::{is_connection_lost, may_pass};
use crate::renewal::{Borrowed, UNANSWERED};
use crate::{Pool, PoolError};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout};

/// The first pause after a failed claim, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];
/// How long a connection, and a claim, may take: it waits for no row.
const ANSWER: Duration = Duration::from_secs(30);

type Stop<'w> = Pin<Box<dyn Future<Output = ()> + Send + 'w>>;

/// Claims until `stop` is ready.
pub(super) async fn feed<'s, T: Claim, P>(
    settings: &Settings<'_, T, P>,
    mut stop: Stop<'_>,
    slots: &'s Semaphore,
    shared: &Shared<'s, T>,
) -> Result<(), Error>
where
    P: Pool + Clone + Send + 'static,
{
    let (mut is_first, mut pause) = (true, PAUSES[0]);
    let mut refused = None;
    loop {
        let Some(slot) = unless(&mut stop, slots.acquire()).await else {
            return Ok(());
        };
        // The semaphore is never closed.
        let mut free: Vec<_> = slot.into_iter().collect();
        while let Ok(slot) = slots.try_acquire() {
            free.push(slot);
        }
        // Each number is a statement of its own on each connection, so a few numbers have to do.
        let limit = 1 << free.len().checked_ilog2().unwrap_or(0);
        // A connection is not waited for any more when the worker stops. A claim on its way is.
        let conn = timeout(ANSWER, settings.pool.connection());
        let conn = match unless(&mut stop, conn).await {
            None => return Ok(()),
            Some(Ok(conn)) => conn.map_err(Error::Pool),
            Some(Err(late)) => Err(Error::Pool(PoolError::new(late))),
        };
        let taken = match conn {
            Ok(conn) => {
                let mut borrowed = Borrowed::new(conn);
                let claim = take_batch(borrowed.pg(), &settings.name, limit, settings.wanted());
                match timeout(ANSWER, claim).await {
                    Ok(taken) => {
                        borrowed.record_answer();
                        taken
                    }
                    Err(late) => Err(Error::Pool(PoolError::new(late))),
                }
            }
            Err(error) => Err(error),
        };
        let is_stopped = is_ready(&mut stop).await;
        let wait = match taken {
            Ok(claimed) if is_stopped => {
                release(settings, &claimed).await;
                return Ok(());
            }
            Ok(claimed) => {
                (is_first, pause) = (false, PAUSES[0]);
                let is_empty = claimed.is_empty();
                shared.claimed().extend(claimed.into_iter().zip(free));
                is_empty.then_some(settings.poll)
            }
            Err(Error::Database(error)) if is_first && is_final(&error, &mut refused) => {
                return Err(Error::Database(error));
            }
            Err(error) => {
                super::job::warn(
                    settings.table,
                    &format_args!(
                        "the worker could not claim, and tries again after {pause:?}: {error}"
                    ),
                );
                drop(free);
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
        };
        if let Some(wait) = wait
            && unless(&mut stop, until_woken(shared, wait)).await.is_none()
        {
            return Ok(());
        }
    }
}

/// Whether the server has refused the statement, and not a row been unreadable, the connection lost, or the server read only for a
/// while. For another reason that may pass it must have refused it for some seconds, but a mistake in its text is told at once.
fn is_final(error: &DieselError, refused: &mut Option<Instant>) -> bool {
    match error {
        DieselError::DeserializationError(_)
        | DieselError::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, _) => false,
        DieselError::DatabaseError(_, answer) if answer.statement_position().is_some() => true,
        error if may_pass(error) => {
            refused.get_or_insert_with(Instant::now).elapsed() >= UNANSWERED
        }
        error => !is_connection_lost(error),
    }
}

/// Waits until there may be a row: for a notification, the end of a work whose value has a limit, or this time.
async fn until_woken<T: Claim>(shared: &Shared<'_, T>, wait: Duration) {
    let mut woken = std::pin::pin!(shared.wake.notified());
    let mut ended = std::pin::pin!(shared.ended.notified());
    let waiting = poll_fn(|context| {
        let is_freed = T::Per::COLUMN.is_some() && ended.as_mut().poll(context).is_ready();
        if is_freed || woken.as_mut().poll(context).is_ready() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    });
    drop(timeout(wait, waiting).await);
}

/// Releases rows that were claimed while the worker was being stopped.
async fn release<T: Claim, P: Pool>(settings: &Settings<'_, T, P>, claimed: &[Claimed<T>]) {
    for job in claimed {
        // Otherwise it expires.
        drop(end(settings.pool, job, How::Release).await);
    }
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
    let mut future = std::pin::pin!(future);
    poll_fn(|context| {
        if stop.as_mut().poll(context).is_ready() {
            *stop = Box::pin(std::future::ready(()));
            return Poll::Ready(None);
        }
        future.as_mut().poll(context).map(Some)
    })
    .await
}
