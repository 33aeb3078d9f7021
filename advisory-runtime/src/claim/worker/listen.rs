//! Listens for notifications about tables. All workers of a pool in this process share one
//! connection, outside the pool.

use super::Settings;
use crate::claim::mutex::locked;
use crate::claim::sql::{LISTEN, RowType, number};
use crate::claim::table::Claim;
use crate::claim::{Error, Event};
use crate::driver::Driver;
use crate::rows::unless;
use crate::{Pool, PoolError};
use diesel_async::AsyncPgConnection;
use futures_util::Stream as _;
use std::collections::HashMap;
use std::fmt::Display;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

/// The pause before the next attempt to open a connection.
const PAUSE: Duration = Duration::from_secs(10);
/// The time without a notification after which a query checks the connection.
const SILENCE: Duration = Duration::from_secs(60);
/// The timeout of each answer of the server.
const ANSWER: Duration = Duration::from_secs(30);

/// The workers of a pool in this process, which share one connection that listens.
#[derive(Default)]
struct Listener {
    /// Held by the worker that listens for all. When it ends, another one takes over.
    turn: tokio::sync::Mutex<()>,
    workers: Mutex<Vec<Weak<Listening>>>,
    /// A worker was added.
    worker_added: Notify,
}

/// A worker to wake up.
struct Listening {
    row: RowType,
    number: OnceLock<String>,
    wake: Arc<Notify>,
}

impl Listener {
    /// Returns the listener of a pool. Each worker has its own if the pool has no identity.
    fn of(pool: Option<usize>) -> Arc<Self> {
        static LISTENERS: LazyLock<Mutex<HashMap<usize, Weak<Listener>>>> =
            LazyLock::new(Mutex::default);
        let Some(pool) = pool else {
            return Arc::default();
        };
        let mut listeners = locked(&LISTENERS);
        listeners.retain(|_, listener| listener.strong_count() > 0);
        let known = listeners.get(&pool).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let listener = Arc::default();
            listeners.insert(pool, Arc::downgrade(&listener));
            listener
        })
    }

    fn workers(&self) -> Vec<Arc<Listening>> {
        let mut workers = locked(&self.workers);
        workers.retain(|worker| worker.strong_count() > 0);
        workers.iter().filter_map(Weak::upgrade).collect()
    }

    fn wake(&self, number: &str) {
        for worker in self.workers() {
            if worker.number.get().is_some_and(|own| own == number) {
                worker.wake.notify_one();
            }
        }
    }

    /// Looks up the numbers of new tables, listens for them, and wakes their workers. On a new
    /// connection it wakes all workers, because notifications may have been missed. Returns `false`
    /// if a pooler would keep notifications from the connection.
    async fn prepare(&self, conn: &mut AsyncPgConnection, is_new: bool) -> Result<bool, Error> {
        let process = conn.startup_process_id().unwrap_or(0);
        let mut workers = self.workers();
        workers.retain(|worker| is_new || worker.number.get().is_none());
        if workers.is_empty() {
            return Ok(true);
        }
        for worker in &workers {
            if worker.number.get().is_none() {
                let Some(number) = conn.query_text(&number(&worker.row, process)).await? else {
                    return Ok(false);
                };
                // Only the worker that holds `turn` sets it, so this cannot fail.
                drop(worker.number.set(number));
            }
        }
        Driver::execute(conn, LISTEN).await?;
        for worker in workers {
            worker.wake.notify_one();
        }
        Ok(true)
    }
}

/// Wakes the worker up at each notification about its table. Returns if none can arrive.
pub(super) async fn listen<T: Claim, P: Pool>(
    pool: &P,
    settings: &Settings<'_, T>,
    wake: &Arc<Notify>,
) {
    let mut has_warned = false;
    let mut warn_once = |why: &dyn Display| {
        if !has_warned {
            let why = format!("the worker polls without notifications: {why}");
            settings.tell(Event::NoConnection(&Error::Pool(PoolError::new(why))));
        }
        has_warned = true;
    };
    let listener = Listener::of(pool.identity());
    let own = Arc::new(Listening {
        row: RowType::of::<T>(),
        number: OnceLock::new(),
        wake: Arc::clone(wake),
    });
    locked(&listener.workers).push(Arc::downgrade(&own));
    listener.worker_added.notify_one();
    let _turn = listener.turn.lock().await;
    loop {
        let open = async {
            let mut conn = pool.dedicated().await?;
            let is_direct = listener.prepare(&mut conn, true).await?;
            // A pooler would keep notifications from it.
            Ok(is_direct.then_some(conn))
        };
        let opened = timeout(ANSWER, open).await.map_err(PoolError::new);
        match opened.map_err(Error::Pool).flatten() {
            Ok(Some(mut conn)) => {
                if !wake_until_lost(&mut conn, &listener).await {
                    return warn_once(&"this kind of connection does not receive them");
                }
                warn_once(&"the connection that listens was lost");
            }
            Ok(None) => {
                return warn_once(
                    &"a pooler in transaction mode is in front of the server; if it is in session mode, set `advisory.pooler` to `session`",
                );
            }
            Err(error) => warn_once(&error),
        }
        sleep_until(Instant::now() + PAUSE).await;
    }
}

/// Wakes workers up until the connection is lost, and then returns `true`. Returns `false` if this
/// kind of connection never receives notifications.
async fn wake_until_lost(conn: &mut AsyncPgConnection, listener: &Listener) -> bool {
    let notifications = conn.notifications_stream();
    // A connection without its own task has an empty stream.
    if notifications.size_hint().1 == Some(0) {
        return false;
    }
    drop(notifications);
    loop {
        let next = {
            let mut notifications = pin!(conn.notifications_stream());
            let next = poll_fn(|context| notifications.as_mut().poll_next(context));
            let worker_added = pin!(listener.worker_added.notified());
            timeout(SILENCE, unless(worker_added, next)).await
        };
        match next {
            Ok(Some(Some(Ok(notification)))) => listener.wake(&notification.payload),
            Ok(Some(Some(Err(_)) | None)) => return true,
            Ok(None) => match timeout(ANSWER, listener.prepare(conn, false)).await {
                Ok(Ok(true)) => {}
                _ => return true,
            },
            // If a server vanishes without closing the connection, TCP takes hours to notice.
            Err(_) => match timeout(ANSWER, Driver::execute(conn, "SELECT")).await {
                Ok(Ok(())) => {}
                _ => return true,
            },
        }
    }
}
