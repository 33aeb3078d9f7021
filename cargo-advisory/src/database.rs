//! Connects the command to a database: `address` finds it, `session` connects to it, over `tls`.

mod address;
mod session;
mod tls;

pub(crate) use address::find;
pub(crate) use session::{Session, chain, connect, with_timeout};

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;

use advisory_runtime::Error;

use crate::failure::Failure;
use crate::screen::one_line;

/// Runs a future that uses a database, on this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Input(format!("cannot start: {error}")))?
        .block_on(work)
}

/// Runs the work; `None` if the signal comes first.
pub(crate) async fn unless<T>(
    mut signal: Pin<&mut impl Future<Output = io::Result<()>>>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|context| match signal.as_mut().poll(context) {
        Poll::Ready(_) => Poll::Ready(None),
        Poll::Pending => work.as_mut().poll(context).map(Some),
    })
    .await
}

/// The server's message with its causes, made safe for a terminal.
pub(crate) fn failure(error: &Error) -> Failure {
    Failure::Input(one_line(&chain(error)))
}

/// A role's name as an SQL identifier.
pub(crate) fn identifier(name: &str) -> String {
    let name = one_line(name);
    let is_plain = |at: usize, letter: char| {
        letter == '_' || letter.is_ascii_lowercase() || (at > 0 && letter.is_ascii_digit())
    };
    if name
        .chars()
        .enumerate()
        .all(|(at, letter)| is_plain(at, letter))
    {
        return name;
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}
