//! What a session was told at its start: the process id that a cancel request names.
//!
//! A cancel token keeps it to itself, but writes it into any stream: here one that goes nowhere.

use std::future::{Ready, ready};
use std::io::Result;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::CancelToken;
use tokio_postgres::tls::{ChannelBinding, NoTls, TlsConnect, TlsStream};

/// The process id, and whether cancel requests have to travel by TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CancelKey {
    pub(super) process: u32,
    pub(super) needs_tls: bool,
}

/// Linux numbers processes up to 2^22, other systems lower. One random number of a thousand is below.
const LARGEST_PROCESS_ID: u32 = 1 << 22;

impl CancelKey {
    pub(super) fn of(token: &CancelToken) -> Option<Self> {
        let mut written = Written::default();
        let needs_tls = !is_sent(token.cancel_query_raw(&mut written, NoTls));
        if needs_tls {
            written = Written::default();
            if !is_sent(token.cancel_query_raw(&mut written, NoEncryption)) {
                return None;
            }
        }
        let process = written.process_id(needs_tls)?;
        Some(Self { process, needs_tls })
    }

    /// Whether a process can have this id: a pooler makes them up.
    pub(super) fn is_of_a_process(self) -> bool {
        (1..=LARGEST_PROCESS_ID).contains(&self.process)
    }
}

fn is_sent<E>(request: impl Future<Output = std::result::Result<(), E>>) -> bool {
    let sent = pin!(request).poll(&mut Context::from_waker(Waker::noop()));
    matches!(sent, Poll::Ready(Ok(())))
}

/// A stream that keeps the first bytes of what is written, and answers a request for TLS with yes.
#[derive(Default)]
struct Written {
    bytes: [u8; 24],
    length: usize,
}

impl Written {
    /// A request to cancel is its length, a code, the process id, and a secret of 4 bytes, or up to 256 since protocol 3.2. A
    /// request for TLS, of 8 bytes, comes before it. So the process id is found from the front.
    fn process_id(&self, follows_tls_request: bool) -> Option<u32> {
        let at = if follows_tls_request { 16 } else { 8 };
        let id = self.bytes.get(at..at + 4)?.first_chunk()?;
        (self.length >= at + 4).then(|| u32::from_be_bytes(*id))
    }
}

/// A TLS that encrypts nothing, since nothing leaves the process.
struct NoEncryption;

impl<S: TlsStream + Unpin> TlsConnect<S> for NoEncryption {
    type Stream = S;
    type Error = std::convert::Infallible;
    type Future = Ready<std::result::Result<S, Self::Error>>;

    fn connect(self, stream: S) -> Self::Future {
        ready(Ok(stream))
    }
}

impl TlsStream for &mut Written {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Written {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        answer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        answer.put_slice(b"S");
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Written {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let length = self.length;
        let room = self.bytes.get_mut(length..).unwrap_or_default();
        for (place, byte) in room.iter_mut().zip(bytes) {
            *place = *byte;
        }
        self.length += bytes.len();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::Written;
    use std::pin::Pin;
    use std::task::{Context, Waker};
    use tokio::io::AsyncWrite;

    fn written(requests: &[&[u8]]) -> Written {
        let mut written = Written::default();
        for request in requests {
            let mut context = Context::from_waker(Waker::noop());
            assert!(
                Pin::new(&mut written)
                    .poll_write(&mut context, request)
                    .is_ready()
            );
        }
        written
    }

    fn cancel(secret: usize) -> Vec<u8> {
        let length = u32::try_from(12 + secret).unwrap();
        let mut request = length.to_be_bytes().to_vec();
        request.extend(80_877_102_u32.to_be_bytes());
        request.extend(4_711_u32.to_be_bytes());
        request.extend(vec![0xAB; secret]);
        request
    }

    #[test]
    fn the_process_id_is_read_before_a_secret_of_any_length() {
        for secret in [0, 4, 32, 256] {
            let plain = written(&[&cancel(secret)]);
            assert_eq!(plain.process_id(false), Some(4_711), "{secret}");
            let tls_request = [0, 0, 0, 8, 4, 210, 22, 47];
            let encrypted = written(&[&tls_request, &cancel(secret)]);
            assert_eq!(encrypted.process_id(true), Some(4_711), "{secret}");
        }
    }

    #[test]
    fn a_request_that_ends_early_has_no_process_id() {
        assert_eq!(written(&[&[0, 0, 0, 8]]).process_id(false), None);
    }
}
