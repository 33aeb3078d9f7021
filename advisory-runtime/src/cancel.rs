//! Cancel requests over TLS.
//!
//! A call that is dropped while a statement runs asks the server to cancel that statement. The request travels on a
//! connection of its own, which by default is made without TLS. Where the connection itself requires TLS (`sslmode=require`)
//! there is no such request: the statement goes on until it ends by itself, and the connection is closed behind it. A program
//! whose connections require TLS says once, before its first lock, how to make one:
//!
//! ```no_run
//! # fn start<T>(connector: T) where T: tokio_postgres::tls::MakeTlsConnect<tokio_postgres::Socket, Stream: Send, TlsConnect: Send + tokio_postgres::tls::TlsConnect<tokio_postgres::Socket, Future: Send>> + Clone + Send + Sync + 'static {
//! // Such as `tokio_postgres_rustls::MakeRustlsConnect::new(config)`.
//! advisory_runtime::cancel::use_tls(connector);
//! # }
//! ```

use crate::identity::Identity;
use crate::prepared::Session;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio_postgres::tls::{MakeTlsConnect, NoTls};
use tokio_postgres::{CancelToken, Socket};

type Request = Pin<Box<dyn Future<Output = bool> + Send>>;

static TLS: OnceLock<Box<dyn Fn(CancelToken) -> Request + Send + Sync>> = OnceLock::new();

/// Makes every cancel request of this process with this TLS, where the connection that it belongs to asks for it (`sslmode`).
///
/// The first call counts; `false`: there was one before. Use the connector that you give to `tokio_postgres::connect`.
pub fn use_tls<T>(tls: T) -> bool
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::TlsConnect: Send,
    T::Stream: Send,
    <T::TlsConnect as tokio_postgres::tls::TlsConnect<Socket>>::Future: Send,
{
    TLS.set(Box::new(move |token: CancelToken| {
        let tls = tls.clone();
        Box::pin(async move { token.cancel_query(tls).await.is_ok() })
    }))
    .is_ok()
}

/// Whether a request can be sent and reaches the session.
///
/// Without TLS it cannot be sent where the connection requires it. And a pooler makes up the process id that its clients are
/// told: pgbouncer 1.18 loses the request when the client does not wait for it, and ends itself. Behind a pooler the connection
/// is closed instead. Either the pooler closes the session too, which `client_connection_check_interval` notices, or the session
/// stays in the queue until its turn, and ends then.
pub(crate) fn is_possible(token: &CancelToken) -> bool {
    let has_tls = TLS.get().is_some();
    Identity::of(token).map_or(has_tls, |identity| {
        identity.is_of_a_process() && (has_tls || !identity.needs_tls)
    })
}

/// Whether the session was told a process id that no process has, as by a pooler.
pub(crate) fn is_pooled(token: &CancelToken) -> bool {
    Identity::of(token).is_some_and(|identity| !identity.is_of_a_process())
}

/// The session, where it is the connection's own.
pub(crate) fn session(token: &CancelToken) -> Option<Session> {
    let identity = Identity::of(token).filter(|identity| identity.is_of_a_process())?;
    Some(identity.session)
}

/// The sessions that a dropped call has left with statements to run, and since when.
static LEFT: Mutex<Vec<(Session, Instant)>> = Mutex::new(Vec::new());
/// How many they are, so that a call that follows no drop asks nothing.
static LEFT_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Longer than what is left can take to run, where nobody uses the session again.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Notes that statements are on their way that a cancel request can hit in the place of what comes behind them.
pub(crate) fn note_left(token: &CancelToken) {
    let Some(Identity { session, .. }) = Identity::of(token) else {
        return;
    };
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.retain(|(other, since)| *other != session && since.elapsed() < FORGOTTEN);
    left.push((session, Instant::now()));
    LEFT_COUNT.store(left.len(), Ordering::Release);
}

/// Whether [`note_left`] was told of any session.
pub(crate) fn is_any_left() -> bool {
    LEFT_COUNT.load(Ordering::Acquire) > 0
}

/// Whether [`note_left`] was told of the session.
pub(crate) fn is_left(token: &CancelToken) -> bool {
    Identity::of(token).is_some_and(|identity| {
        let left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        left.iter().any(|(other, _)| *other == identity.session)
    })
}

/// What was left has run.
pub(crate) fn forget_left(token: &CancelToken) {
    let Some(Identity { session, .. }) = Identity::of(token) else {
        return;
    };
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.retain(|(other, _)| *other != session);
    LEFT_COUNT.store(left.len(), Ordering::Release);
}

/// How late a request may still be sent: what waits for it on the server waits no longer.
const LATEST: Duration = Duration::from_millis(150);

/// Sends the request; the answer is whether it was sent. Given up where connecting takes too long: a request that arrives late
/// hits what comes next.
pub(crate) async fn request(token: CancelToken) -> bool {
    let started = Instant::now();
    let mut sending: Request = match TLS.get() {
        Some(request) => request(token),
        None => Box::pin(async move { token.cancel_query(NoTls).await.is_ok() }),
    };
    // The request is written when it is polled behind its connection, so a look at the clock before that is enough.
    poll_fn(|context| {
        if started.elapsed() > LATEST {
            return Poll::Ready(false);
        }
        sending.as_mut().poll(context)
    })
    .await
}
