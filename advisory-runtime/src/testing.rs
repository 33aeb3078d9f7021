//! For tests of locked functions, against a database of their own: what holds a lock, what waits for it, and two calls in a chosen
//! interleaving.
//!
//! The feature `testing`, for `[dev-dependencies]`. An [`Observer`] looks at `pg_locks` on a connection beside those under test, so
//! nothing here waits for a time and hopes. Give each test its own keys, or its own database: whoever else takes the key is seen too.
//!
//! A function under a lease needs no database: [`Leases::in_memory`](crate::lease::Leases::in_memory). For transaction-level and
//! session-level locks there is no such stand-in, since their bodies hold a connection of PostgreSQL and nothing honest can be put in
//! its place. Test what stands around them with a mock of the trait, on whose PostgreSQL implementation the attribute is; test
//! their bodies on a database, in `begin_test_transaction`. What a session-level lock guards and needs no database, such as a
//! scheduler's tick, goes into a function of its own, which the locked one calls.
//!
//! Whether locks are taken in one order is asserted by [`inventory::assert_lock_order`](crate::inventory::assert_lock_order).

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

/// Makes the witness of a lock that nobody holds, so that a function that takes a [`Holding`] is tested without a database.
///
/// For unit tests only: what it gives shows nothing. `holding(&key).shared()` is one for a function that takes a
/// `Holding<'_, Shared<…>>`.
///
/// # Locking
///
/// None.
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

/// Between two looks at the server.
const PAUSE: Duration = Duration::from_millis(5);

/// Looks at the advisory locks of a database, on a connection of its own that no call under test uses.
///
/// Its methods are assertions: they panic where a state does not come within the patience (10 seconds unless it is said), and where
/// the server does not answer.
#[derive(Debug)]
pub struct Observer<C> {
    conn: C,
    patience: Duration,
}

/// A key, and what messages call it.
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
    /// Looks through this connection.
    pub const fn new(conn: C) -> Self {
        let patience = Duration::from_secs(10);
        Self { conn, patience }
    }

    /// Waits for so long for a state to come.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Whether a session holds the lock on the key now, in whatever mode.
    ///
    /// # Panics
    ///
    /// When the server does not answer.
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
    /// When the server does not answer.
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
    /// When none does in time.
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
    /// When one still does.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn until_free(&mut self, key: impl LockKey) {
        self.until(key, true, false, "somebody still holds").await;
    }

    /// Waits until a session waits for the lock on the key.
    ///
    /// # Panics
    ///
    /// When none does in time.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use advisory_runtime::{advisory_lock, testing::Observer};
    /// # use diesel::{QueryResult, PgConnection};
    /// # use diesel_async::AsyncPgConnection;
    /// // A blocking call waits on a thread of its own.
    /// # #[cfg(feature = "postgres")]
    /// # async fn f(mut observer: Observer<AsyncPgConnection>, mut conn: PgConnection) {
    /// let call = tokio::task::spawn_blocking(move || book(&mut conn));
    /// observer.until_waiting(42).await;
    /// # drop(call);
    /// # }
    /// # fn book(_: &mut PgConnection) -> QueryResult<()> { Ok(()) }
    /// ```
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

    /// Asserts that a call holds the lock on the key while it runs, and gives what it returned.
    ///
    /// It looks each time the call waits for something, and does not let it go on meanwhile. So a body has to wait at least once
    /// under its lock, such as for a query, and must not hold what the observer needs.
    ///
    /// # Panics
    ///
    /// When the call ends and was never seen to hold it; when somebody holds it before.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the call.
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
        self.run_until(&watched, true, call.as_mut()).await;
        call.await
    }

    /// Asserts that a call waits while somebody else holds the lock on the key, and gives what it returned afterwards.
    ///
    /// # Locking
    ///
    /// Holds the key on the observer's connection as a session-level lock until the call is seen to wait.
    ///
    /// # Panics
    ///
    /// When the call ends and was never seen to wait; when it does not wait in time. The observer's connection is closed then.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the call, and closes both connections.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use advisory_runtime::testing::Observer;
    /// # use diesel::QueryResult;
    /// # use diesel_async::AsyncPgConnection;
    /// # async fn f(mut observer: Observer<AsyncPgConnection>, mut conn: AsyncPgConnection) {
    /// observer.assert_waits(42, clean_up(&mut conn)).await.unwrap();
    /// # }
    /// # async fn clean_up(_: &mut AsyncPgConnection) -> QueryResult<()> { Ok(()) }
    /// ```
    pub async fn assert_waits<F: Future>(&mut self, key: impl LockKey, call: F) -> F::Output {
        let watched = Watched::new(key);
        let end = Instant::now() + self.patience;
        let request = Request::new(watched.key).wait(self.patience);
        let mut call = pin!(call);
        let mut held = match session::acquire(&mut self.conn, request).await {
            Ok(held) => held,
            Err(error) => fail(&format!("the observer takes {}: {error}", watched.name)),
        };
        run_until(held.conn().pg(), &watched, false, call.as_mut(), end).await;
        if let Err(error) = session::release(held, Ok::<_, crate::Error>(())).await {
            fail(&format!("the observer releases {}: {error}", watched.name));
        }
        call.await
    }

    /// Runs two calls so that the second waits for the lock on the key while the first holds it: the first runs until it holds it,
    /// then the second until it waits, then both to their ends.
    ///
    /// So whatever the first reads and writes under its lock happens after the second has begun, and before it goes on: the moment
    /// at which a missing lock shows. The first has to wait at least once under its lock, such as for a query.
    ///
    /// # Panics
    ///
    /// When the first ends and was never seen to hold it, when the second ends and was never seen to wait, and when somebody else
    /// holds it before.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops both calls.
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
        self.run_until(&watched, true, first.as_mut()).await;
        self.run_until(&watched, false, second.as_mut()).await;
        let (mut one, mut other) = (None, None);
        poll_fn(|context| {
            if one.is_none()
                && let Poll::Ready(result) = first.as_mut().poll(context)
            {
                one = Some(result);
            }
            if other.is_none()
                && let Poll::Ready(result) = second.as_mut().poll(context)
            {
                other = Some(result);
            }
            match (one.take(), other.take()) {
                (Some(one), Some(other)) => Poll::Ready((one, other)),
                (left, right) => {
                    (one, other) = (left, right);
                    Poll::Pending
                }
            }
        })
        .await
    }

    async fn assert_free(&mut self, watched: &Watched) {
        if is_seen(self.conn.pg(), watched.key, true).await {
            let name = &watched.name;
            fail(&format!(
                "somebody holds the advisory lock {name} before the call"
            ));
        }
    }

    async fn run_until<F: Future>(
        &mut self,
        watched: &Watched,
        is_granted: bool,
        call: Pin<&mut F>,
    ) {
        let end = Instant::now() + self.patience;
        run_until(self.conn.pg(), watched, is_granted, call, end).await;
    }
}

/// Polls the call until its lock is held, or waited for; it stands still whenever the server is asked.
async fn run_until<F: Future>(
    conn: &mut AsyncPgConnection,
    watched: &Watched,
    is_granted: bool,
    mut call: Pin<&mut F>,
    end: Instant,
) {
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
        Err(error) => fail(&format!("the observer reads pg_locks: {error}")),
    }
}

#[expect(clippy::panic, reason = "an assertion of a user's test")]
fn fail(what: &str) -> ! {
    panic!("{what}")
}
