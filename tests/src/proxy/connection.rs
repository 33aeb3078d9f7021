//! The traffic between a client and the server on the connections of a proxy: counted, recorded,
//! held back, or cut.

use std::collections::VecDeque;
use std::mem;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_postgres::Config;

use super::{Door, Fault, FaultKind, Record};
use crate::debug_checks_are_on;
use crate::wire::{self, Opening};

/// One connection, shared by its two directions.
struct Exchange {
    /// Each `ReadyForQuery` that the server has not sent yet; true if it is a round trip.
    owed: VecDeque<bool>,
    /// True if the client has requested something since its last `Sync`, other than closing a
    /// statement.
    asks: bool,
    /// True if an answer was requested since the last one: messages sent together are answered in
    /// one round trip.
    is_wanted: bool,
    /// True if the client has requested only a check of debug builds since then.
    is_check: bool,
    /// Answers still to forward before the cut: those of requests before the fatal one.
    until_cut: Option<usize>,
}

/// Serves the clients of a proxy until it stops accepting and all clients have gone.
pub(super) async fn accept(listener: TcpListener, server: Config, record: Arc<Record>) {
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
        let mut stalls = record.stalls.subscribe();
        connections.spawn(async move {
            let mut serving = pin!(serve(client, &server, &record));
            // An error is a cut connection, which both sides see.
            tokio::select! {
                _ = &mut serving => {}
                _ = cuts.changed() => {}
                // Its sockets stay open, and nobody reads them.
                _ = stalls.changed() => drop(cuts.changed().await),
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
    let mut opening = Opening::read(&mut from_client, &mut to_client, wants_tls).await?;
    if opening.is_cancel {
        let numbers = record.numbers();
        wire::renumber(&mut opening.bytes, |shown| {
            numbers.server.get(&shown).copied().unwrap_or(shown)
        });
    }
    record.seen().cancel_requests += usize::from(opening.is_cancel);
    record.until_flowing().await;
    let (from_server, mut to_server) = tokio::io::split(wire::connect(server).await?);
    let mut from_server = BufReader::new(from_server);
    to_server.write_all(&opening.bytes).await?;
    if opening.is_cancel {
        // The server closes after it has checked; the client waits for that.
        return tokio::io::copy(&mut from_server, &mut to_client)
            .await
            .map(drop);
    }
    // The start-up is answered too, but is not a round trip.
    let exchange = Mutex::new(Exchange {
        owed: VecDeque::from([false]),
        asks: false,
        is_wanted: false,
        is_check: false,
        until_cut: None,
    });
    tokio::select! {
        ended = requests(from_client, to_server, record, &exchange) => ended,
        ended = answers(from_server, to_client, record, &exchange) => ended,
    }
}

/// Forwards the client's messages, until a cut or the end.
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
            Some(FaultKind::Replace(by)) => server.write_all(&wire::query(by)).await?,
            Some(FaultKind::Prepare(by)) => {
                let message = wire::prepare_instead(&message, by);
                server.write_all(&message).await?;
            }
            Some(FaultKind::CutAfter) | None => server.write_all(&message).await?,
        }
    }
    Ok(())
}

/// Forwards the server's messages, until a cut or the end.
///
/// The server sends an error before its `ReadyForQuery`. They are forwarded together; otherwise a
/// client that continues at once would be counted as one that did not wait.
async fn answers(
    mut server: impl AsyncRead + Unpin,
    mut client: impl AsyncWrite + Unpin,
    record: &Record,
    exchange: &Mutex<Exchange>,
) -> std::io::Result<()> {
    let mut error = Vec::new();
    let hides_cancel_keys = record.hides_cancel_keys.load(Ordering::Relaxed);
    while let Some(mut message) = wire::message(&mut server).await? {
        if wire::is_cancel_key(&message) {
            if hides_cancel_keys {
                continue;
            }
            wire::renumber(&mut message, |process| record.numbers().tell(process));
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
    // Nothing follows an error that ends the session. Its end is held back too.
    record.until_flowing().await;
    client.write_all(&error).await
}

/// Returns whether the library sends this in debug builds only, as a separate message.
fn is_debug_check(query: &str) -> bool {
    let marks = ["advisory:standby", "advisory.mark_"];
    debug_checks_are_on() && marks.iter().any(|mark| query.contains(mark))
}

/// Returns whether this prepares the query of debug builds for the process that serves a blocking
/// connection.
fn prepares_debug_check(message: &[u8]) -> bool {
    debug_checks_are_on()
        && wire::simple_query(message).is_none()
        && wire::contains(message, "pg_backend_pid() AS pg_catalog.text)")
}

impl Record {
    /// Records a message of the client, and returns what happens to it.
    fn note(&self, message: &[u8], exchange: &mut Exchange) -> Option<FaultKind> {
        let mut seen = self.seen();
        let query = wire::simple_query(message);
        let is_check = query.as_deref().is_some_and(is_debug_check);
        seen.queries.extend(query.filter(|_| !is_check));
        let is_meant = |fault: &Fault| wire::contains(message, &fault.text);
        let meant = seen.faults.iter().position(is_meant);
        let fault = meant.map(|nth| seen.faults.remove(nth).kind);
        match fault {
            Some(FaultKind::CutBefore) => return fault,
            Some(FaultKind::CutAfter) => exchange.until_cut = Some(exchange.owed.len()),
            Some(FaultKind::Replace(_) | FaultKind::Prepare(_)) | None => {}
        }
        exchange.is_check |= is_check || prepares_debug_check(message);
        exchange.asks |= wire::is_wish(message) && !exchange.is_check;
        if wire::asks_for_ready(message) {
            exchange.is_check = false;
            exchange.owed.push_back(mem::take(&mut exchange.asks));
        }
        fault
    }
}
