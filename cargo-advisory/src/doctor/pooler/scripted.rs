//! A server, or a pooler in front of one, that gives the answers of a test to `find`.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{Pooler, find};
use crate::database::block_on;

/// Connections are counted from 0, in the order in which they come.
#[derive(Clone, Copy)]
pub(super) struct Server {
    /// The maximum number of connections that it accepts.
    pub(super) connections: usize,
    /// The process ids that they get at their start.
    pub(super) startup_pids: [i32; 3],
    /// The processes that serve them before and after the last one begins a transaction.
    pub(super) pids: [i32; 3],
    pub(super) in_transaction: [i32; 3],
    /// True if their processes are older than the first of them.
    pub(super) is_older: bool,
    /// The error of `BEGIN`; empty if it is accepted.
    pub(super) refusal: &'static str,
    /// The answers to the second and the third connection when they try to acquire a lock, and to
    /// either when it releases one.
    pub(super) locked: [bool; 2],
    pub(super) is_released: bool,
}

impl Default for Server {
    /// PostgreSQL without a pooler.
    fn default() -> Self {
        Self {
            connections: 3,
            startup_pids: [11, 12, 13],
            pids: [11, 12, 13],
            in_transaction: [11, 12, 13],
            is_older: false,
            refusal: "",
            locked: [true, false],
            is_released: true,
        }
    }
}

impl Server {
    /// The result, the server processes, and the queries with their connections.
    pub(super) fn find(&self) -> (Pooler, BTreeSet<i32>, Vec<(usize, String)>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = format!("postgres://anyone@127.0.0.1:{port}/any?sslmode=disable");
        let (has_begun, queries) = (AtomicBool::new(false), Mutex::default());
        let is_over = AtomicBool::new(false);
        let found = thread::scope(|scope| {
            let (has_begun, queries, is_over) = (&has_begun, &queries, &is_over);
            scope.spawn(move || {
                for at in 0..self.connections {
                    let (socket, _) = listener.accept().unwrap();
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    scope.spawn(move || self.serve(at, socket, has_begun, queries).unwrap());
                }
            });
            let found = block_on(find(&address));
            is_over.store(true, Ordering::Relaxed);
            // Whoever still waits for a connection gets this one.
            drop(TcpStream::connect(("127.0.0.1", port)));
            found
        });
        let (pooler, seen) = found.unwrap_or_else(|failure| panic!("{failure}"));
        (pooler, seen, queries.into_inner().unwrap())
    }

    fn serve(
        &self,
        at: usize,
        mut socket: TcpStream,
        has_begun: &AtomicBool,
        queries: &Mutex<Vec<(usize, String)>>,
    ) -> io::Result<()> {
        packet(&mut socket)?;
        let key = [self.startup_pids[at].to_be_bytes(), [0; 4]].concat();
        let mut answer = [message(b'R', &[0; 4]), message(b'K', &key)].concat();
        loop {
            answer.extend(message(b'Z', b"I"));
            socket.write_all(&answer)?;
            let mut tag = [0];
            socket.read_exact(&mut tag)?;
            let query = packet(&mut socket)?;
            if tag != *b"Q" {
                return Ok(());
            }
            let query = String::from_utf8_lossy(&query).into_owned();
            answer = self.answer(at, &query, has_begun);
            queries.lock().unwrap().push((at, query));
        }
    }

    fn answer(&self, at: usize, query: &str, has_begun: &AtomicBool) -> Vec<u8> {
        let text = |is: bool| if is { "t" } else { "f" };
        if query.contains("pg_backend_pid") {
            let pids = if has_begun.load(Ordering::Relaxed) {
                self.in_transaction
            } else {
                self.pids
            };
            return row(&[&pids[at].to_string(), text(self.is_older), "1700000000"]);
        }
        if query.contains("pg_try_advisory_lock") {
            return row(&[text(self.locked[at - 1])]);
        }
        if query.contains("pg_advisory_unlock") {
            return row(&[text(self.is_released)]);
        }
        if query.starts_with("BEGIN") && !self.refusal.is_empty() {
            let fields = format!("SERROR\0C08P01\0M{}\0\0", self.refusal);
            return message(b'E', fields.as_bytes());
        }
        has_begun.store(query.starts_with("BEGIN"), Ordering::Relaxed);
        message(b'C', b"DONE\0")
    }
}

/// The rest of a message after its tag, without its length.
fn packet(socket: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let mut content = vec![0; u32::from_be_bytes(length) as usize - 4];
    socket.read_exact(&mut content)?;
    Ok(content)
}

fn message(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len() + 4).unwrap();
    [&[tag], length.to_be_bytes().as_slice(), content].concat()
}

/// The answer of a query for one row of texts.
fn row(values: &[&str]) -> Vec<u8> {
    let count = u16::try_from(values.len()).unwrap().to_be_bytes();
    let (mut head, mut data) = (count.to_vec(), count.to_vec());
    for value in values {
        // A column without a name. The simple protocol needs no type.
        head.extend([0; 19]);
        data.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
        data.extend(value.as_bytes());
    }
    [
        message(b'T', &head),
        message(b'D', &data),
        message(b'C', b"SELECT 1\0"),
    ]
    .concat()
}
