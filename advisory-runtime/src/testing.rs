//! Tests of locked functions: who holds a lock, who waits for it, and two calls in a chosen interleaving.
//!
//! Enable the feature `testing` in `[dev-dependencies]`. An [`Observer`] reads `pg_locks` on a connection of its own and waits for
//! states, not for times. Give each test its own keys or its own database: the observer sees every session that uses a key.
//!
//! A function under a lease can run without a database, on [`Leases::in_memory`](crate::lease::Leases::in_memory). The guide's page
//! on [testing](crate::guide::testing) has the rest: test transactions, mocks, and the assertions that every program should have.

mod pool;

#[cfg(feature = "r2d2")]
pub use pool::assert_r2d2_replaces_broken;
pub use pool::assert_replaces_broken;

use crate::driver::Driver;
use crate::key::known;
use crate::{Connection, DeclaredLock, Holding, Key, LockKey, Request, session, sql};
use diesel_async::AsyncPgConnection;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Makes a witness without a lock, to test a function that takes a [`Holding`] without a database.
///
/// It proves nothing: use it in unit tests only. For a `Holding<'_, Shared<…>>` write `holding(&key).shared()`.
///
/// # Examples
///
/// ```
/// use advisory_runtime::{Holding, LockKey, testing};
///
/// #[derive(LockKey)]
/// #[lock_key("slot:<room>")]
/// struct SlotLock {
///     room: i64,
/// }
///
/// fn label(slot: Holding<'_, SlotLock>) -> String {
///     format!("room {}", slot.key().room)
/// }
///
/// assert_eq!(label(testing::holding(&SlotLock { room: 7 })), "room 7");
/// ```
#[must_use]
pub fn holding<K: DeclaredLock>(key: &K) -> Holding<'_, K::Lock> {
    Holding::new(key.lock())
}

/// The time between two reads of `pg_locks`.
const PAUSE: Duration = Duration::from_millis(5);

/// Watches the advisory locks of a database on a connection of its own.
///
/// Its methods are assertions: they panic if a state does not come within 10 seconds, or within [`patience`](Self::patience), and if
/// the server does not answer.
#[derive(Debug)]
pub struct Observer<C> {
    conn: C,
    patience: Duration,
}

/// A key and its name in messages.
struct Watched {
    key: Key,
    name: String,
}

impl Watched {
    fn new(key: impl LockKey) -> Self {
        let number = key.key();
        let pattern = Some(key.pattern()).filter(|pattern| !pattern.is_empty());
        let name = match pattern.or_else(|| known::pattern_of(number)) {
            None => format!("`{number}`"),
            Some(pattern) => format!("`{pattern}` ({number})"),
        };
        Self { key: number, name }
    }
}

impl<C: Connection> Observer<C> {
    /// Makes an observer that uses this connection.
    pub const fn new(conn: C) -> Self {
        let patience = Duration::from_secs(10);
        Self { conn, patience }
    }

    /// Sets how long to wait for a state.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Whether a session holds the lock on the key now, in any mode.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn is_held(&mut self, key: impl LockKey) -> bool {
        is_seen(self.conn.pg(), key.key(), true).await
    }

    /// Whether a session waits for the lock on the key now.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn is_waited_for(&mut self, key: impl LockKey) -> bool {
        is_seen(self.conn.pg(), key.key(), false).await
    }

    /// Waits until a session holds the lock on the key.
    ///
    /// # Panics
    ///
    /// If none does in time.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn until_held(&mut self, key: impl LockKey) {
        self.until(key, true, true, "nobody holds").await;
    }

    /// Waits until no session holds the lock on the key.
    ///
    /// # Panics
    ///
    /// If one still does.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn until_free(&mut self, key: impl LockKey) {
        self.until(key, true, false, "somebody still holds").await;
    }

    /// Waits until a session waits for the lock on the key. Run a blocking call beside it with `spawn_blocking`.
    ///
    /// # Panics
    ///
    /// If none does in time.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn until_waiting(&mut self, key: impl LockKey) {
        self.until(key, false, true, "nobody waits for").await;
    }

    async fn until(&mut self, key: impl LockKey, granted: bool, there: bool, otherwise: &str) {
        let watched = Watched::new(key);
        let end = Instant::now() + self.patience;
        while is_seen(self.conn.pg(), watched.key, granted).await != there {
            if Instant::now() >= end {
                fail(&format!("{otherwise} the advisory lock {}", watched.name));
            }
            sleep_until(Instant::now() + PAUSE).await;
        }
    }

    /// Asserts that a call holds the lock on the key while it runs, and returns its result.
    ///
    /// It looks whenever the call waits for something, and does not poll the call meanwhile. So the body must wait at least once under
    /// its lock, such as for a query, and must not hold what the observer needs.
    ///
    /// # Panics
    ///
    /// If the call ends and was not seen to hold the lock, or if another session held it before.
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
    pub async fn assert_locked<F: Future>(&mut self, key: impl LockKey, call: F) -> F::Output {
        let watched = Watched::new(key);
        let mut call = pin!(call);
        self.assert_free(&watched).await;
        let conn = self.conn.pg();
        run_until(conn, &watched, true, call.as_mut(), self.patience).await;
        call.await
    }

    /// Asserts that a call waits while another session holds the lock on the key, and returns its result.
    ///
    /// # Locking
    ///
    /// The observer's connection holds the key as a session-level lock until the call waits.
    ///
    /// # Panics
    ///
    /// If the call ends and was not seen to wait, or does not wait in time. Then the observer's connection is closed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call is dropped, and both connections are closed.
    pub async fn assert_waits<F: Future>(&mut self, key: impl LockKey, call: F) -> F::Output {
        let watched = Watched::new(key);
        let (mut call, patience) = (pin!(call), self.patience);
        let request = Request::new(watched.key).wait(patience);
        let mut held = match session::acquire(&mut self.conn, request).await {
            Ok(held) => held,
            Err(error) => fail(&format!(
                "the observer could not lock {}: {error}",
                watched.name
            )),
        };
        run_until(held.conn().pg(), &watched, false, call.as_mut(), patience).await;
        if let Err(error) = session::release(held, Ok::<_, crate::Error>(())).await {
            fail(&format!(
                "the observer could not unlock {}: {error}",
                watched.name
            ));
        }
        call.await
    }

    /// Runs two calls so that the second waits for the lock on the key while the first holds it, then both to their ends.
    ///
    /// The second has begun before the first reads or writes under its lock, and goes on only afterwards: the moment at which a
    /// missing lock shows. The first must wait at least once under its lock, such as for a query.
    ///
    /// # Panics
    ///
    /// If the first ends and was not seen to hold the lock, if the second ends and was not seen to wait for it, or if another session
    /// held it before.
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
    pub async fn interleave<A: Future, B: Future>(
        &mut self,
        key: impl LockKey,
        first: A,
        second: B,
    ) -> (A::Output, B::Output) {
        let watched = Watched::new(key);
        let (mut first, mut second) = (pin!(first), pin!(second));
        self.assert_free(&watched).await;
        let (conn, patience) = (self.conn.pg(), self.patience);
        run_until(conn, &watched, true, first.as_mut(), patience).await;
        run_until(conn, &watched, false, second.as_mut(), patience).await;
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
        if is_seen(self.conn.pg(), watched.key, true).await {
            let name = &watched.name;
            fail(&format!(
                "somebody holds the advisory lock {name} before the call"
            ));
        }
    }
}

/// Polls the call until its lock is held, or waited for. The call is not polled while the server is asked.
async fn run_until<F: Future>(
    conn: &mut AsyncPgConnection,
    watched: &Watched,
    is_granted: bool,
    mut call: Pin<&mut F>,
    patience: Duration,
) {
    let end = Instant::now() + patience;
    let state = if is_granted { "hold" } else { "wait for" };
    let name = &watched.name;
    loop {
        let is_over = poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_ready()));
        if is_over.await {
            fail(&format!(
                "the call has returned, and was not seen to {state} the advisory lock {name}"
            ));
        }
        if is_seen(conn, watched.key, is_granted).await {
            return;
        }
        if Instant::now() >= end {
            fail(&format!(
                "the call does not {state} the advisory lock {name}, and does not return"
            ));
        }
    }
}

async fn is_seen(conn: &mut AsyncPgConnection, key: Key, is_granted: bool) -> bool {
    match conn
        .query_text(&sql::probe::count_sessions(key, is_granted))
        .await
    {
        Ok(count) => count.is_some_and(|count| count != "0"),
        Err(error) => fail(&format!("the observer could not read pg_locks: {error}")),
    }
}

#[expect(clippy::panic, reason = "an assertion of a user's test")]
fn fail(what: &str) -> ! {
    panic!("{what}")
}
