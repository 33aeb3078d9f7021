//! On which connection does a statement go that must not wait for the pool, and what if no answer comes?

use crate::driver::Driver;
use crate::pool::Pool;
use crate::{Connection, Error, cancel};
use diesel_async::AsyncPgConnection;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// After this time without an answer, the server counts as not reached.
pub(crate) const UNANSWERED: Duration = Duration::from_secs(10);

/// Connections opened beside the pools of this process at one time: few, because a server has few.
static DEDICATED: Semaphore = Semaphore::const_new(2);

/// A statement in one round trip, which says whether the row was still held.
pub(crate) trait Step: Sync {
    fn send(
        &self,
        conn: &mut AsyncPgConnection,
    ) -> impl Future<Output = Result<bool, Error>> + Send;
}

/// What an answer on a connection is worth that the pool has not set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dedicated {
    Trusted,
    /// A refusal can mean that the connection does not see the row: another `search_path`, another role.
    Doubted,
    /// Only the pool's connection sees the row: a test's transaction is open on it.
    Useless,
}

/// Sends the step on a connection of the pool, and if the pool is exhausted on a dedicated one. `every` is the time between two
/// renewals, and `left` the time until the row expires.
pub(crate) async fn round_trip<P: Pool>(
    pool: &P,
    step: &impl Step,
    dedicated: Dedicated,
    every: Duration,
    left: Duration,
) -> Result<bool, Error> {
    let answer = UNANSWERED.min(left / 2).max(Duration::from_millis(5));
    let soon = match dedicated {
        Dedicated::Useless => answer,
        _ => (every / 8).clamp(Duration::from_millis(5), Duration::from_millis(500)),
    };
    let failed = match timeout(soon, pool.connection()).await {
        Ok(Ok(conn)) => match timeout(answer, send(conn, step)).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => error,
            Err(late) => Error::Pool(Box::new(late)),
        },
        Ok(Err(error)) => error,
        Err(late) => Error::Pool(Box::new(late)),
    };
    if dedicated == Dedicated::Useless {
        return Err(failed);
    }
    let beside = async {
        let _permit = DEDICATED.acquire().await;
        match pool.dedicated().await {
            Ok(conn) => match send(conn, step).await {
                Ok(false) if dedicated == Dedicated::Doubted => Err(failed),
                answered => answered,
            },
            // A pool that opens none: wait for one of its own.
            Err(_) => send(pool.connection().await?, step).await,
        }
    };
    match timeout(answer.max(Duration::from_millis(100)), beside).await {
        Ok(answered) => answered,
        Err(late) => Err(Error::Pool(Box::new(late))),
    }
}

async fn send<C: Connection>(conn: C, step: &impl Step) -> Result<bool, Error> {
    let mut borrowed = Borrowed::new(conn);
    let Some(conn) = borrowed.pg() else {
        return Ok(false);
    };
    let answered = step.send(conn).await;
    borrowed.answered();
    answered
}

/// A connection whose statement may get no answer. Unless [`answered`](Self::answered) is called, its drop cancels the statement,
/// so that no session goes on waiting for a row, and marks the connection broken, so that its pool closes it.
pub(crate) struct Borrowed<C: Connection>(Option<C>);

impl<C: Connection> Borrowed<C> {
    pub(crate) const fn new(conn: C) -> Self {
        Self(Some(conn))
    }

    pub(crate) fn pg(&mut self) -> Option<&mut AsyncPgConnection> {
        self.0.as_mut().map(Connection::pg)
    }

    pub(crate) fn answered(mut self) {
        self.0 = None;
    }
}

impl<C: Connection> Drop for Borrowed<C> {
    fn drop(&mut self) {
        let Some(conn) = self.pg() else { return };
        conn.status().set_in_error();
        cancel::send(conn.cancel_token());
    }
}
