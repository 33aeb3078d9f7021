//! What crosses the wire, and what if the wire breaks? A proxy in front of a test's database.
//!
//! It knows PostgreSQL's message framing and nothing else: it counts answers, notes simple queries, and can cut
//! the connection before a message or before its answer, have a message cancelled, or hold everything back. `wire` reads the messages.

use std::collections::VecDeque;
use std::mem;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_postgres::Config;

use crate::wire::{self, Opening};
use crate::{Database, debug_checks_are_on};

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

/// Fails as a statement does that is cancelled.
const CANCELLED: &str = "DO LANGUAGE plpgsql 'BEGIN RAISE SQLSTATE ''57014''; END'";

/// One connection, as its two directions see it.
struct Exchange {
    /// For each `ReadyForQuery` that the server still owes: whether it is a round trip.
    owed: VecDeque<bool>,
    /// Whether the client has asked for something since its last `Sync`, beyond forgetting a statement.
    asks: bool,
    /// Whether an answer of this flight was asked for: what was sent together is answered in one round trip.
    is_wanted: bool,
    /// Answers still to pass on before the connection breaks: those of requests before the fatal one.
    until_cut: Option<usize>,
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

    async fn until_flowing(&self) {
        // The sender is in `self`, so waiting for it cannot fail.
        drop(self.flowing.subscribe().wait_for(|flowing| *flowing).await);
    }
}

async fn accept(listener: TcpListener, server: Config, record: Arc<Record>) {
    let mut connections = JoinSet::new();
    let mut door = record.door.subscribe();
    loop {
        let client = tokio::select! {
            Ok((client, _)) = listener.accept() => client,
            _ = door.wait_for(|door| *door != Door::Open) => break,
        };
        while connections.try_join_next().is_some() {}
        let (server, record) = (server.clone(), Arc::clone(&record));
        let mut cuts = record.cuts.subscribe();
        connections.spawn(async move {
            // An error is a broken connection, which is what both sides see.
            tokio::select! {
                _ = serve(client, &server, &record) => {}
                _ = cuts.changed() => {}
            }
        });
    }
    let _unattended = (*door.borrow() == Door::Unattended).then_some(listener);
    drop(door);
    while connections.join_next().await.is_some() {}
}

/// One connection, until one side or a cut ends it; then both sockets close.
async fn serve(client: TcpStream, server: &Config, record: &Record) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    let (from_client, mut to_client) = tokio::io::split(client);
    let mut from_client = BufReader::new(from_client);
    let wants_tls = record.wants_tls.load(Ordering::Relaxed);
    let opening = Opening::read(&mut from_client, &mut to_client, wants_tls).await?;
    record.seen().cancel_requests += usize::from(opening.is_cancel);
    record.until_flowing().await;
    let (from_server, mut to_server) = tokio::io::split(wire::connect(server).await?);
    let mut from_server = BufReader::new(from_server);
    to_server.write_all(&opening.bytes).await?;
    if opening.is_cancel {
        // The server closes once it has looked; the client waits for that.
        return tokio::io::copy(&mut from_server, &mut to_client)
            .await
            .map(drop);
    }
    // The start-up is answered too, and is not a round trip.
    let exchange = Mutex::new(Exchange {
        owed: VecDeque::from([false]),
        asks: false,
        is_wanted: false,
        until_cut: None,
    });
    tokio::select! {
        ended = requests(from_client, to_server, record, &exchange) => ended,
        ended = answers(from_server, to_client, record, &exchange) => ended,
    }
}

/// Passes on what the client says, until a cut or its end.
async fn requests(
    mut client: impl AsyncRead + Unpin,
    mut server: impl AsyncWrite + Unpin,
    record: &Record,
    exchange: &Mutex<Exchange>,
) -> std::io::Result<()> {
    while let Some(message) = wire::message(&mut client).await? {
        record.until_flowing().await;
        let fault = record.note(
            &message,
            &mut exchange.lock().unwrap_or_else(PoisonError::into_inner),
        );
        match fault {
            Some(FaultKind::CutBefore) => break,
            Some(FaultKind::Cancel) => server.write_all(&wire::query(CANCELLED)).await?,
            Some(FaultKind::CutAfter) | None => server.write_all(&message).await?,
        }
    }
    Ok(())
}

/// Passes on what the server answers, until a cut or its end.
///
/// The server sends an error before the `ReadyForQuery` behind it. They are passed on together: else a client that goes on
/// at once would be counted as one that did not wait.
async fn answers(
    mut server: impl AsyncRead + Unpin,
    mut client: impl AsyncWrite + Unpin,
    record: &Record,
    exchange: &Mutex<Exchange>,
) -> std::io::Result<()> {
    let mut error = Vec::new();
    let hides_cancel_keys = record.hides_cancel_keys.load(Ordering::Relaxed);
    while let Some(message) = wire::message(&mut server).await? {
        if hides_cancel_keys && wire::is_cancel_key(&message) {
            continue;
        }
        let is_end = wire::is_ready_for_query(&message);
        let is_lost = {
            let mut exchange = exchange.lock().unwrap_or_else(PoisonError::into_inner);
            let is_lost = exchange.until_cut == Some(0);
            if is_end {
                exchange.until_cut = exchange.until_cut.map(|answers| answers.saturating_sub(1));
                exchange.is_wanted |= exchange.owed.pop_front().unwrap_or(false);
                if exchange.owed.is_empty() {
                    record.seen().round_trips += usize::from(mem::take(&mut exchange.is_wanted));
                }
            }
            is_lost
        };
        if !is_lost {
            error.extend(message);
            if is_end || !wire::is_error(&error) {
                record.until_flowing().await;
                client.write_all(&mem::take(&mut error)).await?;
            }
        } else if is_end {
            break;
        }
    }
    // Nothing follows an error that ends the session.
    client.write_all(&error).await
}

/// Whether the library sends this in debug builds only, as a message by itself.
fn is_debug_check(query: &str) -> bool {
    let marks = ["advisory:standby", "advisory.token_"];
    debug_checks_are_on() && marks.iter().any(|mark| query.contains(mark))
}

impl Record {
    /// Notes a message of the client, and says what happens to it.
    fn note(&self, message: &[u8], exchange: &mut Exchange) -> Option<FaultKind> {
        let mut seen = self.seen();
        let query = wire::simple_query(message);
        let is_check = query.as_deref().is_some_and(is_debug_check);
        seen.queries.extend(query.filter(|_| !is_check));
        let is_meant = |fault: &mut Fault| wire::contains(message, &fault.text);
        let fault = seen.fault.take_if(is_meant).map(|fault| fault.kind);
        match fault {
            Some(FaultKind::CutBefore) => return fault,
            Some(FaultKind::CutAfter) => exchange.until_cut = Some(exchange.owed.len()),
            Some(FaultKind::Cancel) | None => {}
        }
        exchange.asks |= wire::is_wish(message) && !is_check;
        if wire::asks_for_ready(message) {
            exchange.owed.push_back(mem::take(&mut exchange.asks));
        }
        fault
    }
}
