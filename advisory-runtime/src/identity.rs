//! Which session of the server is it? Its process id and its secret, which the server told it at its start.
//!
//! A cancel token keeps the two to itself, but writes them into any stream: here one that goes nowhere.

use crate::prepared::Session;
use std::future::{Ready, ready};
use std::io::Result;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::CancelToken;
use tokio_postgres::tls::{ChannelBinding, NoTls, TlsConnect, TlsStream};

/// What a session was told, and whether its cancel requests have to travel by TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) session: Session,
    pub(crate) needs_tls: bool,
}

/// Linux numbers processes up to 2^22, other systems lower. One random number of a thousand is below.
const LARGEST_PID: u32 = 1 << 22;

impl Identity {
    pub(crate) fn of(token: &CancelToken) -> Option<Self> {
        let mut paper = Paper::default();
        let needs_tls = !is_written(token.cancel_query_raw(&mut paper, NoTls));
        if needs_tls {
            paper = Paper::default();
            if !is_written(token.cancel_query_raw(&mut paper, AsItIs)) {
                return None;
            }
        }
        // Length, request code, process id, secret.
        let (rest, secret) = paper.written().split_last_chunk()?;
        let (_, process) = rest.split_last_chunk()?;
        let session = (u32::from_be_bytes(*process), u32::from_be_bytes(*secret));
        Some(Self { session, needs_tls })
    }

    /// Whether that process id can be one: a pooler makes them up.
    pub(crate) fn is_of_a_process(self) -> bool {
        (1..=LARGEST_PID).contains(&self.session.0)
    }
}

fn is_written<E>(request: impl Future<Output = std::result::Result<(), E>>) -> bool {
    let sent = pin!(request).poll(&mut Context::from_waker(Waker::noop()));
    matches!(sent, Poll::Ready(Ok(())))
}

/// What is written to it stays, and to whoever asks for TLS it says yes. A call asks at its start, so it takes no memory.
#[derive(Default)]
struct Paper {
    bytes: [u8; 32],
    length: usize,
}

impl Paper {
    fn written(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// A TLS that encrypts nothing, since nothing leaves the process.
struct AsItIs;

impl<S: TlsStream + Unpin> TlsConnect<S> for AsItIs {
    type Stream = S;
    type Error = std::convert::Infallible;
    type Future = Ready<std::result::Result<S, Self::Error>>;

    fn connect(self, stream: S) -> Self::Future {
        ready(Ok(stream))
    }
}

impl TlsStream for &mut Paper {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Paper {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        answer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        answer.put_slice(b"S");
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Paper {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let length = self.length;
        let room = self.bytes.get_mut(length..).unwrap_or_default();
        let fits = room.len().min(bytes.len());
        for (place, byte) in room.iter_mut().zip(bytes) {
            *place = *byte;
        }
        self.length += fits;
        // A request for TLS has 8 bytes, one to cancel 16. Where more is written, none of it fits, which is an error to the writer.
        Poll::Ready(Ok(fits))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }
}
