//! The holders and the waiters of a lock.

use super::fail;
use crate::driver::Driver;
use crate::key::known;
use crate::{Connection, Key, LockKey, Request, sql};
use diesel_async::AsyncPgConnection;
use std::panic::Location;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

const PAUSE: Duration = Duration::from_millis(5);

/// Watches the advisory locks of a database on a connection of its own.
///
/// Its methods are assertions. They panic if a state does not come within 10 seconds, or within
/// [`timeout`](Self::timeout), and if the server does not answer. The message begins with the line
/// of the test that called the method. Dropping the future of a method drops the calls that it runs
/// and, if the observer's connection holds their keys, closes that connection.
///
/// ```
/// use advisory_runtime::testing::Observer;
/// use diesel_async::AsyncPgConnection;
///
/// /// Another task of the test is in its body, and a second one waits for the lock.
/// async fn one_waits(observer: &mut Observer<AsyncPgConnection>) {
///     observer.until_held((7, 1)).await;
///     observer.until_waiting((7, 1)).await;
/// }
/// ```
#[derive(Debug)]
pub struct Observer<C> {
    pub(super) conn: C,
    pub(super) timeout: Duration,
}

/// The keys of an assertion, and the line of the test that made it.
pub(super) struct Watched {
    pub(super) keys: Vec<Key>,
    pub(super) names: String,
    pub(super) at: &'static Location<'static>,
}

impl Watched {
    pub(super) fn new(request: &Request, at: &'static Location<'static>) -> Self {
        let keys = request.keys.to_vec();
        // The pattern of several keys is that of one.
        let pattern =
            Some(request.pattern).filter(|pattern| keys.len() == 1 && !pattern.is_empty());
        let name = |key: &Key| match pattern.or_else(|| known::pattern_of(*key)) {
            None => format!("`{key}`"),
            Some(pattern) => format!("`{pattern}` ({key})"),
        };
        let names = keys.iter().map(name).collect::<Vec<_>>().join(", ");
        let noun = if keys.len() == 1 { "lock" } else { "locks" };
        let names = format!("{noun} {names}");
        Self { keys, names, at }
    }

    pub(super) fn fail(&self, what: &str) -> ! {
        fail(self.at, what)
    }

    /// Returns whether all keys are held or, if not `is_granted`, one is waited for.
    pub(super) async fn are_seen(&self, conn: &mut AsyncPgConnection, is_granted: bool) -> bool {
        for key in &self.keys {
            if is_seen(conn, *key, is_granted, self.at).await != is_granted {
                return !is_granted;
            }
        }
        is_granted
    }
}

impl<C: Connection> Observer<C> {
    /// Makes an observer that uses this connection.
    pub const fn new(conn: C) -> Self {
        let timeout = Duration::from_secs(10);
        Self { conn, timeout }
    }

    /// Sets the maximum time to wait for a state.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Returns whether a session holds the lock on the key now, in any mode.
    #[track_caller]
    pub fn is_held(&mut self, key: impl LockKey) -> impl Future<Output = bool> {
        let at = Location::caller();
        async move { is_seen(self.conn.pg(), key.key(), true, at).await }
    }

    /// Returns whether a session waits for the lock on the key now.
    #[track_caller]
    pub fn is_waited_for(&mut self, key: impl LockKey) -> impl Future<Output = bool> {
        let at = Location::caller();
        async move { is_seen(self.conn.pg(), key.key(), false, at).await }
    }

    /// Waits until a session holds the lock on the key.
    #[track_caller]
    pub fn until_held(&mut self, key: impl LockKey) -> impl Future<Output = ()> {
        self.until(key, true, true, "nobody holds")
    }

    /// Waits until no session holds the lock on the key.
    #[track_caller]
    pub fn until_free(&mut self, key: impl LockKey) -> impl Future<Output = ()> {
        self.until(key, true, false, "somebody still holds")
    }

    /// Waits until a session waits for the lock on the key. Run a blocking call next to it with
    /// `spawn_blocking`.
    #[track_caller]
    pub fn until_waiting(&mut self, key: impl LockKey) -> impl Future<Output = ()> {
        self.until(key, false, true, "nobody waits for")
    }

    #[track_caller]
    fn until(
        &mut self,
        key: impl LockKey,
        granted: bool,
        there: bool,
        otherwise: &'static str,
    ) -> impl Future<Output = ()> {
        let at = Location::caller();
        async move {
            let (number, watched) = (key.key(), Watched::new(&key.into(), at));
            let end = Instant::now() + self.timeout;
            while is_seen(self.conn.pg(), number, granted, at).await != there {
                if Instant::now() >= end {
                    watched.fail(&format!("{otherwise} the advisory {}", watched.names));
                }
                sleep_until(Instant::now() + PAUSE).await;
            }
        }
    }
}

/// Returns whether a session holds the key or, if not `is_granted`, waits for it.
pub(super) async fn is_seen(
    conn: &mut AsyncPgConnection,
    key: Key,
    is_granted: bool,
    at: &Location<'_>,
) -> bool {
    let count = sql::probe::count_sessions(key, is_granted);
    match conn.query_text(&count).await {
        Ok(count) => count.is_some_and(|count| count != "0"),
        Err(error) => fail(
            at,
            &format!("the observer could not read pg_locks: {error}"),
        ),
    }
}
