//! Finds a connection for a statement that must not wait long for the pool, and bounds the wait for its answer.

use super::UNANSWERED;
use crate::driver::Driver;
use crate::pool::Pool;
use crate::{Connection, PoolError};
use diesel_async::AsyncPgConnection;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The connections that this process may open beside its pools at one time.
static DEDICATED: Semaphore = Semaphore::const_new(2);

/// A statement that tells whether the row was still held, in one round trip.
pub(crate) trait RenewalStep: Sync {
    /// The product's error.
    type Error: From<PoolError> + Send;

    fn send(
        &self,
        conn: &mut AsyncPgConnection,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send;
}

/// How far to trust the answer on a connection opened beside the pool, which the pool has not set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DedicatedAnswer {
    Trusted,
    /// A refusal may mean that the connection does not see the row, because of its `search_path` or its role.
    Doubted,
    /// Only the pool's connection sees the row, in the open transaction of a test.
    Useless,
}

/// Sends the step on a connection of the pool or, if the pool is exhausted, on one opened beside it. `every` is the time between two
/// renewals, `left` the time until the row expires.
pub(crate) async fn round_trip<P: Pool, S: RenewalStep>(
    pool: &P,
    step: &S,
    dedicated: DedicatedAnswer,
    every: Duration,
    left: Duration,
) -> Result<bool, S::Error> {
    let answer = UNANSWERED.min(left / 2).max(Duration::from_millis(5));
    let soon = match dedicated {
        DedicatedAnswer::Useless => answer,
        _ => (every / 8).clamp(Duration::from_millis(5), Duration::from_millis(500)),
    };
    let failed = match timeout(soon, pool.connection()).await {
        Ok(Ok(conn)) => match timeout(answer, send(conn, step)).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => error,
            Err(late) => PoolError::new(late).into(),
        },
        Ok(Err(error)) => error.into(),
        Err(late) => PoolError::new(late).into(),
    };
    if dedicated == DedicatedAnswer::Useless {
        return Err(failed);
    }
    let beside = async {
        let permit = DEDICATED.acquire().await;
        if let Ok(conn) = pool.dedicated().await {
            return match send(conn, step).await {
                Ok(false) if dedicated == DedicatedAnswer::Doubted => Err(failed),
                answered => answered,
            };
        }
        // A pool that cannot open one: wait for one of its own.
        drop(permit);
        send(pool.connection().await?, step).await
    };
    match timeout(answer.max(Duration::from_millis(100)), beside).await {
        Ok(answered) => answered,
        Err(late) => Err(PoolError::new(late).into()),
    }
}

async fn send<C: Connection, S: RenewalStep>(conn: C, step: &S) -> Result<bool, S::Error> {
    let mut borrowed = Borrowed::new(conn);
    let answered = step.send(borrowed.pg()).await;
    borrowed.record_answer();
    answered
}

/// A connection that waits for an answer. If it is dropped before the answer, it cancels the statement, so that the session does not
/// continue to wait for a row, and ends the session, so that a late cancel request cannot reach another statement.
pub(crate) struct Borrowed<C: Connection> {
    conn: C,
    is_answered: bool,
}

impl<C: Connection> Borrowed<C> {
    pub(crate) const fn new(conn: C) -> Self {
        let is_answered = false;
        Self { conn, is_answered }
    }

    pub(crate) fn pg(&mut self) -> &mut AsyncPgConnection {
        self.conn.pg()
    }

    pub(crate) fn record_answer(mut self) {
        self.is_answered = true;
    }
}

impl<C: Connection> Drop for Borrowed<C> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.conn.pg().close(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DedicatedAnswer, RenewalStep, round_trip};
    use crate::PoolError;
    use crate::pool::Pool;
    use diesel_async::AsyncPgConnection;
    use std::future::pending;
    use std::sync::Mutex;
    use std::time::Duration;
    use tokio::time::Instant;

    /// An exhausted pool that notes when it is asked for a connection beside it, and opens none.
    struct Exhausted(Instant, Mutex<Vec<Duration>>);

    impl Pool for Exhausted {
        type Connection<'p> = AsyncPgConnection;

        async fn connection(&self) -> Result<AsyncPgConnection, PoolError> {
            pending().await
        }

        async fn dedicated(&self) -> Result<AsyncPgConnection, PoolError> {
            self.1.lock().unwrap().push(self.0.elapsed());
            Err(PoolError::dedicated("none"))
        }
    }

    struct Unsent;

    impl RenewalStep for Unsent {
        type Error = PoolError;

        async fn send(&self, _: &mut AsyncPgConnection) -> Result<bool, PoolError> {
            Ok(true)
        }
    }

    /// When it opens a connection beside the pool, and when it gives up.
    async fn given_up(dedicated: DedicatedAnswer, every: u64, left: u64) -> (Vec<u128>, u128) {
        let pool = Exhausted(Instant::now(), Mutex::default());
        let millis = Duration::from_millis;
        let answer = round_trip(&pool, &Unsent, dedicated, millis(every), millis(left)).await;
        answer.unwrap_err();
        let opened = pool.1.into_inner().unwrap();
        let opened = opened.iter().map(Duration::as_millis).collect();
        (opened, pool.0.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn an_exhausted_pool_is_passed_by_in_an_eighth_of_the_interval() {
        use DedicatedAnswer::{Doubted, Trusted, Useless};
        for dedicated in [Trusted, Doubted] {
            let at = |every, left| given_up(dedicated, every, left);
            assert_eq!(at(800, 4_000).await, (vec![100], 2_100));
            assert_eq!(at(60_000, 60_000).await, (vec![500], 10_500));
        }
        assert_eq!(given_up(Useless, 800, 4_000).await, (vec![], 2_000));
    }
}
