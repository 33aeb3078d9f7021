//! Statements on a pool of blocking connections. Each runs on a short-lived thread, so a statement
//! without an answer stops nothing else.

use super::{Connection as _, Pool};
use crate::PoolError;
use crate::driver::{Driver as _, block_on};
use crate::rows::{Answering, Reach, RowError, Step, Times, first_answer, may_stick, unanswered};
use diesel::PgConnection;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

type OnPg<A, E> = dyn Step<PgConnection, A, E>;
type Statement = Box<dyn FnOnce(&mut PgConnection) + Send>;

/// A connection on a thread that waits for one statement.
pub(super) struct OnThread(mpsc::Sender<Statement>);

impl OnThread {
    /// Gets a connection of the pool. If `opens_connection`, opens one outside the pool instead, if
    /// the pool can. If the caller has stopped waiting, the connection returns to the pool at once.
    pub(super) async fn connect(
        pool: Arc<dyn AnyPool>,
        opens_connection: bool,
    ) -> Result<Self, PoolError> {
        let (connected, connection) = oneshot::channel();
        start(move || {
            if opens_connection && let Ok(mut conn) = pool.any_dedicated() {
                return serve(&mut conn, connected);
            }
            pool.serve(connected);
        })?;
        connection.await.map_err(PoolError::new)?
    }

    /// Runs a statement to its end, even if nobody waits for it.
    pub(super) fn send(self, statement: impl FnOnce(&mut PgConnection) + Send + 'static) {
        // The thread waits for it.
        drop(self.0.send(Box::new(statement)));
    }

    pub(super) async fn answer<A: Send + 'static>(
        self,
        statement: impl FnOnce(&mut PgConnection) -> A + Send + 'static,
    ) -> Result<A, PoolError> {
        let (reply, answered) = oneshot::channel();
        self.send(move |conn| drop(reply.send(statement(conn))));
        answered.await.map_err(PoolError::new)
    }
}

type Connected = oneshot::Sender<Result<OnThread, PoolError>>;

/// A [`Pool`] of any type, so that what uses it is compiled once.
pub(super) trait AnyPool: Send + Sync {
    /// Runs a statement on a connection of the pool, if one comes.
    fn serve(&self, connected: Connected);

    fn any_dedicated(&self) -> Result<PgConnection, PoolError>;
}

impl<P: Pool + Send + Sync> AnyPool for P {
    fn serve(&self, connected: Connected) {
        match self.connection() {
            Ok(mut conn) => serve(conn.pg(), connected),
            Err(error) => drop(connected.send(Err(error))),
        }
    }

    fn any_dedicated(&self) -> Result<PgConnection, PoolError> {
        self.dedicated()
    }
}

/// Runs a statement on the connection, if one comes.
fn serve(conn: &mut PgConnection, connected: Connected) {
    let (statements, next) = mpsc::channel::<Statement>();
    if connected.send(Ok(OnThread(statements))).is_ok()
        && let Ok(statement) = next.recv()
    {
        statement(conn);
    }
}

fn start(statement: impl FnOnce() + Send + 'static) -> Result<(), PoolError> {
    let thread = thread::Builder::new().name("advisory-statement".to_owned());
    // It ends when the server has answered.
    drop(thread.spawn(statement).map_err(PoolError::new)?);
    Ok(())
}

/// A pool, and the keeper's own connection.
pub(crate) struct Threaded {
    pool: Arc<dyn AnyPool>,
    own: Arc<Mutex<Option<PgConnection>>>,
}

impl Threaded {
    pub(crate) fn new<P: Pool + Send + Sync + 'static>(pool: P) -> Self {
        let own = Arc::default();
        let pool = Arc::new(pool);
        Self { pool, own }
    }

    async fn on_pool<A: Send + 'static, E: RowError>(&self, step: Arc<OnPg<A, E>>) -> Result<A, E> {
        let conn = OnThread::connect(Arc::clone(&self.pool), false).await?;
        conn.answer(move |conn| answer_on(conn, &*step)).await?
    }

    async fn on_own<A: Send + 'static, E: RowError>(
        &self,
        step: Arc<OnPg<A, E>>,
        answer: Duration,
    ) -> Result<A, E> {
        let (pool, own) = (Arc::clone(&self.pool), Arc::clone(&self.own));
        let (reply, answered) = oneshot::channel();
        start(move || {
            let open = own.lock().unwrap_or_else(PoisonError::into_inner).take();
            let on_open =
                open.and_then(|mut conn| Some((answer_on(&mut conn, &*step).ok()?, conn)));
            let on_new = || {
                let mut conn = pool.any_dedicated()?;
                Ok((answer_on(&mut conn, &*step)?, conn))
            };
            let answered = on_open.map_or_else(on_new, Ok);
            drop(reply.send(answered.map(|(answer, conn)| {
                *own.lock().unwrap_or_else(PoisonError::into_inner) = Some(conn);
                answer
            })));
        })?;
        match timeout(answer, answered).await {
            Ok(answered) => answered.unwrap_or_else(|gone| Err(PoolError::new(gone).into())),
            Err(_) => Err(unanswered(answer).into()),
        }
    }
}

fn answer_on<A, E: RowError>(conn: &mut PgConnection, step: &OnPg<A, E>) -> Result<A, E> {
    let answered = block_on(step.send(conn));
    if let Err(error) = &answered
        && error.database().is_some_and(may_stick)
    {
        conn.close(false);
    }
    answered
}

impl Reach for Threaded {
    type Connection = PgConnection;

    const IS_ASYNC: bool = false;

    fn send<A: Send + 'static, E: RowError>(
        &self,
        _is_here: bool,
        step: Arc<OnPg<A, E>>,
        times: Times,
    ) -> Answering<'_, A, E> {
        Box::pin(async move {
            let pooled = self.on_pool(Arc::clone(&step));
            let own = self.on_own(Arc::clone(&step), times.answer);
            first_answer(&*step, times, pooled, own).await
        })
    }
}
