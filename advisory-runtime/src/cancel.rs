//! Cancel requests over TLS.
//!
//! A call that is dropped while a statement runs asks the server to cancel that statement. The request travels on a
//! connection of its own, which by default is made without TLS. Where the connection itself requires TLS (`sslmode=require`)
//! there is no such request: the statement goes on until it ends by itself, and the connection is closed behind it. A program
//! whose connections require TLS says once, before its first lock, how to make one:
//!
//! ```ignore
//! advisory_runtime::cancel::use_tls(tokio_postgres_rustls::MakeRustlsConnect::new(config));
//! ```

use std::pin::{Pin, pin};
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};
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
    match process_id(token) {
        Some(pid) => pid.cast_signed() > 0 && pid <= LARGEST_PID,
        None => TLS.get().is_some(),
    }
}

/// Linux numbers processes up to 2^22, other systems lower. One random number of a thousand is below.
const LARGEST_PID: u32 = 1 << 22;

/// What the session was told at its start. The token keeps it to itself, but writes it into any stream; unless the connection
/// requires TLS.
fn process_id(token: &CancelToken) -> Option<u32> {
    let mut written = Vec::new();
    {
        let stream = tokio::io::join(tokio::io::empty(), &mut written);
        let request = pin!(token.cancel_query_raw(stream, NoTls));
        let sent = request.poll(&mut Context::from_waker(Waker::noop()));
        if !matches!(sent, Poll::Ready(Ok(()))) {
            return None;
        }
    }
    // Length, request code, process id, secret.
    written.get(8..12)?.try_into().map(u32::from_be_bytes).ok()
}

/// Sends the request; the answer is whether it was sent.
pub(crate) async fn request(token: CancelToken) -> bool {
    match TLS.get() {
        Some(request) => request(token).await,
        None => token.cancel_query(NoTls).await.is_ok(),
    }
}
