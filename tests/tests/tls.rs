//! Cancel requests to a server that accepts only TLS. A binary of its own: `use_tls` applies to the
//! whole process.
#![allow(
    clippy::unwrap_used,
    reason = "a helper of a test that cannot go on fails the test"
)]

use advisory_runtime::{Error, cancel, session, xact};
use advisory_tests::{Database, Proxy, assert_error};
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io::Result as IoResult;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

/// A TLS that encrypts nothing. This test is about who requests it.
#[derive(Clone)]
struct Clear;

struct Stream<S>(S);

impl<S> MakeTlsConnect<S> for Clear
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    type Stream = Stream<S>;
    type TlsConnect = Self;
    type Error = Infallible;

    fn make_tls_connect(&mut self, _: &str) -> Result<Self, Infallible> {
        Ok(Self)
    }
}

impl<S> TlsConnect<S> for Clear
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    type Stream = Stream<S>;
    type Error = Infallible;
    type Future = Ready<Result<Stream<S>, Infallible>>;

    fn connect(self, stream: S) -> Self::Future {
        ready(Ok(Stream(stream)))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<IoResult<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<IoResult<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<IoResult<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<IoResult<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

async fn connect(url: &str) -> AsyncPgConnection {
    let url = format!("{url} sslmode=require");
    let (client, connection) = tokio_postgres::connect(&url, Clear).await.unwrap();
    AsyncPgConnection::try_from_client_and_connection(client, connection)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_requests_use_tls_if_the_server_requires_it() {
    let db = Database::create().await;
    // This ends a wait whose client has gone and sent no cancel request.
    db.set("client_connection_check_interval = 1000").await;
    let proxy = Proxy::start(&db).await;
    proxy.want_tls();
    assert!(AsyncPgConnection::establish(proxy.url()).await.is_err());
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, 7).await.unwrap();

    // TLS is not set up: the wait cannot be ended, so its connection must not be reused.
    let mut conn = connect(proxy.url()).await;
    tokio::select! {
        biased;
        _ = xact::begin(&mut conn, 7) => panic!("it did not wait"),
        () = db.until_waiting(7) => {}
    }
    assert_error!(xact::begin(&mut conn, 8).await, BrokenConnection);
    // The server notices that its client has gone.
    drop(conn);
    db.until_no_waiters(7).await;

    // And a call does not wait for a request that it cannot send.
    let mut conn = connect(proxy.url()).await;
    let mut outer = xact::begin(&mut conn, 8).await.unwrap();
    tokio::select! {
        biased;
        _ = xact::begin(outer.conn(), 7) => panic!("it did not wait"),
        () = db.until_waiting(7) => {}
    }
    assert_error!(outer.finish(Ok::<_, Error>(())).await, RolledBack);
    drop(conn);
    db.until_no_waiters(7).await;

    assert!(cancel::use_tls(Clear));
    assert!(!cancel::use_tls(Clear), "the first call counts");
    for is_session in [false, true] {
        let mut conn = connect(proxy.url()).await;
        let waiting = async {
            if is_session {
                session::acquire(&mut conn, 7).await.map(drop)
            } else {
                xact::begin(&mut conn, 7).await.map(drop)
            }
        };
        tokio::select! {
            biased;
            _ = waiting => panic!("it did not wait"),
            () = db.until_waiting(7) => {}
        }
        // Its client still exists: only the request ends the wait.
        db.until_no_waiters(7).await;
        drop(conn);
    }
    held.finish(Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
}
