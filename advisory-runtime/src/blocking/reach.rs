//! A pool of blocking connections: each statement runs on a short-lived thread, so that one without
//! an answer stops nothing else.

use super::{Connection as _, Pool};
use crate::PoolError;
use crate::driver::{Driver as _, block_on};
use crate::error::ProductError as _;
use crate::rows::{
    Outside, Reach, Step, Times, is_of_the_row, may_stick, no_connection, unanswered,
};
use diesel::PgConnection;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The answer of a step on a thread.
type Answered<S> = oneshot::Receiver<Result<<S as Step>::Answer, <S as Step>::Error>>;

/// A pool, and the keeper's own connection.
pub(crate) struct Threaded<P> {
    pool: P,
    own: Arc<Mutex<Option<PgConnection>>>,
}

impl<P: Pool + Clone + Send + Sync + 'static> Threaded<P> {
    pub(crate) fn new(pool: P) -> Self {
        let own = Arc::default();
        Self { pool, own }
    }

    /// The answer on a connection of the pool, unless nobody wants it by the time that there is a
    /// connection.
    fn on_pool<S: Step>(&self, step: S) -> Result<(oneshot::Receiver<()>, Answered<S>), S::Error> {
        let pool = self.pool.clone();
        let (connected, is_connected) = oneshot::channel();
        let (reply, answered) = oneshot::channel();
        start(move || match pool.connection() {
            Err(error) => drop(reply.send(Err(error.into()))),
            Ok(mut conn) => {
                if connected.send(()).is_ok() {
                    drop(reply.send(answer_on(conn.pg(), &step)));
                }
            }
        })?;
        Ok((is_connected, answered))
    }

    async fn on_own<S: Step>(&self, step: S, answer: Duration) -> Result<S::Answer, S::Error> {
        let (pool, own) = (self.pool.clone(), Arc::clone(&self.own));
        let (reply, answered) = oneshot::channel();
        start(move || {
            let kept = own.lock().unwrap_or_else(PoisonError::into_inner).take();
            let opened = match kept {
                Some(mut conn) => match answer_on(&mut conn, &step) {
                    Ok(answer) => Ok((answer, conn)),
                    Err(_) => on_new(&pool, &step),
                },
                None => on_new(&pool, &step),
            };
            drop(reply.send(opened.map(|(answer, conn)| {
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

fn on_new<P: Pool, S: Step>(pool: &P, step: &S) -> Result<(S::Answer, PgConnection), S::Error> {
    let mut conn = pool.dedicated()?;
    let answer = answer_on(&mut conn, step)?;
    Ok((answer, conn))
}

fn answer_on<S: Step>(conn: &mut PgConnection, step: &S) -> Result<S::Answer, S::Error> {
    let answered = block_on(step.send(conn));
    if let Err(error) = &answered
        && error.database().is_some_and(may_stick)
    {
        conn.close(false);
    }
    answered
}

pub(super) fn start(statement: impl FnOnce() + Send + 'static) -> Result<(), PoolError> {
    let thread = thread::Builder::new().name("advisory-statement".to_owned());
    // It ends when the server has answered.
    drop(thread.spawn(statement).map_err(PoolError::new)?);
    Ok(())
}

impl<P: Pool + Clone + Send + Sync + 'static> Reach for Threaded<P> {
    const IS_ASYNC: bool = false;

    async fn send<S: Step>(&self, step: S, times: Times) -> Result<S::Answer, S::Error> {
        let (mut connected, mut answered) = self.on_pool(step.clone())?;
        // A connection is not waited for any more once this is dropped.
        let gone = |gone: oneshot::error::RecvError| S::Error::from(PoolError::new(gone));
        let failed = match timeout(times.soon, &mut answered).await {
            Ok(Ok(Ok(answer))) => return Ok(answer),
            Ok(Ok(Err(error))) if is_of_the_row(&error) => return Err(error),
            Ok(Ok(Err(error))) => Some(error),
            Ok(Err(error)) => Some(gone(error)),
            Err(_) => None,
        };
        if step.outside() != Outside::Useless
            && let Ok(answer) = self.on_own(step.clone(), times.answer).await
        {
            let answer = match step.outside() {
                Outside::Doubted => S::doubted(answer),
                _ => Some(answer),
            };
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
        if let Some(failed) = failed {
            return Err(failed);
        }
        match timeout(times.answer, &mut answered).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(error)) => Err(gone(error)),
            Err(_) if connected.try_recv().is_ok() => Err(unanswered(times.answer).into()),
            Err(_) => Err(no_connection(times.answer).into()),
        }
    }

    /// Blocks the caller's thread, as everything that it calls does.
    async fn send_here<S: Step>(&self, step: S, times: Times) -> Result<S::Answer, S::Error> {
        let pool = self.pool.clone();
        let (reply, answered) = mpsc::channel();
        let (connected, is_connected) = mpsc::sync_channel(0);
        start(move || match pool.connection() {
            Err(error) => if connected.send(Err(error)).is_ok() {},
            Ok(mut conn) => {
                if connected.send(Ok(())).is_ok() {
                    drop(reply.send(answer_on(conn.pg(), &step)));
                }
            }
        })?;
        match is_connected.recv_timeout(times.soon) {
            Ok(connected) => connected?,
            Err(_) => return Err(no_connection(times.soon).into()),
        }
        match answered.recv_timeout(times.answer) {
            Ok(answered) => answered,
            Err(_) => Err(unanswered(times.answer).into()),
        }
    }
}
