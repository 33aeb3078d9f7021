//! Cancel requests over TLS.
//!
//! A call that is dropped before its end closes its connection. Where a statement may still run, such as the wait for the lock, it
//! also asks the server to cancel that statement, so that the session leaves the queue at once. The request travels on a connection
//! of its own, which by default is made without TLS. Where the connection itself requires TLS (`sslmode=require`) there is then no
//! such request: the statement goes on until it ends by itself, and the session ends behind it. A program whose connections require
//! TLS says once, before its first lock, how to make one:
//!
//! ```no_run
//! # fn start<T>(connector: T) where T: tokio_postgres::tls::MakeTlsConnect<tokio_postgres::Socket, Stream: Send, TlsConnect: Send + tokio_postgres::tls::TlsConnect<tokio_postgres::Socket, Future: Send>> + Clone + Send + Sync + 'static {
//! // Such as `tokio_postgres_rustls::MakeRustlsConnect::new(config)`.
//! advisory_runtime::cancel::use_tls(connector);
//! # }
//! ```

use super::cancel_key::CancelKey;
use super::worker::{self, Job};
use std::sync::OnceLock;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};
use tokio_postgres::tls::{MakeTlsConnect, NoTls};
use tokio_postgres::{CancelToken, Socket};

static TLS: OnceLock<Box<dyn Fn(CancelToken) -> Job + Send + Sync>> = OnceLock::new();

/// Makes every cancel request of this process with this TLS, where the connection that it belongs to asks for it (`sslmode`).
///
/// The first call counts; `false` says that there was one before. Use the connector that you give to `tokio_postgres::connect`.
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
/// None is sent behind a pooler, which makes up the process id that its clients are told: pgbouncer 1.18 loses the request when the
/// client does not wait for it, and ends itself. Nor where the session was told no process id, nor without TLS where the connection
/// requires it. The session then ends behind the statement that it runs.
pub(crate) fn send(token: CancelToken) {
    let key = CancelKey::of(&token);
    if !key.is_of_a_process() || key.needs_tls && TLS.get().is_none() {
        return;
    }
    let request = SentOnDrop(Some(Box::pin(async move {
        let dropped = Instant::now();
        for delay in DELAYS {
            sleep_until(dropped + delay).await;
            let token = token.clone();
            let request: Job = if let Some(request) = TLS.get() {
                request(token)
            } else {
                Box::pin(async move { drop(token.cancel_query(NoTls).await) })
            };
            drop(tokio::time::timeout(CONNECTING, request).await);
        }
    })));
    // Behind the messages of the call, which the connection's own task may not have written yet: a request that overtakes them hits
    // nothing. Where the runtime is about to end, it drops the task at once.
    if let Ok(runtime) = Handle::try_current() {
        drop(runtime.spawn(async move {
            yield_now().await;
            drop(request);
        }));
    }
}

/// Whether the session was told no process id, or one that no process has: a pooler or a proxy can be in front of the server.
pub(super) fn may_be_pooled(token: &CancelToken) -> bool {
    !CancelKey::of(token).is_of_a_process()
}

/// The process id that the session was told at its start. A pooler makes one up.
#[cfg(feature = "migrations")]
pub(crate) fn told_process_id(token: &CancelToken) -> Option<u32> {
    CancelKey::of(token).process
}

/// A request that is sent when this is dropped.
struct SentOnDrop(Option<Job>);

impl Drop for SentOnDrop {
    fn drop(&mut self) {
        if let Some(request) = self.0.take() {
            worker::run(request);
        }
    }
}

/// When the requests are sent. One that the server serves before it has read the message of the call hits nothing, and on a busy
/// machine the first one can be that early. One that finds the session gone does nothing.
const DELAYS: [Duration; 3] = [
    Duration::from_millis(5),
    Duration::from_millis(200),
    Duration::from_secs(2),
];

/// How long a cancel request may take. One that arrives after its session has ended does nothing.
const CONNECTING: Duration = Duration::from_secs(5);
