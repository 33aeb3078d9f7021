//! Detection of tasks of this process that wait for themselves or for each other, each on a
//! connection of its own. The server sees no cycle there: the session that holds a lock is idle,
//! while its task waits on another session.
//!
//! Each call that waits without a limit is a node. It has the locks that the call asks for, and
//! those that its task holds meanwhile: the locks of the bodies that the thread is polling, and the
//! turns of their `queue`s. The call that closes a cycle is refused.

use super::bodies::addresses_of_bodies;
use super::{LockSet, connection_locks, is_on};
use crate::driver::Driver;
use crate::request::CallSite;
use crate::{Error, Key, Mode, Request, Wait, sql};
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static WAITS: Mutex<Vec<Arc<Node>>> = Mutex::new(Vec::new());

fn waits() -> MutexGuard<'static, Vec<Arc<Node>>> {
    WAITS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call counts as waiting until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting(u64);

impl Drop for Waiting {
    fn drop(&mut self) {
        waits().retain(|node| node.id != self.0);
    }
}

/// A waiting call.
#[derive(Debug)]
struct Node {
    id: u64,
    place: CallSite,
    /// The keys for which it waits.
    keys: Vec<Key>,
    /// `None` for turns.
    mode: Option<Mode>,
    /// True for the permits of a lock, of which one is enough.
    is_any: bool,
    is_poll: bool,
    held: Vec<Held>,
}

#[derive(Debug)]
struct Held {
    key: Key,
    /// `None` for a turn.
    mode: Option<Mode>,
    /// For a lock, if it is known.
    process: Option<u32>,
    /// True for a lock on the connection on which the call waits.
    is_here: bool,
    name: Cow<'static, str>,
    place: CallSite,
}

impl Held {
    /// The key and the process of a lock, by which the server can confirm it.
    fn lock(&self) -> Option<(Key, u32)> {
        self.process.map(|process| (self.key, process))
    }

    fn excludes(&self, asked: Key, by: Option<Mode>) -> bool {
        self.key == asked
            && match (self.mode, by) {
                (Some(mode), Some(by)) => mode.excludes(by),
                (mode, by) => mode == by,
            }
    }
}

/// A lock or a turn that one waiting call asks for and the task of another holds.
struct Edge<'n> {
    to: &'n Node,
    held: &'n Held,
}

/// Waiting calls, and a test of whether a lock of their tasks is known to be in one database.
struct Graph<'n> {
    nodes: Vec<&'n Node>,
    is_known: &'n dyn Fn(&Held) -> bool,
}

impl<'n> Graph<'n> {
    /// Only the calls that keep each other waiting, up to this one.
    fn new(nodes: &'n [Arc<Node>], newest: &Waiting, is_known: &'n dyn Fn(&Held) -> bool) -> Self {
        let nodes = nodes.iter().map(|node| &**node);
        let mut graph = Self {
            nodes: nodes.filter(|node| node.id <= newest.0).collect(),
            is_known,
        };
        loop {
            let nodes = graph.nodes.iter().copied();
            let stuck: Vec<_> = nodes.filter(|node| graph.is_blocked(node)).collect();
            if stuck.len() == graph.nodes.len() {
                return graph;
            }
            graph.nodes = stuck;
        }
    }

    fn edges(&self, from: &Node) -> Vec<Edge<'n>> {
        let nodes = self.nodes.iter();
        let all = nodes.flat_map(|to| to.held.iter().map(move |held| Edge { to, held }));
        let blocking = all.filter(|Edge { to, held }| {
            // A session gets its own lock again at once.
            let is_own = to.id == from.id && held.is_here;
            let mut keys = from.keys.iter();
            !is_own && (self.is_known)(held) && keys.any(|key| held.excludes(*key, from.mode))
        });
        blocking.collect()
    }

    /// Returns whether the tasks of these calls keep a call waiting. A permit that none of them
    /// holds can come free.
    fn is_blocked(&self, node: &Node) -> bool {
        let edges = self.edges(node);
        let is_held = |key: &Key| {
            let mut edges = edges.iter();
            edges.any(|edge| edge.held.excludes(*key, node.mode))
        };
        if node.is_any {
            node.keys.iter().all(is_held)
        } else {
            !edges.is_empty()
        }
    }

    /// The error of a call that closes a cycle. `None` if it closes none, or if the server sees it.
    fn deadlock(&self, waiting: &Waiting, request: &Request) -> Option<Error> {
        let node = self.nodes.iter().find(|node| node.id == waiting.0)?;
        let lock = request.lock_name();
        let (mut seen, mut way) = (Vec::new(), Vec::new());
        let is_found = self.find(node, node, &mut seen, &mut way);
        // The server sees the wait of a session, with the locks that this session holds.
        let is_seen = |edge: &Edge<'_>| edge.held.is_here && !edge.to.is_poll;
        (is_found && !way.iter().all(is_seen)).then(|| {
            let cycle = text(node, &way);
            Error::TaskDeadlock { lock, cycle }
        })
    }

    fn find(&self, from: &Node, to: &Node, seen: &mut Vec<u64>, way: &mut Vec<Edge<'n>>) -> bool {
        for edge in self.edges(from) {
            let next = edge.to;
            if seen.contains(&next.id) {
                continue;
            }
            seen.push(next.id);
            way.push(edge);
            if next.id == to.id || self.find(next, to, seen, way) {
                return true;
            }
            way.pop();
        }
        false
    }
}

/// The locks of known processes, each once.
fn locks_of<'h>(held: impl Iterator<Item = &'h Held>) -> Vec<(Key, u32)> {
    let mut locks: Vec<_> = held.filter_map(Held::lock).collect();
    locks.sort_unstable();
    locks.dedup();
    locks
}

fn text(first: &Node, way: &[Edge<'_>]) -> String {
    let mut from = first;
    let lines = way.iter().map(|edge| {
        let (waiter, holder) = (at(from.place), at(edge.held.place));
        from = edge.to;
        format!(
            "{waiter} waits for `{}`, which {holder} holds",
            edge.held.name
        )
    });
    lines.collect::<Vec<_>>().join("; ")
}

fn at(place: CallSite) -> String {
    match place.to_string() {
        unknown if unknown.is_empty() => "a call".to_owned(),
        place => place,
    }
}

fn enter(node: Node) -> Waiting {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut waits = waits();
    // In the order of the list: of two calls that close a cycle at once, the newer one is refused.
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    waits.push(Arc::new(Node { id, ..node }));
    Waiting(id)
}

/// The locks that this task holds in its bodies, and on the connection at this address, on which it
/// is about to wait.
fn held_meanwhile(address: Option<usize>) -> Vec<Held> {
    let mut addresses = addresses_of_bodies();
    addresses.extend(address);
    addresses.sort_unstable();
    addresses.dedup();
    let mut all = Vec::new();
    for other in addresses {
        for entry in connection_locks::held_here(other) {
            let locks = entry.locks;
            let held = locks.keys_and_names(entry.permit).map(|(key, name)| Held {
                key,
                mode: Some(locks.mode),
                process: entry.process,
                is_here: address == Some(other),
                name,
                place: locks.place,
            });
            all.extend(held);
            if locks.has_turn {
                all.extend(turns(&locks, |_| true));
            }
        }
    }
    all
}

fn turns(locks: &LockSet, are_had: impl Fn(&Key) -> bool) -> impl Iterator<Item = Held> {
    let keys = locks.keys_and_names(None);
    keys.filter(move |(key, _)| are_had(key))
        .map(|(key, name)| Held {
            key,
            mode: None,
            process: None,
            is_here: false,
            name,
            place: locks.place,
        })
}

/// Notes that a call waits at the server, if it does so without a limit while its task holds
/// something. The error is that of a call that waits for its own task, or closes a cycle.
pub(super) async fn wait<D: Driver>(
    conn: &mut D,
    request: &Request,
    locks: &LockSet,
) -> Result<Option<Waiting>, Error> {
    if request.limit().is_some() {
        return Ok(None);
    }
    let mut held = held_meanwhile(Some(std::ptr::from_mut(conn).addr()));
    if waits_for_itself(conn, request, &held).await {
        let lock = request.lock_name();
        return Err(Error::SelfDeadlock { lock });
    }
    if locks.has_turn {
        held.extend(turns(locks, |_| true));
    }
    // With a pooler the server's processes are not known. If the session's own timeout bounds the
    // wait, it is not a deadlock.
    if held.is_empty()
        || conn.server_process().await.is_none()
        || !has_no_limit(conn, request).await
    {
        return Ok(None);
    }
    let keys = match &request.permits[..] {
        [] => &request.keys,
        permits => permits,
    };
    let waiting = enter(Node {
        id: 0,
        place: locks.place,
        keys: keys.to_vec(),
        mode: Some(request.mode),
        is_any: !request.permits.is_empty(),
        is_poll: request.poll.is_some(),
        held,
    });
    if let Some(locks) = possible_cycle(&waiting, request) {
        // Another database can have locks with these numbers.
        let confirmed = held_in_database(conn, &locks).await;
        let is_confirmed = |held: &Held| held.lock().is_some_and(|lock| confirmed.contains(&lock));
        let is_known = |held: &Held| held.mode.is_none() || is_confirmed(held);
        // Calls that still wait hold the locks that they held during the query.
        let nodes = waits().clone();
        let graph = Graph::new(&nodes, &waiting, &is_known);
        if let Some(error) = graph.deadlock(&waiting, request) {
            return Err(error);
        }
    }
    Ok(Some(waiting))
}

/// Returns whether the call waits for a lock that its own task holds on another connection. It works
/// through a pooler too, because only the process of the connection that holds the lock must be
/// known.
async fn waits_for_itself<D: Driver>(conn: &mut D, request: &Request, held: &[Held]) -> bool {
    // Another permit can come free.
    if !request.permits.is_empty() {
        return false;
    }
    let mode = Some(request.mode);
    let held = held.iter().filter(|held| {
        let mut keys = request.keys.iter();
        !held.is_here && keys.any(|key| held.excludes(*key, mode))
    });
    let held = locks_of(held);
    // The same number may be held in another database.
    !held.is_empty()
        && has_no_limit(conn, request).await
        && !held_in_database(conn, &held).await.is_empty()
}

/// The locks of calls that may keep each other waiting, if there may be a cycle with this one.
fn possible_cycle(waiting: &Waiting, request: &Request) -> Option<Vec<(Key, u32)>> {
    let nodes = waits().clone();
    let graph = Graph::new(&nodes, waiting, &|_| true);
    let held = graph.nodes.iter().flat_map(|node| &node.held);
    graph.deadlock(waiting, request).map(|_| locks_of(held))
}

/// Like [`wait`], for a call that waits for its turn in the queue of a key, and holds the turns of
/// the keys before it. Without a connection it cannot query the server, so it finds only cycles of
/// turns.
pub(crate) fn wait_for_turn(
    request: &Request,
    before: impl Iterator<Item = Key>,
    key: Key,
) -> Result<Option<Waiting>, Error> {
    if !is_on() {
        return Ok(None);
    }
    let before: Vec<Key> = before.collect();
    let locks = LockSet::new(0, request);
    let mut held = held_meanwhile(None);
    held.extend(turns(&locks, |key| before.contains(key)));
    if held.is_empty() {
        return Ok(None);
    }
    let waiting = enter(Node {
        id: 0,
        place: locks.place,
        keys: vec![key],
        mode: None,
        is_any: false,
        is_poll: false,
        held,
    });
    let nodes = waits().clone();
    let is_turn = |held: &Held| held.mode.is_none();
    match Graph::new(&nodes, &waiting, &is_turn).deadlock(&waiting, request) {
        Some(error) => Err(error),
        None => Ok(Some(waiting)),
    }
}

/// Returns whether the session does not limit the wait of a request that has no limit of its own.
async fn has_no_limit<D: Driver>(conn: &mut D, request: &Request) -> bool {
    if request.budget() == Wait::Forever {
        return true;
    }
    let answer = conn.query_text(sql::probe::LOCK_TIMEOUT).await;
    matches!(answer, Ok(Some(milliseconds)) if milliseconds == "0")
}

async fn held_in_database<D: Driver>(conn: &mut D, locks: &[(Key, u32)]) -> Vec<(Key, u32)> {
    let mut confirmed = Vec::new();
    for some in locks.chunks(MOST) {
        let answer = conn.query_text(&sql::probe::held_by(some)).await;
        // One letter each.
        let answer = answer.ok().flatten().unwrap_or_default();
        let letters = some.iter().zip(answer.chars());
        let held = letters.filter(|(_, letter)| *letter == '1');
        confirmed.extend(held.map(|(lock, _)| *lock));
    }
    confirmed
}

/// The number of locks in one query: a function has at most 100 arguments.
const MOST: usize = 64;
