//! The task that renews a claim while somebody works under it.

use super::claimed::{Claimed, End};
use super::finish::renew_on;
use super::lent::Lent;
use super::table::Claim;
use crate::pool::{self, BESIDE};
use crate::{Connection, Error, Pool};
use std::pin::Pin;
use std::task::Context;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::{sleep_until, timeout, timeout_at};

/// Between two renewals, and for one.
const SHORTEST: Duration = Duration::from_millis(10);

/// Renews until it is dropped, or the claim ends.
pub(super) struct Renewal {
    task: JoinHandle<()>,
    is_ended: bool,
}

impl Renewal {
    pub(super) fn start<T, P>(pool: &P, job: &Claimed<T>) -> Self
    where
        T: Claim,
        P: Pool + Clone + Send + 'static,
    {
        Self {
            task: tokio::spawn(renew_until_lost(pool.clone(), job.share())),
            is_ended: false,
        }
    }

    /// Whether the claim is not renewed any more. Who asks is woken when that changes.
    pub(super) fn is_ended(&mut self, context: &mut Context<'_>) -> bool {
        self.is_ended |= !self.is_ended && Pin::new(&mut self.task).poll(context).is_ready();
        self.is_ended
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A task of its own, so that work which keeps its thread busy for long does not keep the claim from being renewed.
async fn renew_until_lost<T, P>(pool: P, job: Claimed<T>)
where
    T: Claim,
    P: Pool,
{
    // A renewal that comes too late would be none; one after the other without a pause would keep a connection busy.
    let pause = T::RENEW.min(job.ttl() / 2).max(SHORTEST);
    let mut next = Instant::now() + pause;
    loop {
        sleep_until(next.into()).await;
        let (started, deadline) = (Instant::now(), job.deadline());
        if job.end() == End::Yes || job.is_overdue() || started >= deadline {
            return;
        }
        // So that a connection that answers nothing leaves the time to try another one.
        let patience = (deadline - started) / 2;
        let end = started + patience.max(SHORTEST);
        next = match timeout_at(end.into(), renew(&pool, &job, pause)).await {
            Ok(Ok(())) => started + pause,
            Ok(Err(Error::LockLost { .. })) => return,
            Ok(Err(_)) | Err(_) => {
                Instant::now() + pause.min((deadline - started) / 10).max(SHORTEST)
            }
        };
    }
}

/// On a connection that the pool lends at once, else on one of its own, and where there are none on what the pool lends.
async fn renew<T: Claim, P: Pool>(
    pool: &P,
    job: &Claimed<T>,
    pause: Duration,
) -> Result<(), Error> {
    if let Ok(Ok(conn)) = timeout(pool::patience(pause), pool.connection()).await {
        return renew_over(conn, job).await;
    }
    {
        let _one = BESIDE.acquire().await;
        if let Ok(conn) = pool.dedicated().await {
            return match renew_over(conn, job).await {
                // What the pool sets on its connections this one has not, so it may not see the row: a `search_path`, a role, the
                // transaction of a test.
                Err(Error::LockLost { .. }) => {
                    Err(Error::Pool("it lent none for a renewal".into()))
                }
                renewed => renewed,
            };
        }
    }
    renew_over(pool.connection().await?, job).await
}

async fn renew_over<T: Claim>(conn: impl Connection, job: &Claimed<T>) -> Result<(), Error> {
    let mut lent = Lent::new(conn);
    let Some(conn) = lent.pg() else {
        return Ok(());
    };
    let renewed = renew_on(conn, job).await;
    lent.answered();
    renewed
}
