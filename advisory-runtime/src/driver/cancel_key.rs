//! The process id that a session received at its start, which a cancel request names.
//!
//! A cancel token keeps it to itself, but writes it into any stream: here one that goes nowhere. An
//! id that cannot be read counts as missing: no request is sent then, and a session-level lock is
//! refused until `session::verify` has shown that the sessions are kept.
//!
//! The number alone does not say whether a pooler made it up: some count their clients. Only the
//! server can, by its own.

use std::future::{Ready, ready};
use std::io::Result;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::CancelToken;
use tokio_postgres::tls::{ChannelBinding, NoTls, TlsConnect, TlsStream};

/// The process id that a session received at its start. Behind a pooler it is not the server's.
/// `None` if the server sent none, as some proxies do, or if this version of tokio-postgres writes
/// a request that is not understood here.
#[must_use]
pub fn startup_process_id(token: &CancelToken) -> Option<u32> {
    // With a TLS that answers yes, a request is written whether it needs TLS or not.
    let mut written = Written::answered(b"S");
    is_sent(token.cancel_query_raw(&mut written, NoEncryption));
    written.process_id()
}

/// Returns whether requests must use TLS.
pub(super) fn needs_tls(token: &CancelToken) -> bool {
    !is_sent(token.cancel_query_raw(&mut Written::answered(b"S"), NoTls))
}

fn is_sent<E>(request: impl Future<Output = std::result::Result<(), E>>) -> bool {
    let sent = pin!(request).poll(&mut Context::from_waker(Waker::noop()));
    matches!(sent, Poll::Ready(Ok(())))
}

/// A stream that keeps the first bytes of what is written, and from which `answer` is read: `S` for
/// a request for TLS.
struct Written<'a> {
    bytes: [u8; 24],
    length: usize,
    answer: &'a [u8],
}

/// A request for TLS, as a whole.
const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// The code after the length of a request to cancel.
const CANCEL_CODE: [u8; 4] = 80_877_102_u32.to_be_bytes();

impl<'a> Written<'a> {
    const fn answered(answer: &'a [u8]) -> Self {
        Self {
            bytes: [0; 24],
            length: 0,
            answer,
        }
    }

    /// A request to cancel is its length, a code, the process id, and a secret of 4 bytes, or up to
    /// 256 since protocol 3.2. A request for TLS can come before it. So the process id is found
    /// from the front. Clients that received none write a zero.
    fn process_id(&self) -> Option<u32> {
        let written = self.bytes.get(..self.length).unwrap_or(&self.bytes);
        let request = written.strip_prefix(&TLS_REQUEST).unwrap_or(written);
        let (_length, rest) = request.split_first_chunk::<4>()?;
        let id = rest.strip_prefix(&CANCEL_CODE)?.first_chunk()?;
        Some(u32::from_be_bytes(*id)).filter(|id| *id != 0)
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

impl TlsStream for &mut Written<'_> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Written<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        read: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let (now, later) = self
            .answer
            .split_at(read.remaining().min(self.answer.len()));
        read.put_slice(now);
        self.answer = later;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Written<'_> {
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
    use super::{CANCEL_CODE, NoEncryption, TLS_REQUEST, Written, needs_tls, startup_process_id};
    use std::pin::Pin;
    use std::task::{Context, Waker};
    use tokio::io::AsyncWrite as _;
    use tokio_postgres::config::{SslMode, SslNegotiation};
    use tokio_postgres::{CancelToken, Config, Error};

    const PROCESS: u32 = 4_711;

    /// One message of the start-up: a letter, the length, the content.
    fn message(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u32::try_from(content.len() + 4).unwrap();
        [&[tag], &length.to_be_bytes()[..], content].concat()
    }

    /// The token of a session to which the server has sent this key.
    fn token(config: &Config, key: Option<Vec<u8>>) -> Result<CancelToken, Error> {
        let is_asked_for_tls = config.get_ssl_mode() != SslMode::Disable
            && config.get_ssl_negotiation() == SslNegotiation::Postgres;
        let mut answer = if is_asked_for_tls {
            vec![b'S']
        } else {
            Vec::new()
        };
        answer.extend(message(b'R', &0_u32.to_be_bytes()));
        answer.extend(key.map(|key| message(b'K', &key)).unwrap_or_default());
        answer.extend(message(b'Z', b"I"));
        let mut client = Written::answered(&answer);
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let connecting = config.connect_raw(&mut client, NoEncryption);
        let connected = runtime.unwrap().block_on(connecting);
        connected.map(|(client, _)| client.cancel_token())
    }

    /// Every way in which the client asks for TLS, and whether requests have to.
    fn configs() -> [(Config, bool); 4] {
        use SslNegotiation::{Direct, Postgres};
        let config = |mode, negotiation| {
            let mut config = Config::new();
            config.user("ada");
            config.ssl_mode(mode).ssl_negotiation(negotiation);
            config
        };
        [
            (config(SslMode::Disable, Postgres), false),
            (config(SslMode::Prefer, Postgres), false),
            (config(SslMode::Require, Postgres), true),
            (config(SslMode::Require, Direct), true),
        ]
    }

    fn key_data(secret: usize) -> Vec<u8> {
        [&PROCESS.to_be_bytes()[..], &vec![0xAB; secret]].concat()
    }

    /// Fails when a new tokio-postgres writes its requests in another way: then no call sends one,
    /// and session-level locks are refused.
    #[test]
    fn the_process_id_is_read_off_the_token_of_the_client_in_use() {
        for (config, is_required) in configs() {
            for secret in [4, 32, 256] {
                match token(&config, Some(key_data(secret))) {
                    Ok(token) => {
                        let told = (startup_process_id(&token), needs_tls(&token));
                        let expected = (Some(PROCESS), is_required);
                        assert_eq!(told, expected, "{secret}, {config:?}");
                    }
                    // A client of protocol 3.0, to whom no server sends such a key.
                    Err(error) => assert_ne!(secret, 4, "{error}, {config:?}"),
                }
            }
        }
    }

    #[test]
    fn a_server_that_tells_no_process_id_is_not_taken_for_a_process() {
        for (config, _) in configs() {
            let told = startup_process_id(&token(&config, None).unwrap());
            assert_eq!(told, None, "{config:?}");
        }
    }

    fn written(requests: &[&[u8]]) -> Written<'static> {
        let mut written = Written::answered(b"");
        for request in requests {
            let mut context = Context::from_waker(Waker::noop());
            let sent = Pin::new(&mut written).poll_write(&mut context, request);
            assert!(sent.is_ready());
        }
        written
    }

    fn cancel(secret: usize) -> Vec<u8> {
        let length = u32::try_from(12 + secret).unwrap().to_be_bytes();
        [&length[..], &CANCEL_CODE, &key_data(secret)].concat()
    }

    #[test]
    fn the_process_id_is_read_before_a_secret_of_any_length() {
        for secret in [0, 4, 32, 256] {
            let plain = written(&[&cancel(secret)]);
            assert_eq!(plain.process_id(), Some(PROCESS), "{secret}");
            let encrypted = written(&[&TLS_REQUEST, &cancel(secret)]);
            assert_eq!(encrypted.process_id(), Some(PROCESS), "{secret}");
        }
    }

    #[test]
    fn what_is_not_understood_has_no_process_id() {
        let none = [0; 4];
        let of_nobody = [&cancel(0)[..8], &none, &none].concat();
        let other_code = [&[0, 0, 0, 16, 4, 210, 22, 99], &key_data(4)[..]].concat();
        for request in [&[0, 0, 0, 8][..], &TLS_REQUEST, &of_nobody, &other_code] {
            assert_eq!(written(&[request]).process_id(), None, "{request:?}");
        }
    }
}
