//! Listens for notifications about a table, on a connection of its own beside the pool.

use super::Settings;
use super::job::warn;
use crate::claim::Error;
use crate::claim::sql::listen::{LISTEN, number};
use crate::claim::table::Claim;
use crate::driver::Driver;
use crate::{Pool, PoolError};
use diesel_async::AsyncPgConnection;
use futures_core::Stream as _;
use std::fmt::Display;
use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

/// The pause before another connection is opened.
const PAUSE: Duration = Duration::from_secs(10);

/// After so long without a notification the server is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(60);
/// How long the server may take to answer.
const ANSWER: Duration = Duration::from_secs(30);

/// Wakes the worker up at each notification about its table. Returns if there can be none.
pub(super) async fn listen<T: Claim, P: Pool>(settings: &Settings<'_, T, P>, wake: &Notify) {
    let mut has_warned = false;
    let mut warn_once = |why: &dyn Display| {
        if !has_warned {
            warn(
                settings.table,
                &format_args!("the worker polls without notifications: {why}"),
            );
        }
        has_warned = true;
    };
    loop {
        let opened = timeout(ANSWER, open::<T, P>(settings.pool));
        let opened = opened.await.map_err(PoolError::new);
        match opened.map_err(Error::Pool).flatten() {
            Ok(Some((mut conn, number))) => {
                // For what came before.
                wake.notify_one();
                if !wake_until_lost(&mut conn, &number, wake).await {
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

/// A connection that listens, and the table's number; `None` behind a pooler.
async fn open<T: Claim, P: Pool>(pool: &P) -> Result<Option<(AsyncPgConnection, String)>, Error> {
    let mut conn = pool.dedicated().await?;
    let told = conn.told_process_id().unwrap_or(0);
    let Some(number) = conn.query_text(&number::<T>(told)).await? else {
        return Ok(None);
    };
    Driver::execute(&mut conn, LISTEN).await?;
    Ok(Some((conn, number)))
}

/// Returns `true` when the connection is lost, and `false` if it never receives notifications.
async fn wake_until_lost(conn: &mut AsyncPgConnection, number: &str, wake: &Notify) -> bool {
    let notifications = conn.notifications_stream();
    // The stream of a connection without a task of its own.
    if notifications.size_hint().1 == Some(0) {
        return false;
    }
    drop(notifications);
    loop {
        let next = {
            let mut notifications = pin!(conn.notifications_stream());
            let next = poll_fn(|context| notifications.as_mut().poll_next(context));
            timeout(SILENCE, next).await
        };
        match next {
            Ok(Some(Ok(notification))) if notification.payload == number => wake.notify_one(),
            Ok(Some(Ok(_))) => {}
            Ok(Some(Err(_)) | None) => return true,
            // Without this, a server that vanished without closing the connection is noticed after hours, by TCP.
            Err(_) => match timeout(ANSWER, Driver::execute(conn, "SELECT")).await {
                Ok(Ok(())) => {}
                _ => return true,
            },
        }
    }
}
