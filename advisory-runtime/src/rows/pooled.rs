//! A pool of diesel-async's connections.

use super::answer::RowError;
use super::reach::{
    Answering, Reach, Step, Times, first_answer, is_of_the_row, may_stick, no_connection,
    unanswered,
};
use super::{Task, unless};
use crate::driver::{Driver, timeout};
use crate::{Connection, Pool, PoolError};
use diesel_async::AsyncPgConnection;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinHandle;

/// How long a connection outside the pool may take to open, at least.
const OPENING: Duration = Duration::from_secs(1);

/// A pool, the runtime on which its connections live, and the keeper's own connections: one for
/// renewals and one for the rest, since an end can wait for a locked row.
pub(crate) struct Pooled {
    pool: Arc<dyn AnyPool>,
    runtime: Option<Handle>,
    renewing: Mutex<Dedicated>,
    ending: Mutex<Dedicated>,
}

/// A connection outside the pool, which stays open for the next statement.
#[derive(Default)]
struct Dedicated {
    open: Option<Box<AsyncPgConnection>>,
    /// Continues after its statement is dropped, so that the next one can use the connection.
    opening: Option<JoinHandle<Opened>>,
}

type OnPg<A, E> = dyn Step<AsyncPgConnection, A, E>;
type Opened = Result<AsyncPgConnection, PoolError>;
type Opening<'p, C> = Pin<Box<dyn Future<Output = Result<C, PoolError>> + Send + 'p>>;

/// A [`Pool`] of any type, so that what uses it is compiled once.
trait AnyPool: Send + Sync {
    fn any_connection(&self) -> Opening<'_, Borrowed<'_>>;

    fn any_dedicated(&self) -> Opening<'_, AsyncPgConnection>;
}

impl<P: Pool + Send> AnyPool for P {
    fn any_connection(&self) -> Opening<'_, Borrowed<'_>> {
        Box::pin(async { Ok(Borrowed::new(self.connection().await?)) })
    }

    fn any_dedicated(&self) -> Opening<'_, AsyncPgConnection> {
        Box::pin(self.dedicated())
    }
}

impl Dedicated {
    /// The answer. A connection that was open before gets half of the time, so that a new one can
    /// answer if the network has lost those that are open.
    async fn send<A, E: RowError>(
        &mut self,
        pool: &Arc<dyn AnyPool>,
        step: &OnPg<A, E>,
        answer: Duration,
    ) -> Result<A, E> {
        if let Some(mut conn) = self.open.take() {
            let answered = send_on(Borrowed::new(&mut *conn), step, answer / 2).await;
            if !matches!(&answered, Err(error) if !is_of_the_row(error)) {
                self.open = Some(conn);
                return answered;
            }
        }
        let opening = self.opening.get_or_insert_with(|| {
            let (pool, limit) = (Arc::clone(pool), answer.max(OPENING));
            let opening: Opening<'_, _> = Box::pin(async move {
                let opened = timeout(limit, pool.any_dedicated()).await;
                let late = || format!("the server did not accept it within {limit:.1?}");
                opened.unwrap_or_else(|| Err(PoolError::dedicated(late())))
            });
            tokio::spawn(opening)
        });
        let opened = opening.await;
        self.opening = None;
        let mut conn = Box::new(opened.map_err(PoolError::new).flatten()?);
        let answered = send_on(Borrowed::new(&mut *conn), step, answer).await;
        if !matches!(&answered, Err(error) if !is_of_the_row(error)) {
            self.open = Some(conn);
        }
        answered
    }
}

impl Pooled {
    /// To be called on the program's runtime.
    pub(crate) fn new<P: Pool + Send + 'static>(pool: P) -> Self {
        Self {
            pool: Arc::new(pool),
            runtime: Handle::try_current().ok(),
            renewing: Mutex::default(),
            ending: Mutex::default(),
        }
    }

    /// The answer on a connection of the pool, which is asked for on the program's runtime.
    async fn on_pool<A: Send + 'static, E: RowError>(
        &self,
        step: Arc<OnPg<A, E>>,
        answer: Duration,
    ) -> Result<A, E> {
        let (mut reply, answered) = oneshot::channel();
        if let Some(runtime) = &self.runtime {
            let pool = Arc::clone(&self.pool);
            let task: Task = Box::pin(async move {
                // Once nobody waits for the answer, this no longer waits for a connection.
                let conn = unless(pin!(reply.closed()), pool.any_connection()).await;
                let result = match conn {
                    None => return,
                    Some(Err(error)) => Err(error.into()),
                    Some(Ok(conn)) => send_on(conn, &*step, answer).await,
                };
                drop(reply.send(result));
            });
            drop(runtime.spawn(task));
        } else {
            drop(reply);
        }
        let answered = answered.await;
        answered.unwrap_or_else(|gone| Err(PoolError::new(gone).into()))
    }

    /// The answer on a connection outside the pool. A renewal does not wait for another one's
    /// answer, which may take as long as the longest ttl allows.
    async fn on_own<A, E: RowError>(&self, step: &OnPg<A, E>, times: Times) -> Result<A, E> {
        let Times {
            fallback_after,
            answer,
        } = times;
        if !step.is_renewal() {
            let mut own = self.ending.lock().await;
            return own.send(&self.pool, step, answer).await;
        }
        match timeout(fallback_after, self.renewing.lock()).await {
            Some(mut own) => own.send(&self.pool, step, answer).await,
            None => Dedicated::default().send(&self.pool, step, answer).await,
        }
    }

    /// The answer on a connection of the pool, from the caller's own runtime.
    async fn send_on_caller<A, E: RowError>(
        &self,
        step: Arc<OnPg<A, E>>,
        times: Times,
    ) -> Result<A, E> {
        // If this future is dropped while the pool checks a connection, the pool can close that
        // connection, which ends a test's transaction.
        let fallback_after = times.on_pool(step.is_of_test());
        match timeout(fallback_after, self.pool.any_connection()).await {
            Some(conn) => send_on(conn?, &*step, times.answer).await,
            None => Err(no_connection(fallback_after).into()),
        }
    }
}

impl Reach for Pooled {
    type Connection = AsyncPgConnection;

    const IS_ASYNC: bool = true;

    fn send<A: Send + 'static, E: RowError>(
        &self,
        on_caller: bool,
        step: Arc<OnPg<A, E>>,
        times: Times,
    ) -> Answering<'_, A, E> {
        if on_caller {
            return Box::pin(self.send_on_caller(step, times));
        }
        Box::pin(async move {
            let pooled = self.on_pool(Arc::clone(&step), times.answer);
            first_answer(&*step, times, pooled, self.on_own(&*step, times)).await
        })
    }
}

async fn send_on<A, E: RowError>(
    mut borrowed: Borrowed<'_>,
    step: &OnPg<A, E>,
    answer: Duration,
) -> Result<A, E> {
    let answered = timeout(answer, step.send(borrowed.pg())).await;
    let Some(answered) = answered else {
        return Err(unanswered(answer).into());
    };
    match &answered {
        Err(error) if error.database().is_some_and(may_stick) => borrowed.pg().close(false),
        _ => {}
    }
    borrowed.record_answer();
    answered
}

/// A connection of any type that waits for an answer. If it is dropped before the answer, it
/// cancels the statement and ends the session, so that a late cancel request cannot reach another
/// statement.
pub(crate) struct Borrowed<'p> {
    conn: Box<dyn AnyConnection + 'p>,
    is_answered: bool,
}

trait AnyConnection: Send {
    fn any_pg(&mut self) -> &mut AsyncPgConnection;
}

impl<C: Connection + Send> AnyConnection for C {
    fn any_pg(&mut self) -> &mut AsyncPgConnection {
        self.pg()
    }
}

impl<'p> Borrowed<'p> {
    pub(crate) fn new(conn: impl Connection + Send + 'p) -> Self {
        Self {
            conn: Box::new(conn),
            is_answered: false,
        }
    }

    pub(crate) fn pg(&mut self) -> &mut AsyncPgConnection {
        self.conn.any_pg()
    }

    pub(crate) const fn record_answer(&mut self) {
        self.is_answered = true;
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.pg().close(true);
        }
    }
}
