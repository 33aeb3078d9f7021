//! The task that renews a claim while somebody works under it.

use super::claimed::Claimed;
use super::finish::renew_on;
use super::table::Claim;
use crate::link::Link;
use crate::{Connection, Error, Pool};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::{sleep_until, timeout_at};

/// Between two renewals, and for one.
const SHORTEST: Duration = Duration::from_millis(10);

/// Renews until it is dropped, or the claim ends.
pub(super) struct Renewal(JoinHandle<()>);

impl Renewal {
    pub(super) fn start<T, P>(pool: &P, job: &Claimed<T>) -> Self
    where
        T: Claim,
        P: Pool + Clone + Send + 'static,
    {
        Self(tokio::spawn(renew_until_lost(pool.clone(), job.share())))
    }

    /// Ready when the claim is not renewed any more.
    pub(super) fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(context).map(drop)
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.abort();
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
        if job.is_finished() || started >= deadline {
            return;
        }
        // So that a connection that answers nothing leaves the time to try another one.
        let patience = (deadline - started) / 2;
        let end = started + patience.max(SHORTEST);
        next = match timeout_at(end.into(), renew(&pool, &job)).await {
            Ok(Ok(())) => started + pause,
            Ok(Err(Error::LockLost { .. })) => return,
            Ok(Err(_)) | Err(_) => {
                Instant::now() + pause.min((deadline - started) / 10).max(SHORTEST)
            }
        };
    }
}

async fn renew<T: Claim, P: Pool>(pool: &P, job: &Claimed<T>) -> Result<(), Error> {
    let mut lent = Unanswered(Some(pool.connection().await?));
    let Some(conn) = &mut lent.0 else {
        return Ok(());
    };
    let renewed = renew_on(conn.pg(), job).await;
    lent.0 = None;
    renewed
}

/// A connection whose statement has no answer yet: dropped so, its pool does not lend it again.
struct Unanswered<C: Connection>(Option<C>);

impl<C: Connection> Drop for Unanswered<C> {
    fn drop(&mut self) {
        if let Some(conn) = &mut self.0 {
            conn.pg().status().set_in_error();
        }
    }
}
