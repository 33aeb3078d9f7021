//! Assertions about calls: that they take their lock, wait for a holder, and what two of them do to each other.

use super::fail;
use super::observer::{Observer, Watched, is_seen};
use crate::{Connection, Request, lock};
use diesel_async::AsyncPgConnection;
use std::fmt::Debug;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;

impl<C: Connection> Observer<C> {
    /// Asserts that a call holds the lock while it runs, and returns its result. Give it the call's key, or
    /// [`Request::all`] of its keys.
    ///
    /// It looks whenever the call waits for something, and does not poll the call meanwhile. So the body must wait at least once under
    /// its lock, such as for a query, and must not hold what the observer needs.
    ///
    /// # Panics
    ///
    /// If the call ends and was not seen to hold the lock: the message has its result. If another session held it before.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call is dropped.
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
    /// let booked = observer.assert_locked(lock_key!("room:<room: int>", name = "room"), book(&mut conn, room)).await;
    /// # drop(booked);
    /// # }
    /// ```
    pub async fn assert_locked<F>(&mut self, keys: impl Into<Request>, call: F) -> F::Output
    where
        F: Future<Output: Debug>,
    {
        let watched = Watched::new(&keys.into());
        let mut call = pin!(call);
        self.assert_free(&watched).await;
        let conn = self.conn.pg();
        run_until(conn, &watched, true, call.as_mut(), self.timeout).await;
        call.await
    }

    /// Asserts that a call waits while another session holds the lock, and returns its result. Give it a key of the call, or
    /// [`Request::all`] of its keys.
    ///
    /// # Locking
    ///
    /// The observer's connection holds the keys as session-level locks until the call waits.
    ///
    /// # Panics
    ///
    /// If the call ends and was not seen to wait: the message has its result. If it does not wait in time. Then the observer's
    /// connection is closed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call is dropped, and both connections are closed.
    pub async fn assert_waits<F>(&mut self, keys: impl Into<Request>, call: F) -> F::Output
    where
        F: Future<Output: Debug>,
    {
        let request = keys.into();
        let watched = Watched::new(&request);
        let (mut call, timeout) = (pin!(call), self.timeout);
        let mut guard = match lock::acquire(&mut self.conn, C::pg, request.wait(timeout)).await {
            Ok(guard) => guard,
            Err(error) => fail(&format!(
                "the observer could not take the {}: {error}",
                watched.names
            )),
        };
        run_until(guard.conn().pg(), &watched, false, call.as_mut(), timeout).await;
        if let Err(error) = guard.finish(Ok::<_, crate::Error>(())).await {
            fail(&format!(
                "the observer could not release the {}: {error}",
                watched.names
            ));
        }
        call.await
    }

    /// Runs two calls so that the second waits for the lock while the first holds it, then both to their ends.
    ///
    /// Give it the first call's key, or [`Request::all`] of its keys, of which the second needs at least one. The second has begun before the first reads or writes under its lock, and goes on only afterwards: the moment at which a
    /// missing lock shows. The first must wait at least once under its lock, such as for a query.
    ///
    /// # Panics
    ///
    /// If the first ends and was not seen to hold all keys, or the second and was not seen to wait for one of them: the message has the
    /// call's result. If another session held a key before.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: both calls are dropped.
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
    pub async fn interleave<A, B>(
        &mut self,
        keys: impl Into<Request>,
        first: A,
        second: B,
    ) -> (A::Output, B::Output)
    where
        A: Future<Output: Debug>,
        B: Future<Output: Debug>,
    {
        let watched = Watched::new(&keys.into());
        let (mut first, mut second) = (pin!(first), pin!(second));
        self.assert_free(&watched).await;
        let (conn, timeout) = (self.conn.pg(), self.timeout);
        run_until(conn, &watched, true, first.as_mut(), timeout).await;
        run_until(conn, &watched, false, second.as_mut(), timeout).await;
        let mut of_second = None;
        let of_first = poll_fn(|context| {
            if of_second.is_none()
                && let Poll::Ready(result) = second.as_mut().poll(context)
            {
                of_second = Some(result);
            }
            first.as_mut().poll(context)
        })
        .await;
        match of_second {
            Some(of_second) => (of_first, of_second),
            None => (of_first, second.await),
        }
    }

    async fn assert_free(&mut self, watched: &Watched) {
        for key in &watched.keys {
            if is_seen(self.conn.pg(), *key, true).await {
                let names = &watched.names;
                fail(&format!(
                    "somebody holds the advisory {names} before the call"
                ));
            }
        }
    }
}

/// Polls the call until its locks are held, or one is waited for. The call is not polled while the server is asked.
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
            fail(&format!(
                "the call has returned `{result:?}`, and was not seen to {state} the advisory {names}"
            ));
        }
        if watched.is_seen(conn, is_granted).await {
            return;
        }
        if Instant::now() >= end {
            fail(&format!(
                "the call does not {state} the advisory {names}, and does not return"
            ));
        }
    }
}
