//! A worker whose bodies are blocking, each on a thread of its own.

use crate::PoolError;
use crate::blocking::Pool;
use crate::blocking::reach::{OnThread, Threaded};
use crate::claim::rows::{JobRenewal, keep_all};
use crate::claim::{
    Claim, ClaimAnswer, ClaimArgs, ClaimFn, Claimed, End, Error, Settings, Source, Worker, end_one,
    joined, run_worker,
};
use crate::driver::block_on;
use std::fmt::Display;
use std::sync::Arc;
use tokio::runtime::Builder;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;

impl<T: Claim, P: Pool + Clone + Send + Sync + 'static> Worker<'static, T, P> {
    /// Like `run`, for blocking Diesel: each body runs on a thread, of which there are as many as
    /// [`concurrency`](Self::concurrency) says. It needs no runtime, and blocks its caller's thread
    /// until the worker stops.
    ///
    /// A thread cannot be dropped. If a claim is lost, its body runs to its end, and its result is
    /// refused: between two steps, a body can check [`Claimed::deadline`]. After
    /// [`grace`](Self::grace) the rows of bodies that still run are released, and this returns: let
    /// the process end then, because another worker may begin them.
    ///
    /// # Locking
    ///
    /// The statements of `run`, on connections of the pool. It does not listen for notifications:
    /// an idle worker looks for rows every [`poll`](Self::poll). The pool needs a connection for
    /// what each body takes from it, and one for the worker.
    ///
    /// # Errors
    ///
    /// The errors of `run`, and [`Error::Pool`] if the worker's runtime cannot be created.
    ///
    /// # Panics
    ///
    /// In an `async fn` on a runtime of tokio, as everything that blocks such a thread: call it in
    /// `tokio::task::spawn_blocking`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # #[cfg(feature = "r2d2")]
    /// # mod jobs {
    /// use advisory_runtime::claim::{Claim, Claimed, Error, Worker};
    /// use diesel::pg::PgConnection;
    /// use diesel::r2d2::{ConnectionManager, Pool};
    ///
    /// fn work<Job: Claim>(pool: &Pool<ConnectionManager<PgConnection>>) -> Result<(), Error> {
    ///     let worker = Worker::new(pool, "worker-7").concurrency(4).until_empty();
    ///     worker.run_blocking(|job: Claimed<Job>| sync(&job))
    /// }
    /// # fn sync<Job>(_: &Job) -> Result<(), Error> { Ok(()) }
    /// # }
    /// ```
    pub fn run_blocking<E: Display>(
        self,
        body: impl Fn(Claimed<T>) -> Result<(), E> + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let threads = Builder::new_current_thread()
            .enable_all()
            .thread_name("advisory-job")
            .max_blocking_threads(self.settings.concurrency)
            .build()
            .map_err(PoolError::new)?;
        let body = Arc::new(body);
        let settings = Arc::new(self.settings);
        let source = ThreadSource {
            pool: self.pool,
            settings: Arc::clone(&settings),
        };
        let run = run_worker(&source, &settings, self.stop, |job| {
            let body = Arc::clone(&body);
            #[cfg(feature = "tracing")]
            let span = tracing::Span::current();
            let mut thread = JoinSet::new();
            thread.spawn_blocking(move || {
                #[cfg(feature = "tracing")]
                let _entered = span.entered();
                body(job).map_err(|error| error.to_string())
            });
            joined(thread)
        });
        let ran = threads.block_on(run);
        // Bodies may still run.
        threads.shutdown_background();
        ran
    }
}

/// A pool of blocking connections.
struct ThreadSource<T: Claim, P> {
    pool: P,
    settings: Arc<Settings<'static, T>>,
}

impl<T: Claim, P: Pool + Clone + Send + Sync + 'static> Source<T> for ThreadSource<T, P> {
    const IS_ASYNC: bool = false;

    fn keep(&self, claimed: &[Claimed<T>]) -> Result<Vec<JobRenewal>, PoolError> {
        let number = self.pool.identity().unwrap_or(self.settings.number);
        keep_all(&self.pool, number, Threaded::new, claimed)
    }

    async fn connection(&self, opens_connection: bool) -> Result<ClaimFn<'_, T>, PoolError> {
        let conn = OnThread::connect(Arc::new(self.pool.clone()), opens_connection).await?;
        let settings = Arc::clone(&self.settings);
        Ok(Box::new(|args| Box::pin(claim(conn, settings, args))))
    }

    async fn listen(&self, _: &Arc<Notify>) {}
}

async fn claim<T: Claim>(
    conn: OnThread,
    settings: Arc<Settings<'static, T>>,
    args: ClaimArgs,
) -> Result<ClaimAnswer<T>, Error> {
    let (reply, answer) = oneshot::channel();
    conn.send(move |conn| {
        let answer = block_on(settings.take(conn, &args));
        // The worker has stopped, or has not waited for so long.
        if let Err(Ok(late)) = reply.send(answer) {
            for job in &late.claimed {
                drop(block_on(end_one(conn, job, End::Release, "", &[])));
            }
        }
    });
    answer.await.map_err(PoolError::new)?
}
