//! PostgreSQL's messages: the framing of protocol version 3, and the sockets that speak it.
//!
//! <https://www.postgresql.org/docs/current/protocol-message-formats.html>

use std::fmt::Write;
use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::Config;
use tokio_postgres::config::Host;

const CANCEL_REQUEST: u32 = 80_877_102;
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;

/// Both directions of a socket of any kind.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// The first packet of a connection, which has no tag.
pub(crate) struct Opening {
    pub(crate) bytes: Vec<u8>,
    /// A request to cancel the statement of another session.
    pub(crate) is_cancel: bool,
}

impl Opening {
    /// Reads it, and refuses encryption, since the proxy has to read the messages. With `wants_tls`
    /// it agrees, and refuses clients that did not ask; what follows is not encrypted either way.
    pub(crate) async fn read(
        client: &mut (impl AsyncRead + Unpin),
        answer: &mut (impl AsyncWrite + Unpin),
        wants_tls: bool,
    ) -> io::Result<Self> {
        let mut has_tls = false;
        loop {
            let length = client.read_u32().await?;
            let code = client.read_u32().await?;
            if matches!(code, SSL_REQUEST | GSS_REQUEST) {
                has_tls = wants_tls && code == SSL_REQUEST;
                answer.write_all(if has_tls { b"S" } else { b"N" }).await?;
                continue;
            }
            if wants_tls && !has_tls {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let mut bytes = [length.to_be_bytes(), code.to_be_bytes()].concat();
            read_rest(client, &mut bytes, length, 8).await?;
            return Ok(Self {
                bytes,
                is_cancel: code == CANCEL_REQUEST,
            });
        }
    }
}

/// The next message: tag, length and content unchanged; `None` at the end of the connection.
pub(crate) async fn message(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    let tag = match from.read_u8().await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        tag => tag?,
    };
    let length = from.read_u32().await?;
    let mut bytes = vec![tag];
    bytes.extend(length.to_be_bytes());
    read_rest(from, &mut bytes, length, 4).await?;
    Ok(Some(bytes))
}

/// Reads the rest of a packet of `length` bytes, `had` of which have been read.
async fn read_rest(
    from: &mut (impl AsyncRead + Unpin),
    bytes: &mut Vec<u8>,
    length: u32,
    had: u32,
) -> io::Result<()> {
    let rest = length.checked_sub(had).ok_or(io::ErrorKind::InvalidData)?;
    let read = from.take(rest.into()).read_to_end(bytes).await?;
    if u32::try_from(read) == Ok(rest) {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// Returns whether the server has answered, and waits for the next request.
pub(crate) fn is_ready_for_query(answer: &[u8]) -> bool {
    answer.first() == Some(&b'Z')
}

/// Returns whether this is `BackendKeyData`: the process id and the secret for a cancel request.
pub(crate) fn is_cancel_key(answer: &[u8]) -> bool {
    answer.first() == Some(&b'K')
}

/// Changes the process id of a `BackendKeyData` or a `CancelRequest`.
pub(crate) fn renumber(message: &mut [u8], number: impl FnOnce(u32) -> u32) {
    // After the tag and the length of the first; after the length and the code of the second.
    let at = if is_cancel_key(message) { 5 } else { 8 };
    if let Some(id) = message.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *id = number(u32::from_be_bytes(*id)).to_be_bytes();
    }
}

/// Returns whether this is an `ErrorResponse`, which `ReadyForQuery` or the end of the connection
/// follows.
pub(crate) fn is_error(answer: &[u8]) -> bool {
    answer.first() == Some(&b'E')
}

/// Returns whether the server sends `ReadyForQuery` after this: Query, Sync and `FunctionCall` of
/// the client.
pub(crate) fn asks_for_ready(request: &[u8]) -> bool {
    matches!(request.first(), Some(b'Q' | b'S' | b'F'))
}

/// Returns whether this asks for an answer by itself, as any message except Sync and Close does.
pub(crate) fn is_wish(request: &[u8]) -> bool {
    !matches!(request.first(), Some(b'S' | b'C'))
}

/// The text of a simple query.
pub(crate) fn simple_query(request: &[u8]) -> Option<String> {
    let text = request.strip_prefix(b"Q")?.get(4..)?;
    Some(String::from_utf8_lossy(text.strip_suffix(b"\0")?).into_owned())
}

/// A simple query.
pub(crate) fn query(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len() + 5).expect("a text that fits into a message");
    [b"Q", &length.to_be_bytes()[..], text.as_bytes(), b"\0"].concat()
}

/// The request to prepare another statement without parameters under the name of this one.
pub(crate) fn prepare_instead(request: &[u8], text: &str) -> Vec<u8> {
    let mut parts = request
        .get(5..)
        .unwrap_or_default()
        .split(|byte| *byte == 0);
    let name = parts.next().unwrap_or_default();
    let body = [name, b"\0", text.as_bytes(), b"\0\0\0"].concat();
    let length = u32::try_from(body.len() + 4).expect("a text that fits into a message");
    [b"P", &length.to_be_bytes()[..], &body].concat()
}

/// Returns whether `message` contains `text`.
pub(crate) fn contains(message: &[u8], text: &str) -> bool {
    message
        .windows(text.len().max(1))
        .any(|window| window == text.as_bytes())
}

/// Connects to the first address of `server`.
pub(crate) async fn connect(server: &Config) -> io::Result<Box<dyn Wire>> {
    let port = server.get_ports().first().copied().unwrap_or(5432);
    match server.get_hosts().first() {
        Some(Host::Unix(folder)) => Ok(Box::new(
            UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).await?,
        )),
        Some(Host::Tcp(name)) => {
            let stream = TcpStream::connect((name.as_str(), port)).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream))
        }
        None => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the database's address has no host",
        )),
    }
}

/// The address of the database in `server`, through `socket`.
pub(crate) fn address(server: &Config, socket: SocketAddr) -> String {
    let password = server.get_password().map(String::from_utf8_lossy);
    let parts = [
        ("user", server.get_user()),
        ("password", password.as_deref()),
        ("dbname", server.get_dbname()),
        ("options", server.get_options()),
    ];
    let mut address = format!("host={} port={}", socket.ip(), socket.port());
    for (name, value) in parts {
        if let Some(value) = value {
            let value = value.replace('\\', "\\\\").replace('\'', "\\'");
            write!(address, " {name}='{value}'").expect("a string takes any text");
        }
    }
    address
}
