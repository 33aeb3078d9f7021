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
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{LazyLock, OnceLock};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_postgres::tls::{MakeTlsConnect, NoTls};
use tokio_postgres::{CancelToken, Socket};

type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

static TLS: OnceLock<Box<dyn Fn(CancelToken) -> Request + Send + Sync>> = OnceLock::new();

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

/// Whether the session was told a process id that no process has, as by a pooler.
pub(crate) fn is_pooled(token: &CancelToken) -> bool {
    CancelKey::of(token).is_some_and(|key| !key.is_of_a_process())
}

/// Sends a cancel request for what the session runs, and waits for nothing.
///
/// It is sent a second time: it travels on a connection of its own, and can arrive before the statement, which waits in this process
/// until the caller's runtime has time to write it. The second request finds no session where the first was in time.
///
/// None is sent behind a pooler, which makes up the process id that its clients are told: pgbouncer 1.18 loses the request when the
/// client does not wait for it, and ends itself. Nor without TLS where the connection requires it. The session then ends behind the
/// statement that it runs.
pub(crate) fn send(token: CancelToken) {
    let is_possible = CancelKey::of(&token)
        .is_none_or(|key| key.is_of_a_process() && (TLS.get().is_some() || !key.needs_tls));
    if !is_possible {
        return;
    }
    run(Box::pin(async move {
        let started = Instant::now();
        for delay in DELAYS {
            sleep_until(started + delay).await;
            let token = token.clone();
            let request: Request = match TLS.get() {
                Some(request) => request(token),
                None => Box::pin(async move { drop(token.cancel_query(NoTls).await) }),
            };
            drop(tokio::time::timeout(CONNECTING, request).await);
        }
    }));
}

/// When a cancel request is sent, counted from the drop.
const DELAYS: [Duration; 2] = [Duration::ZERO, Duration::from_millis(100)];

/// How long a cancel request may take. One that arrives after its session has ended does nothing.
const CONNECTING: Duration = Duration::from_secs(5);

/// Waits for a future, until a time has passed. Its timer is not the caller's, whose runtime may have none.
pub(crate) async fn within<F: Future>(time: Duration, future: F) -> Option<F::Output> {
    let (mut wake, woken) = oneshot::channel::<()>();
    run(Box::pin(async move {
        // Until then, or until nobody waits for it.
        drop(tokio::time::timeout(time, wake.closed()).await);
    }));
    let (mut woken, mut future) = (pin!(woken), pin!(future));
    poll_fn(|context| {
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(Some(value));
        }
        woken.as_mut().poll(context).map(|_| None)
    })
    .await
}

/// Runs what a dropped call leaves to do on a thread of its own: the caller's runtime may be about to end, which would drop it.
fn run(job: Request) {
    static WORKER: LazyLock<mpsc::UnboundedSender<Request>> = LazyLock::new(|| {
        let (sender, mut jobs) = mpsc::unbounded_channel::<Request>();
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            if let Ok(runtime) = runtime {
                runtime.block_on(async {
                    while let Some(job) = jobs.recv().await {
                        drop(tokio::spawn(job));
                    }
                });
            }
        };
        let thread = std::thread::Builder::new().name("advisory-cancel".to_owned());
        // Without a thread the jobs are dropped: a session then ends behind the statement that it runs.
        drop(thread.spawn(work));
        sender
    });
    drop(WORKER.send(job));
}
