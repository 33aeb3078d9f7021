//! Assertions about calls: that they take their lock, that they wait for a holder, and how two of
//! them interleave.

use super::observer::{Observer, Watched, is_seen};
use crate::driver::in_order;
use crate::{Connection, Error, LockGuard, Request, lock};
use diesel_async::AsyncPgConnection;
use std::fmt::Debug;
use std::future::poll_fn;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, timeout};

impl<C: Connection> Observer<C> {
    /// Asserts that a call holds the lock while it runs, and returns its result. Give it the call's
    /// key, or [`Request::all`] of its keys.
    ///
    /// The observer reads `pg_locks` whenever the call waits for something, and does not poll the
    /// call meanwhile. So the body must wait at least once under its lock, such as for a query, and
    /// must not hold anything that the observer needs.
    ///
    /// # Panics
    ///
    /// If the call ends and was not seen to hold the lock; the message has its result. If another
    /// session held the lock before the call.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use advisory_runtime::{advisory_lock, lock_key, testing::Observer};
    /// use diesel::QueryResult;
    /// use diesel_async::{AsyncPgConnection, RunQueryDsl};
    ///
    /// #[advisory_lock(key = "room:<room>", name = "room")]
    /// async fn book(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<usize> {
    ///     diesel::sql_query("INSERT INTO booking …").execute(conn).await
    /// }
    ///
    /// # async fn f(mut conn: AsyncPgConnection, other: AsyncPgConnection) {
    /// let room = 7;
    /// let mut observer = Observer::new(other);
    /// let key = lock_key!("room:<room: int>", name = "room");
    /// let booked = observer.assert_locked(key, book(&mut conn, room)).await;
    /// # drop(booked);
    /// # }
    /// ```
    #[track_caller]
    pub fn assert_locked<F: Future<Output: Debug>>(
        &mut self,
        keys: impl Into<Request>,
        call: F,
    ) -> impl Future<Output = F::Output> {
        let at = Location::caller();
        async move {
            let watched = Watched::new(&keys.into(), at);
            let mut call = pin!(call);
            self.assert_free(&watched).await;
            let (conn, timeout) = (self.conn.pg(), self.timeout);
            run_until(conn, &watched, true, call.as_mut(), timeout).await;
            call.await
        }
    }

    /// Asserts that a call waits while another session holds the lock, and returns its result. Give
    /// it a key of the call, or [`Request::all`] of its keys.
    ///
    /// # Locking
    ///
    /// The observer's connection holds the keys as session-level locks until the call waits.
    ///
    /// # Panics
    ///
    /// If the call ends and was not seen to wait; the message has its result. If it does not wait
    /// in time; the observer's connection is closed.
    #[track_caller]
    pub fn assert_waits<F: Future<Output: Debug>>(
        &mut self,
        keys: impl Into<Request>,
        call: F,
    ) -> impl Future<Output = F::Output> {
        let at = Location::caller();
        async move {
            let request = keys.into();
            let watched = Watched::new(&request, at);
            let (mut call, timeout) = (pin!(call), self.timeout);
            let mut guard = self.hold(request, &watched).await;
            let conn = guard.conn().pg();
            run_until(conn, &watched, false, call.as_mut(), timeout).await;
            release(guard, &watched).await;
            call.await
        }
    }

    /// Asserts that a call is refused while another session holds the lock: it ends with an error
    /// that is [busy](Error::is_busy), or that contains such an error. Give it a key of the call,
    /// or [`Request::all`] of its keys.
    ///
    /// For a call with `wait = "never"`, or with a `wait` that is shorter than the observer's
    /// [`timeout`](Self::timeout). A call with `on_held` returns no error: compare its value.
    ///
    /// # Locking
    ///
    /// The observer's connection holds the keys as session-level locks until the call has ended.
    ///
    /// # Panics
    ///
    /// If the call returns `Ok` or another error, or if it does not end in time.
    #[track_caller]
    pub fn assert_refused<F, T, E>(
        &mut self,
        keys: impl Into<Request>,
        call: F,
    ) -> impl Future<Output = ()>
    where
        F: Future<Output = Result<T, E>>,
        T: Debug,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let at = Location::caller();
        async move {
            let request = keys.into();
            let watched = Watched::new(&request, at);
            let (time, names) = (self.timeout, &watched.names);
            let guard = self.hold(request, &watched).await;
            match timeout(time, call)
                .await
                .map(|ended| ended.map_err(Into::into))
            {
                Err(_elapsed) => watched.fail(&format!(
                    "the call was not refused while the observer holds the {names}"
                )),
                Ok(Ok(value)) => watched.fail(&format!(
                    "the call has returned `Ok({value:?})` while the observer holds the {names}"
                )),
                Ok(Err(error)) if Error::find(&*error).is_some_and(|error| error.is_busy()) => {}
                Ok(Err(error)) => watched.fail(&format!(
                    "the call was not refused because of the {names}, but failed: {error}"
                )),
            }
            release(guard, &watched).await;
        }
    }

    async fn hold(&mut self, request: Request, watched: &Watched) -> LockGuard<'_, C> {
        let request = request.wait(self.timeout);
        let names = &watched.names;
        match lock::acquire(&mut self.conn, C::pg, request).await {
            Ok(guard) => guard,
            Err(error) => {
                watched.fail(&format!("the observer could not take the {names}: {error}"))
            }
        }
    }

    /// Runs two calls to their ends, so that the second waits for the lock while the first holds
    /// it.
    ///
    /// Give it the first call's key, or [`Request::all`] of its keys; the second must need at least
    /// one of them. The second begins before the first reads or writes under its lock, and goes on
    /// only afterwards: an order in which a missing lock shows. The first must wait at least once
    /// under its lock, such as for a query. A call with `queue` waits in its process, where this
    /// cannot see it.
    ///
    /// # Panics
    ///
    /// If the first ends and was not seen to hold all keys, or the second ends and was not seen to
    /// wait for one of them; the message has the call's result. If another session held a key
    /// before.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use advisory_runtime::testing::Observer;
    /// # use diesel::QueryResult;
    /// # use diesel_async::AsyncPgConnection;
    /// # async fn f(mut observer: Observer<AsyncPgConnection>, mut a: AsyncPgConnection, mut b: AsyncPgConnection) {
    /// let (ada, bob) = observer.interleave(42, book(&mut a, "Ada"), book(&mut b, "Bob")).await;
    /// assert_eq!((ada.unwrap(), bob.unwrap()), (true, false));
    /// # }
    /// # async fn book(_: &mut AsyncPgConnection, _: &str) -> QueryResult<bool> { Ok(true) }
    /// ```
    #[track_caller]
    pub fn interleave<A: Future<Output: Debug>, B: Future<Output: Debug>>(
        &mut self,
        keys: impl Into<Request>,
        first: A,
        second: B,
    ) -> impl Future<Output = (A::Output, B::Output)> {
        let at = Location::caller();
        async move {
            let watched = Watched::new(&keys.into(), at);
            let (mut first, mut second) = (pin!(first), pin!(second));
            self.assert_free(&watched).await;
            let (conn, timeout) = (self.conn.pg(), self.timeout);
            run_until(conn, &watched, true, first.as_mut(), timeout).await;
            run_until(conn, &watched, false, second.as_mut(), timeout).await;
            let (of_second, of_first) = in_order(second, first).await;
            (of_first, of_second)
        }
    }

    async fn assert_free(&mut self, watched: &Watched) {
        for key in &watched.keys {
            if is_seen(self.conn.pg(), *key, true, watched.at).await {
                let names = &watched.names;
                watched.fail(&format!(
                    "somebody holds the advisory {names} before the call"
                ));
            }
        }
    }
}

async fn release<C: Connection>(guard: LockGuard<'_, C>, watched: &Watched) {
    if let Err(error) = guard.finish(Ok::<_, Error>(())).await {
        let names = &watched.names;
        watched.fail(&format!(
            "the observer could not release the {names}: {error}"
        ));
    }
}

/// Polls the call until its locks are held, or one is waited for. The call is not polled while the
/// observer reads `pg_locks`.
async fn run_until<F: Future<Output: Debug>>(
    conn: &mut AsyncPgConnection,
    watched: &Watched,
    is_granted: bool,
    mut call: Pin<&mut F>,
    timeout: Duration,
) {
    let end = Instant::now() + timeout;
    let state = if is_granted { "hold" } else { "wait for" };
    let names = &watched.names;
    loop {
        if let Poll::Ready(result) =
            poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await
        {
            watched.fail(&format!(
                "the call has returned `{result:?}`, and was not seen to {state} the advisory {names}"
            ));
        }
        if watched.are_seen(conn, is_granted).await {
            return;
        }
        if Instant::now() >= end {
            watched.fail(&format!(
                "the call does not {state} the advisory {names}, and does not return"
            ));
        }
    }
}
