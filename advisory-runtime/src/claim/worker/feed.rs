//! Claims as many rows as the worker has room for, waits if there are none, and releases rows that
//! have waited too long for a slot.

use super::held_rows::ExpiredRowPermit;
use super::position::{ClaimAnswer, ClaimArgs, StartPosition};
use super::shared::{Shared, Waiting};
use super::source::ClaimFn;
use super::{Settings, Source, Stop};
use crate::PoolError;
use crate::claim::optional_column::MaybePer;
use crate::claim::rows::ReleaseOnDrop;
use crate::claim::table::{Claim, ttl};
use crate::claim::{Claimed, Error, Event};
use crate::error::{is_connection_lost, is_refused_by_citus, may_pass};
use crate::rows::{Backoff, UNANSWERED, no_connection, unless};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

/// The pauses after failed claims.
const BACKOFF: Backoff = Backoff::between(Duration::from_millis(100), Duration::from_secs(10));
/// The shortest and the longest timeout of a connection and of a claim, which waits for no row. It
/// doubles after each claim without a connection or an answer.
const TIMEOUTS: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(80)];
/// The longest time that a stopped worker waits for the answer to a claim.
const LAST_ANSWER: Duration = Duration::from_secs(5);
/// The longest time that a row waits for a slot.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Claims until `stop` is ready. A round waits until rows are wanted, checks out a connection,
/// sends a claim, and records its answer, which decides when the next round begins.
pub(super) async fn feed<T: Claim, S: Source<T>>(
    source: &S,
    settings: &Settings<'_, T>,
    mut stop: Stop<'_>,
    shared: &Shared<T>,
) -> Result<(), Error> {
    let mut feed = Feed::new(source, settings, shared);
    loop {
        let Some(limit) = unless(stop.as_mut(), until_wanted(settings, shared)).await else {
            return Ok(());
        };
        // A stop cancels the wait for a connection.
        let Some(claim_fn) = unless(stop.as_mut(), feed.check_out()).await else {
            return Ok(());
        };
        let is_idle = shared.held_rows.count() == 0;
        // `None` if this process runs a row with an expired claim.
        let permit = ExpiredRowPermit::try_new::<T>();
        let args = feed.position.claim_args(limit, permit.is_none());
        let answer = feed.send(claim_fn, &args, &mut stop).await;
        let next = feed.record(&args, permit, is_idle, answer);
        // Rows that arrive after the stop are released.
        let is_stopped = shared.stopping.is_closed()
            || poll_fn(|context| Poll::Ready(stop.as_mut().poll(context).is_ready())).await;
        match next {
            Ok(_) if is_stopped => return Ok(()),
            Ok(next) => {
                feed.report_success();
                match next {
                    Next::Claim => {}
                    Next::Wait => {
                        let woken = until_woken(settings, shared);
                        if unless(stop.as_mut(), woken).await.is_none() {
                            return Ok(());
                        }
                    }
                    Next::Return => return Ok(()),
                }
            }
            Err(error) => {
                let pause = feed.report_failure(error)?;
                let backoff_ended = sleep_until(Instant::now() + pause);
                if is_stopped || unless(stop.as_mut(), backoff_ended).await.is_none() {
                    return Ok(());
                }
            }
        }
    }
}

/// The steps of a round, and what they depend on from earlier rounds.
struct Feed<'f, 'w, T: Claim, S> {
    source: &'f S,
    settings: &'f Settings<'w, T>,
    shared: &'f Shared<T>,
    position: StartPosition,
    /// Opens a connection outside the pool for the next claim.
    opens_connection: bool,
    /// The timeout of the next connection and of the next claim.
    timeout: Duration,
    backoff: Backoff,
    /// `true` once a claim has succeeded. Until then, the worker can return the error of a claim.
    has_succeeded: bool,
    has_failed: bool,
    /// When the server first refused a claim for a reason that may pass.
    refused_since: Option<Instant>,
}

/// What follows a claim that succeeded.
enum Next {
    /// The next claim, at once.
    Claim,
    /// The next claim, when there may be new rows.
    Wait,
    /// The end of the worker, because no row can be claimed.
    Return,
}

impl<'f, 'w, T: Claim, S: Source<T>> Feed<'f, 'w, T, S> {
    fn new(source: &'f S, settings: &'f Settings<'w, T>, shared: &'f Shared<T>) -> Self {
        Self {
            source,
            settings,
            shared,
            position: StartPosition::new::<T>(settings.poll),
            opens_connection: false,
            timeout: TIMEOUTS[0],
            backoff: BACKOFF,
            has_succeeded: false,
            has_failed: false,
            refused_since: None,
        }
    }

    async fn check_out(&self) -> Result<ClaimFn<'f, T>, Error> {
        let conn = self.source.connection(self.opens_connection);
        match timeout(self.timeout, conn).await {
            Ok(conn) => conn.map_err(Error::Pool),
            Err(_) => Err(Error::Pool(no_connection(self.timeout))),
        }
    }

    /// Sends a claim, and returns its answer. After a stop it waits for [`LAST_ANSWER`] at most.
    async fn send(
        &self,
        claim_fn: Result<ClaimFn<'f, T>, Error>,
        args: &ClaimArgs,
        stop: &mut Stop<'_>,
    ) -> Result<ClaimAnswer<T>, Error> {
        let mut claim = pin!(timeout(self.timeout, claim_fn?(args.clone())));
        let answer = if let Some(answer) = unless(stop.as_mut(), claim.as_mut()).await {
            answer
        } else {
            // No other body starts, and the grace begins.
            self.shared.stopping.close();
            timeout(LAST_ANSWER, claim).await.flatten()
        };
        answer.unwrap_or_else(|_| Err(Error::Pool(PoolError::new("the server did not answer"))))
    }

    /// Adds the claimed rows to those that wait for a slot, and decides when and how the next claim
    /// is sent. `is_idle` is `true` if the worker held no row before this one.
    fn record(
        &mut self,
        args: &ClaimArgs,
        permit: Option<ExpiredRowPermit>,
        is_idle: bool,
        answer: Result<ClaimAnswer<T>, Error>,
    ) -> Result<Next, Error> {
        // With a limit for each value, the next claim finds nothing until a row ends.
        let is_exhausted =
            T::Per::COLUMN.is_some() && matches!(&answer, Ok(answer) if !answer.may_be_more);
        let claimed = self.position.record(args, answer);
        let enqueued = claimed.and_then(|claimed| self.enqueue(claimed, permit));
        // The pool's other connections may be lost too, or refuse the statement too.
        self.opens_connection =
            matches!(&enqueued, Err(Error::Pool(_) | Error::Database(_))) && !self.opens_connection;
        self.timeout = match &enqueued {
            Err(Error::Pool(_)) => (self.timeout * 2).min(TIMEOUTS[1]),
            _ => TIMEOUTS[0],
        };
        let has_rows = enqueued?;
        Ok(if (has_rows && !is_exhausted) || args.position.is_some() {
            Next::Claim
        } else if !has_rows && self.settings.is_until_empty && is_idle && !args.skips_expired {
            Next::Return
        } else {
            Next::Wait
        })
    }

    /// Adds claimed rows to those that wait for a slot, and has the keeper renew them. Returns
    /// `true` if there were any.
    fn enqueue(
        &self,
        claimed: Vec<Claimed<T>>,
        mut permit: Option<ExpiredRowPermit>,
    ) -> Result<bool, Error> {
        if claimed.is_empty() {
            return Ok(false);
        }
        for claimed in &claimed {
            if let Some(observer) = &self.settings.observer {
                claimed.set_observer(observer);
            }
            self.settings.tell(Event::Acquired(claimed));
        }
        let renewals = self.source.keep(&claimed)?;
        let since = Instant::now();
        let mut last = None;
        let mut waiting = self.shared.waiting();
        for (claimed, renewal) in claimed.into_iter().zip(renewals) {
            // A row that had an expired claim begins after all others.
            let had_expired = claimed.has_expired_before() && last.is_none();
            let count = self.shared.held_rows.add(permit.take_if(|_| had_expired));
            let row = Waiting {
                claimed,
                renewal: ReleaseOnDrop::new(renewal, count),
                since,
            };
            if had_expired {
                last = Some(row);
            } else {
                waiting.push_back(row);
            }
        }
        waiting.extend(last);
        drop(waiting);
        self.shared.rows_added.notify_one();
        Ok(true)
    }

    fn report_success(&mut self) {
        if std::mem::take(&mut self.has_failed) {
            self.settings.tell(Event::Reconnected);
        }
        self.has_succeeded = true;
        self.backoff = BACKOFF;
    }

    /// Returns the pause before the next claim, or the error if the worker must return it.
    fn report_failure(&mut self, error: Error) -> Result<Duration, Error> {
        match error {
            Error::Database(error)
                if !self.has_succeeded && is_final(&error, &mut self.refused_since) =>
            {
                return Err(Error::Database(error));
            }
            Error::Pool(_) => self.settings.tell(Event::NoConnection(&error)),
            _ => self.settings.tell(Event::Refused(&error)),
        }
        self.has_failed = true;
        Ok(self.backoff.pause())
    }
}

/// Waits until rows are wanted, and returns how many.
async fn until_wanted<T: Claim>(settings: &Settings<'_, T>, shared: &Shared<T>) -> u32 {
    loop {
        let mut ended = pin!(shared.held_rows.ended.notified());
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

/// Releases rows that have waited too long for a slot, because another worker may be idle.
pub(super) async fn give_back<T: Claim>(shared: &Shared<T>) {
    let longest = (ttl::<T>() / 4).min(LONGEST_WAIT);
    loop {
        let first = shared.waiting().front().map(|row| row.since);
        let Some(since) = first else {
            shared.rows_added.notified().await;
            continue;
        };
        sleep_until(since + longest).await;
        let mut waiting = shared.waiting();
        let late = waiting.iter().take_while(|row| row.since <= since).count();
        let late: Vec<_> = waiting.drain(..late).collect();
        drop(waiting);
        if !late.is_empty() {
            shared.body_times().has_long_body = true;
        }
        // Dropping the rows releases them in the background.
        drop(late);
    }
}

/// Returns `true` if the worker must return the error, because a later claim would fail too. That
/// is so at once for a mistake in the statement and for a kind of table that Citus does not
/// support. A reason that may pass becomes final after some seconds. A row that cannot be read, a
/// lost connection and a server that is read only are never final.
fn is_final(error: &DieselError, refused_since: &mut Option<Instant>) -> bool {
    match error {
        DieselError::DeserializationError(_)
        | DieselError::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, _) => false,
        DieselError::DatabaseError(_, answer) if answer.statement_position().is_some() => true,
        error if is_refused_by_citus(error) => true,
        error if may_pass(error) => {
            refused_since.get_or_insert_with(Instant::now).elapsed() >= UNANSWERED
        }
        error => !is_connection_lost(error),
    }
}

/// Waits for a notification, for the end of a row if values have limits, or for the next poll.
async fn until_woken<T: Claim>(settings: &Settings<'_, T>, shared: &Shared<T>) {
    let mut woken = pin!(shared.wake.notified());
    let waiting = async {
        loop {
            let ended = unless(woken.as_mut(), shared.held_rows.ended.notified()).await;
            if ended.is_none()
                || T::Per::COLUMN.is_some()
                || (settings.is_until_empty && shared.held_rows.count() == 0)
            {
                return;
            }
        }
    };
    drop(timeout(settings.poll, waiting).await);
}
