//! Runs a body under a claim, which a thread renews meanwhile.

use crate::blocking::Pool;
use crate::blocking::reach::Threaded;
use crate::claim::rows::{AnyRows, ClaimReach, ClaimRows, Steps, end_as_returned, keep};
use crate::claim::{Claim, Claimed, Error};
use crate::driver::block_on;
use crate::rows::End;
use std::fmt::Display;

impl ClaimReach for Threaded {
    fn rows(self, steps: Box<dyn Steps<Self::Connection>>) -> AnyRows {
        Box::new(ClaimRows(self, steps))
    }
}

/// Runs a body under a claim, which a thread renews and which ends with the body; like
/// [`crate::claim::run`]. The pool needs one connection besides those of the body.
///
/// # Examples
///
/// ```no_run
/// # #[cfg(feature = "r2d2")]
/// # mod jobs {
/// use advisory_runtime::blocking::{Pool as _, claim};
/// use advisory_runtime::claim::{Claim, End, Error};
/// use diesel::pg::PgConnection;
/// use diesel::r2d2::{ConnectionManager, Pool};
///
/// fn work<Job: Claim>(pool: &Pool<ConnectionManager<PgConnection>>) -> Result<(), Error> {
///     let job = claim::next::<Job>("worker-7").first(&mut pool.connection()?)?;
///     let Some(job) = job else { return Ok(()) };
///     claim::run(pool, &job, End::Fail, || sync(&job))
/// }
/// # fn sync<Job>(_: &Job) -> Result<(), Error> { Ok(()) }
/// # }
/// ```
pub fn run<T, P, R, E>(
    pool: &P,
    job: &Claimed<T>,
    on_err: End,
    body: impl FnOnce() -> Result<R, E>,
) -> Result<R, E>
where
    T: Claim,
    P: Pool + Clone + Send + Sync + 'static,
    E: From<Error> + Display,
{
    // It is renewed until the job has ended.
    let renewal = keep(pool, pool.identity(), Threaded::new, job).map_err(Error::Pool)?;
    let result = body();
    block_on(end_as_returned(renewal, job, on_err, result))
}

/// Runs a body under a claim, which the body or the caller has to finish; like
/// [`crate::claim::renew_while`].
///
/// # Errors
///
/// [`Error::Lost`] if the claim was lost before the body returned and the job was not finished.
/// What the body returns is inside the `Ok`.
pub fn renew_while<T, P, R>(
    pool: &P,
    job: &Claimed<T>,
    body: impl FnOnce() -> R,
) -> Result<R, Error>
where
    T: Claim,
    P: Pool + Clone + Send + Sync + 'static,
{
    let renewal = keep(pool, pool.identity(), Threaded::new, job)?;
    let result = body();
    drop(renewal);
    if !job.is_finished() && (job.hold().is_lost() || job.hold().is_expired()) {
        return Err(job.gone());
    }
    Ok(result)
}
