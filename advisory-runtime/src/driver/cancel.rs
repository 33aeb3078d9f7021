//! Cancel requests, and their TLS.
//!
//! A call that is dropped before its end closes its connection. Where a statement may still run,
//! such as the wait for the lock, it also asks the server to cancel that statement, so that the
//! session leaves the queue at once. The request travels on a connection of its own, which by
//! default is made without TLS. Where the connection itself requires TLS (`sslmode=require`) there
//! is then no such request: the statement runs to its end, and then the session ends. A program
//! with connections that require TLS gives its connector once, before its first lock:
//!
//! ```no_run
//! # fn start<T>(connector: T) where T: tokio_postgres::tls::MakeTlsConnect<tokio_postgres::Socket, Stream: Send, TlsConnect: Send + tokio_postgres::tls::TlsConnect<tokio_postgres::Socket, Future: Send>> + Clone + Send + Sync + 'static {
//! // Such as `tokio_postgres_rustls::MakeRustlsConnect::new(config)`.
//! advisory_runtime::cancel::use_tls(connector);
//! # }
//! ```

#[doc(hidden)]
pub use super::cancel_key::startup_process_id;

use super::can_be_of_a_process;
use super::cancel_key::needs_tls;
use super::timer_thread::{self, Job};
use std::sync::OnceLock;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_postgres::tls::{MakeTlsConnect, NoTls};
use tokio_postgres::{CancelToken, Socket};

static TLS: OnceLock<Box<dyn Fn(CancelToken) -> Job + Send + Sync>> = OnceLock::new();

/// Makes every cancel request of this process with this TLS, where the connection that it belongs
/// to asks for it (`sslmode`).
///
/// The first call counts; `false` says that there was one before. Use the connector that you give
/// to `tokio_postgres::connect`.
pub fn use_tls<T>(tls: T) -> bool
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::TlsConnect: Send,
    T::Stream: Send,
    <T::TlsConnect as tokio_postgres::tls::TlsConnect<Socket>>::Future: Send,
{
    TLS.set(Box::new(move |token: CancelToken| {
        let tls = tls.clone();
        Box::pin(async move { drop(token.cancel_query(tls).await) })
    }))
    .is_ok()
}

/// Sends cancel requests for what the session runs, and waits for nothing.
///
/// None is sent if the process id that the session received is larger than that of any process,
/// because a pooler made it up: pgbouncer 1.18 loses the request when the client does not wait for
/// it, and ends itself. Nor is one sent if the session received no process id, or without TLS if
/// the connection requires it. The session then ends after the statement that it runs.
///
/// A smaller number can be made up too. Such a request hits no session of another client: it
/// contains the secret of the session as well, which a server or a pooler compares.
pub(crate) fn send(token: CancelToken) {
    let is_of_a_process = startup_process_id(&token).is_some_and(can_be_of_a_process);
    if !is_of_a_process || needs_tls(&token) && TLS.get().is_none() {
        return;
    }
    let (has_run, runtime_ran) = oneshot::channel();
    // A runtime that is about to end drops the task, and a thread without a runtime drops the
    // sender.
    if let Ok(runtime) = Handle::try_current() {
        drop(runtime.spawn(async move {
            yield_now().await;
            drop::<oneshot::Sender<()>>(has_run);
        }));
    }
    // Without the thread, the session ends after the statement that it runs.
    timer_thread::run(Box::pin(send_often(token, runtime_ran)));
}

/// Sends the requests, and sends them again once the caller's runtime has run. On that runtime the
/// connection's own task writes the call's messages, and a request that overtakes them cancels
/// nothing. A runtime of one thread can be busy, or not run at all.
async fn send_often(token: CancelToken, mut runtime_ran: oneshot::Receiver<()>) {
    let dropped = Instant::now();
    let mut has_run = false;
    for delay in DELAYS {
        has_run = timeout_at(dropped + delay, &mut runtime_ran).await.is_ok();
        if has_run {
            break;
        }
        send_one(&token).await;
    }
    if !has_run {
        // Never a value: the sender is dropped.
        drop(runtime_ran.await);
    }
    let first_run = Instant::now();
    for delay in DELAYS {
        sleep_until(first_run + delay).await;
        send_one(&token).await;
    }
}

async fn send_one(token: &CancelToken) {
    let token = token.clone();
    let request: Job = if let Some(request) = TLS.get() {
        request(token)
    } else {
        Box::pin(async move { drop(token.cancel_query(NoTls).await) })
    };
    drop(timeout(CONNECTING, request).await);
}

/// When the requests are sent. One that the server serves before it has read the message of the
/// call hits nothing, and on a busy machine the first one can be that early. One that arrives after
/// the session's end does nothing.
const DELAYS: [Duration; 3] = [
    Duration::from_millis(5),
    Duration::from_millis(200),
    Duration::from_secs(2),
];

/// The time limit of a cancel request. One that arrives after its session has ended does nothing.
const CONNECTING: Duration = Duration::from_secs(5);
