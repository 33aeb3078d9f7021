//! A proxy in front of a test's database: it shows what crosses the wire, and breaks connections.
//!
//! It knows only PostgreSQL's message framing. It counts answers, records simple queries, and can
//! cut the connection before a message or before its answer, have a message cancelled, or hold all
//! traffic back. `wire` reads the messages.

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

/// A proxy on a port of this machine, in front of one [`Database`]. Dropping this closes it and its
/// connections.
pub struct Proxy {
    url: String,
    address: SocketAddr,
    record: Arc<Record>,
    accepting: JoinHandle<()>,
}

/// The state that the connections of one proxy share.
struct Record {
    seen: Mutex<Seen>,
    flowing: watch::Sender<bool>,
    /// How often all connections were cut.
    cuts: watch::Sender<usize>,
    /// How often all open connections were stalled.
    stalls: watch::Sender<usize>,
    wants_tls: AtomicBool,
    hides_cancel_keys: AtomicBool,
    numbers: Mutex<Numbers>,
    door: watch::Sender<Door>,
}

/// The treatment of new connections.
#[derive(Clone, Copy, PartialEq)]
enum Door {
    Open,
    /// The system refuses them.
    Closed,
    /// They are not accepted: the system queues some, and does not answer the others.
    Unattended,
}

/// The process ids that sessions see instead of their server's.
#[derive(Default)]
struct Numbers {
    next: Option<Box<dyn Iterator<Item = u32> + Send>>,
    /// The server's own number, by the one that the session sees.
    server: HashMap<u32, u32>,
}

impl Numbers {
    /// The number for a session of this process.
    fn tell(&mut self, process: u32) -> u32 {
        let Some(shown) = self.next.as_mut().and_then(Iterator::next) else {
            return process;
        };
        self.server.insert(shown, process);
        shown
    }
}

/// How many connections the system accepts by itself while the proxy accepts none.
const QUEUE: u32 = 64;

/// How long a connection to this machine may take until the system is considered not to answer.
const UNANSWERED: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Seen {
    round_trips: usize,
    cancel_requests: usize,
    queries: Vec<String>,
    faults: Vec<Fault>,
}

/// Fails like a cancelled statement.
const CANCELLED: &str = "DO LANGUAGE plpgsql $$BEGIN \
    RAISE EXCEPTION USING ERRCODE = '57014', MESSAGE = 'canceling statement due to user request'; END$$";

/// The treatment of the next message that contains `text`.
struct Fault {
    text: String,
    kind: FaultKind,
}

#[derive(Clone, Copy)]
enum FaultKind {
    /// The connection is cut, and the server never gets the message.
    CutBefore,
    /// The connection is cut after the server has executed the message.
    CutAfter,
    /// The server gets this query instead.
    Replace(&'static str),
    /// The server prepares this query instead.
    Prepare(&'static str),
}

impl Proxy {
    /// Opens a proxy in front of `database`.
    pub async fn start(database: &Database) -> Self {
        Self::before(database.url()).await
    }

    /// Opens a proxy in front of any address, such as that of a database of an
    /// [`OwnServer`](crate::OwnServer).
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
            stalls: watch::Sender::new(0),
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

    /// The address of the database through this proxy, for `AsyncPgConnection::establish` and
    /// pools.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// How often the server sent `ReadyForQuery` after everything that the client had sent, since
    /// the start or [`Self::reset`], without start-ups.
    ///
    /// One simple query or one `Sync` counts once, however many statements it contains, and so do
    /// several that were sent without waiting in between. It is counted before the answer is
    /// forwarded. A client that drops a prepared statement tells the server later without waiting,
    /// which is not counted. The library's checks of debug builds are not counted either.
    pub fn round_trips(&self) -> usize {
        self.record.seen().round_trips
    }

    /// The texts of the simple queries since the start or [`Self::reset`], without the library's
    /// checks of debug builds.
    pub fn queries(&self) -> Vec<String> {
        self.record.seen().queries.clone()
    }

    /// Resets the counts and the recorded queries. Pending cuts stay.
    pub fn reset(&self) {
        let mut seen = self.record.seen();
        seen.round_trips = 0;
        seen.queries.clear();
    }

    /// From now on accepts only connections that request TLS first, sessions and cancel requests
    /// alike, as some cloud servers do. It agrees and continues in clear text: the client has to
    /// use a TLS that does nothing.
    pub fn want_tls(&self) {
        self.record.wants_tls.store(true, Ordering::Relaxed);
    }

    /// From now on sends new sessions no process id and no secret, like proxies through which
    /// nothing can be cancelled.
    pub fn hide_cancel_keys(&self) {
        self.record.hides_cancel_keys.store(true, Ordering::Relaxed);
    }

    /// From now on sends new sessions these process ids instead of the server's, like poolers that
    /// number their clients. A cancel request with one of them is forwarded with the server's.
    pub fn renumber<N>(&self, numbers: N)
    where
        N: IntoIterator<Item = u32>,
        N::IntoIter: Send + 'static,
    {
        self.record.numbers().next = Some(Box::new(numbers.into_iter()));
    }

    /// How many cancel requests have arrived since the start.
    pub fn cancel_requests(&self) -> usize {
        self.record.seen().cancel_requests
    }

    /// Cuts the next connection that sends a message that contains `text`, once; the server never
    /// gets the message.
    pub fn cut_before(&self, text: &str) {
        self.fail(text, FaultKind::CutBefore);
    }

    /// Cuts the next connection that sends a message that contains `text`, once, after the server
    /// has executed it: the client never gets the answer.
    pub fn cut_after_forwarding(&self, text: &str) {
        self.fail(text, FaultKind::CutAfter);
    }

    /// Makes the server cancel the next simple query that contains `text`, once, before it has done
    /// anything: SQLSTATE 57014.
    pub fn cancel(&self, text: &str) {
        self.replace(text, CANCELLED);
    }

    /// Makes the server execute another query instead of the next simple query that contains
    /// `text`, once.
    pub fn replace(&self, text: &str, by: &str) {
        self.fail(text, FaultKind::Replace(by.to_owned().leak()));
    }

    /// Makes the server prepare another query without parameters instead of the next one that
    /// contains `text`, once.
    pub fn prepare_instead(&self, text: &str, by: &'static str) {
        self.fail(text, FaultKind::Prepare(by));
    }

    fn fail(&self, text: &str, kind: FaultKind) {
        let text = text.to_owned();
        self.record.seen().faults.push(Fault { text, kind });
    }

    /// Cuts every open connection, at any point; new ones are accepted.
    pub fn cut_all(&self) {
        self.record.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Holds back all traffic of the connections that are open now, until they are cut: a network
    /// that has lost them. New ones work.
    pub fn stall_open_connections(&self) {
        self.record.stalls.send_modify(|stalls| *stalls += 1);
    }

    /// Holds back all traffic from now on, in both directions, with the connections open: a network
    /// that drops packets.
    pub fn stop_forwarding(&self) {
        self.record.flowing.send_replace(false);
    }

    /// Refuses new connections, including cancel requests; existing ones continue.
    pub async fn refuse_connections(&self) {
        self.record.door.send_replace(Door::Closed);
        // The listener is closed after the accept loop ends.
        self.record.door.closed().await;
    }

    /// Holds back all traffic from now on, like [`Self::stop_forwarding`], and does not answer new
    /// connections, including cancel requests: a firewall that drops packets. The connections that
    /// fill the system's queue end when the returned value is dropped.
    pub async fn swallow_everything(&self) -> Vec<TcpStream> {
        self.stop_forwarding();
        self.record.door.send_replace(Door::Unattended);
        let mut queued = Vec::new();
        while let Ok(connected) = timeout(UNANSWERED, TcpStream::connect(self.address)).await {
            queued.push(connected.expect("a connection to this machine"));
        }
        queued
    }

    /// Forwards what was held back, and everything after it.
    pub fn resume_forwarding(&self) {
        self.record.flowing.send_replace(true);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The accepting task owns the connections in a set, so they end with it.
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
