//! Runs work under a claim, which a thread renews meanwhile.

use crate::PoolError;
use crate::blocking::{Connection, Pool};
use crate::claim::{Claim, Claimed, EndAttempts, Error, How, OnErr, every, text};
use crate::claim::{finish_unless_ended, is_open_on, renew_on};
use crate::driver::block_on;
use crate::renewal::{End, pause};
use std::fmt::Display;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Works under a claim: a thread renews it, and it ends with the work; as [`crate::claim::run`].
///
/// Blocking work cannot be dropped. If the claim is lost meanwhile, the work runs to its end, and its result is refused.
///
/// # Locking
///
/// As [`crate::claim::run`], on connections of the pool only: the pool needs one besides those of the work.
///
/// # Errors
///
/// As [`crate::claim::run`]. [`Error::Lost`] also if the work returned too late.
///
/// # Examples
///
/// ```no_run
/// # #[cfg(feature = "r2d2")]
/// # mod jobs {
/// use advisory_runtime::blocking::{Pool as _, claim};
/// use advisory_runtime::claim::{Claim, Error, OnErr};
/// use diesel::pg::PgConnection;
/// use diesel::r2d2::{ConnectionManager, Pool};
///
/// fn work<Job: Claim>(pool: &Pool<ConnectionManager<PgConnection>>) -> Result<(), Error> {
///     let job = claim::next::<Job, _>(&mut pool.connection()?, "worker-7")?;
///     let Some(job) = job else { return Ok(()) };
///     claim::run(pool, &job, OnErr::Fail, || sync(&job))
/// }
/// # fn sync<Job>(_: &Job) -> Result<(), Error> { Ok(()) }
/// # }
/// ```
pub fn run<T, P, R, E>(
    pool: &P,
    job: &Claimed<T>,
    on_err: OnErr,
    work: impl FnOnce() -> Result<R, E>,
) -> Result<R, E>
where
    T: Claim,
    P: Pool + Clone + Send + 'static,
    E: From<Error> + Display,
{
    // The renewal goes on until the job has ended.
    let _renewal = Renewal::start(pool, job)?;
    match work() {
        Ok(result) => {
            end(pool, job, How::Complete)?;
            Ok(result)
        }
        Err(error) => {
            let message = error.to_string();
            // The work's own error counts, whether or not the claim could be ended.
            drop(end(pool, job, on_err.how::<T>(&text(&message))));
            Err(error)
        }
    }
}

/// Works under a claim as [`run`] does, but leaves it to the work or the caller to finish the job; as [`crate::claim::renew_while`].
///
/// # Locking
///
/// As [`run`].
///
/// # Errors
///
/// [`Error::Lost`] if the claim was lost before the work returned and the job was not finished. What the work returns is inside the
/// `Ok`.
///
/// # Examples
///
/// ```no_run
#[doc = example_of_jobs!()]
/// use advisory_runtime::blocking::claim;
/// use diesel::r2d2::{ConnectionManager, Pool};
/// use diesel::PgConnection;
///
/// fn export(pool: &Pool<ConnectionManager<PgConnection>>, job: &Claimed<Job>) -> Result<Vec<i64>, Error> {
///     claim::renew_while(pool, job, || vec![job.id] /* slow work */)
/// }
/// ```
pub fn renew_while<T, P, R>(
    pool: &P,
    job: &Claimed<T>,
    work: impl FnOnce() -> R,
) -> Result<R, Error>
where
    T: Claim,
    P: Pool + Clone + Send + 'static,
{
    let renewal = Renewal::start(pool, job)?;
    let result = work();
    drop(renewal);
    if !job.is_finished() && (job.tenure().is_lost() || job.tenure().is_expired()) {
        return Err(job.gone());
    }
    Ok(result)
}

fn end<T: Claim, P: Pool>(pool: &P, job: &Claimed<T>, how: How<'_>) -> Result<(), Error> {
    let mut tries = EndAttempts::of(job);
    loop {
        let outcome = if job.tenure().end() == End::Done {
            Ok(())
        } else {
            let attempt =
                |conn: &mut P::Connection| block_on(finish_unless_ended(conn.pg(), job, how));
            on_pool(pool, attempt)
        };
        match tries.after(outcome) {
            ControlFlow::Continue(again) => wait_until(again),
            ControlFlow::Break(result) => return result,
        }
    }
}

fn on_pool<P: Pool, R>(
    pool: &P,
    step: impl FnOnce(&mut P::Connection) -> Result<R, Error>,
) -> Result<R, Error> {
    step(&mut pool.connection()?)
}

#[allow(
    clippy::disallowed_methods,
    reason = "not a test: there is nothing to wait for but the time"
)]
fn wait_until(time: Instant) {
    thread::sleep(time.saturating_duration_since(Instant::now()));
}

/// A thread that renews a claim until this value is dropped.
struct Renewal {
    _stop: Sender<()>,
}

impl Renewal {
    fn start<T, P>(pool: &P, job: &Claimed<T>) -> Result<Self, Error>
    where
        T: Claim,
        P: Pool + Clone + Send + 'static,
    {
        let (stop, stopped) = channel();
        let (pool, job) = (pool.clone(), job.share());
        let thread = thread::Builder::new().name("advisory-claim".into());
        thread
            .spawn(move || renew_until_lost(&pool, &job, &stopped))
            .map_err(PoolError::new)?;
        Ok(Self { _stop: stop })
    }
}

fn renew_until_lost<T: Claim, P: Pool>(pool: &P, job: &Claimed<T>, stopped: &Receiver<()>) {
    let (tenure, every) = (job.tenure(), every::<T>());
    let pause = pause(every);
    let left = job.deadline().saturating_duration_since(Instant::now());
    let mut wait = every.min(left / 2);
    loop {
        if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        wait = match tenure.end() {
            End::Done => return,
            // The open transaction has the row locked, so nobody else can take it.
            End::Inside(since) => {
                let is_open = on_pool(pool, |conn| block_on(is_open_on(conn.pg(), job)));
                is_open.map_or(pause, |is_open| {
                    tenure.settle(since, !is_open);
                    Duration::ZERO
                })
            }
            _ if tenure.is_lost() || tenure.is_expired() => break,
            _ => match on_pool(pool, |conn| block_on(renew_on(conn.pg(), job))) {
                Ok(true) => {
                    let planned = (Instant::now() + every).into();
                    let next = tenure.next_renewal(planned, every).into_std();
                    next.saturating_duration_since(Instant::now())
                }
                Ok(false) if matches!(tenure.end(), End::Inside(_)) => Duration::ZERO,
                Ok(false) => break,
                Err(_) => pause,
            },
        };
    }
    tenure.lose();
}
