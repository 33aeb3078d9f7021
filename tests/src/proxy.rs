//! What crosses the wire, and what if the wire breaks? A proxy in front of a test's database.
//!
//! It knows PostgreSQL's message framing and nothing else: it counts answers, notes simple queries, and can cut
//! the connection before a message or before its answer, have a message cancelled, or hold everything back. `wire` reads the messages.

mod connection;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::Config;

use crate::{Database, wire};
use connection::accept;

/// A proxy on a port of this machine, in front of one [`Database`]; gone, with its connections, when dropped.
pub struct Proxy {
    url: String,
    address: SocketAddr,
    record: Arc<Record>,
    accepting: JoinHandle<()>,
}

/// What the connections of one proxy share.
struct Record {
    seen: Mutex<Seen>,
    flowing: watch::Sender<bool>,
    /// How often all connections were cut.
    cuts: watch::Sender<usize>,
    wants_tls: AtomicBool,
    hides_cancel_keys: AtomicBool,
    numbers: Mutex<Numbers>,
    door: watch::Sender<Door>,
}

/// What happens to new connections.
#[derive(Clone, Copy, PartialEq)]
enum Door {
    Open,
    /// The system refuses them.
    Closed,
    /// Nobody accepts them: the system queues some, and does not answer the others.
    Unattended,
}

/// The process ids that sessions are told instead of their server's.
#[derive(Default)]
struct Numbers {
    next: Option<Box<dyn Iterator<Item = u32> + Send>>,
    /// The server's own, by the one that was told.
    server: HashMap<u32, u32>,
}

impl Numbers {
    /// The number for a session of this process.
    fn tell(&mut self, process: u32) -> u32 {
        let Some(told) = self.next.as_mut().and_then(Iterator::next) else {
            return process;
        };
        self.server.insert(told, process);
        told
    }
}

/// How many connections the system accepts by itself for a proxy that accepts none.
const QUEUE: u32 = 64;

/// How long a connection to this machine may take, before the system is taken not to answer.
const UNANSWERED: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Seen {
    round_trips: usize,
    cancel_requests: usize,
    queries: Vec<String>,
    fault: Option<Fault>,
}

/// What happens to the next message that contains `text`.
struct Fault {
    text: String,
    kind: FaultKind,
}

#[derive(Clone, Copy)]
enum FaultKind {
    /// The connection breaks, and the server never gets the message.
    CutBefore,
    /// The connection breaks when the server has carried the message out.
    CutAfter,
    /// The server cancels it.
    Cancel,
}

impl Proxy {
    /// Opens a proxy in front of `database`.
    ///
    /// # Panics
    ///
    /// When this machine has no free port, or the database's address is not understood.
    pub async fn start(database: &Database) -> Self {
        Self::before(database.url()).await
    }

    /// Opens a proxy in front of any address, such as that of a database of an [`OwnServer`](crate::OwnServer).
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    #[expect(
        clippy::unused_async,
        reason = "what it registers needs the caller's runtime"
    )]
    pub async fn before(url: &str) -> Self {
        let server: Config = url.parse().expect("the database's address");
        let socket = TcpSocket::new_v4().expect("a socket");
        socket
            .bind((Ipv4Addr::LOCALHOST, 0).into())
            .expect("a port");
        let listener = socket.listen(QUEUE).expect("a port to listen on");
        let address = listener.local_addr().expect("the port's number");
        let url = wire::address(&server, address);
        let record = Arc::new(Record {
            seen: Mutex::default(),
            flowing: watch::Sender::new(true),
            cuts: watch::Sender::new(0),
            wants_tls: AtomicBool::new(false),
            hides_cancel_keys: AtomicBool::new(false),
            numbers: Mutex::default(),
            door: watch::Sender::new(Door::Open),
        });
        let accepting = tokio::spawn(accept(listener, server, Arc::clone(&record)));
        Self {
            url,
            address,
            record,
            accepting,
        }
    }

    /// The address of the database by way of this proxy, for `AsyncPgConnection::establish` and pools.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// How often the server said `ReadyForQuery` to all that the client had sent, since the start or [`Self::reset`], start-ups
    /// not counted.
    ///
    /// One simple query or one `Sync` is one, however many statements are in it, and so are several that were sent without
    /// waiting in between. It is counted before the answer is passed on. A client that drops a prepared statement tells the
    /// server later, and nobody waits: that is not counted. Nor are the library's checks of debug builds.
    #[must_use]
    pub fn round_trips(&self) -> usize {
        self.record.seen().round_trips
    }

    /// The texts of the simple queries since the start or [`Self::reset`], but for the library's checks of debug builds.
    #[must_use]
    pub fn queries(&self) -> Vec<String> {
        self.record.seen().queries.clone()
    }

    /// Forgets what was counted and noted. What was said about cutting stays.
    pub fn reset(&self) {
        let mut seen = self.record.seen();
        seen.round_trips = 0;
        seen.queries.clear();
    }

    /// From here on accepts only what asks for TLS first, sessions and cancel requests alike, as some servers of clouds do. It
    /// says yes and goes on in clear text: the client has to bring a TLS that does nothing.
    pub fn want_tls(&self) {
        self.record.wants_tls.store(true, Ordering::Relaxed);
    }

    /// From here on tells new sessions no process id and no secret, as proxies do behind which nothing can be cancelled.
    pub fn hide_cancel_keys(&self) {
        self.record.hides_cancel_keys.store(true, Ordering::Relaxed);
    }

    /// From here on tells new sessions these process ids instead of the server's, as poolers do that number their clients. A cancel
    /// request that names one of them is passed on with the server's.
    pub fn renumber<N>(&self, numbers: N)
    where
        N: IntoIterator<Item = u32>,
        N::IntoIter: Send + 'static,
    {
        self.record.numbers().next = Some(Box::new(numbers.into_iter()));
    }

    /// How many cancel requests have come, since the start.
    #[must_use]
    pub fn cancel_requests(&self) -> usize {
        self.record.seen().cancel_requests
    }

    /// Breaks the next connection that sends a message with `text` in it, once; the server never gets the message.
    pub fn cut_before(&self, text: &str) {
        self.fail(text, FaultKind::CutBefore);
    }

    /// Breaks the next connection that sends a message with `text` in it, once, after the server has carried it out:
    /// the client never hears.
    pub fn cut_after_forwarding(&self, text: &str) {
        self.fail(text, FaultKind::CutAfter);
    }

    /// Has the server cancel the next simple query with `text` in it, once, before it has done anything: SQLSTATE 57014.
    pub fn cancel(&self, text: &str) {
        self.fail(text, FaultKind::Cancel);
    }

    fn fail(&self, text: &str, kind: FaultKind) {
        let text = text.to_owned();
        self.record.seen().fault = Some(Fault { text, kind });
    }

    /// Breaks every open connection, at any point; new ones are accepted.
    pub fn cut_all(&self) {
        self.record.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Holds everything back from now on, both ways, with the connections open: a network that drops packets.
    pub fn stop_forwarding(&self) {
        self.record.flowing.send_replace(false);
    }

    /// Refuses new connections, cancel requests among them; those that there are go on.
    pub async fn refuse_connections(&self) {
        self.record.door.send_replace(Door::Closed);
        // The listener is gone once nobody looks at the door any more.
        self.record.door.closed().await;
    }

    /// Holds everything back from now on, as [`Self::stop_forwarding`] does, and answers no new connection, cancel requests among
    /// them: a firewall that drops packets. The connections that fill the system's queue end with what is returned.
    ///
    /// # Panics
    ///
    /// When this machine refuses a connection.
    pub async fn swallow_everything(&self) -> Vec<TcpStream> {
        self.stop_forwarding();
        self.record.door.send_replace(Door::Unattended);
        let mut queued = Vec::new();
        while let Ok(connected) = timeout(UNANSWERED, TcpStream::connect(self.address)).await {
            queued.push(connected.expect("a connection to this machine"));
        }
        queued
    }

    /// Passes on what was held back, and what follows.
    pub fn resume_forwarding(&self) {
        self.record.flowing.send_replace(true);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The connections are a set that the accepting task owns: they end with it.
        self.accepting.abort();
    }
}

impl Record {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn until_flowing(&self) {
        // The sender is in `self`, so waiting for it cannot fail.
        drop(self.flowing.subscribe().wait_for(|flowing| *flowing).await);
    }
}
