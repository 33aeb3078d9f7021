//! Checks for programming errors, in debug builds only.
//!
//! Checks send messages of their own; a lock's messages are those of a release build. With
//! `ADVISORY_DEBUG_CHECKS=off` in the environment, a debug build behaves like a release build.
//!
//! | check | file |
//! | --- | --- |
//! | a standby, a pooler, a transaction that Diesel does not know of | `before_begin` below |
//! | a body that ends its transaction by SQL | marks below, called in `lock/begin.rs`, `lock/way` |
//! | a body that leaves one of SQL open | `check_no_transaction` below, called in `lock/way` |
//! | a try in a transaction that SQL has ended | `is_open` below, called in `lock/way` |
//! | tasks that wait for themselves or each other | `wait_graph`, also called in `lock/queue.rs` |
//! | a call that waits for its own turn in a queue | `bodies`, called in `lock/queue.rs` |
//! | locks that are taken in two orders | `order` |
//! | a body that leaves its connection idle | `idle` |
//! | a call that waits for a lease of its own task | `lease/body_leases.rs` |
//! | a body that takes a second connection from its pool | `pool.rs`; blocking: `expansion.rs` |
//!
//! They know the locks of a task from `bodies`, `connection_locks` and `lock_set`. A check that
//! asks the server has its SQL in `sql/probe.rs` and its marker in `error/classify.rs`.

pub(crate) mod bodies;
pub(crate) mod connection_locks;
pub(crate) mod idle;
mod lock_set;
pub(crate) mod order;
pub(crate) mod wait_graph;

pub(crate) use lock_set::LockSet;
pub(crate) use wait_graph::Waiting;

use crate::driver::{Driver, depth};
use crate::error::Marker;
use crate::observe::Telemetry;
use crate::{Error, Key, Request, Wait, sql};
use connection_locks::CallLocks;
use diesel::QueryResult;
use idle::Statements;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

pub(crate) fn is_on() -> bool {
    static IS_ON: LazyLock<bool> = LazyLock::new(|| {
        std::env::var_os("ADVISORY_DEBUG_CHECKS").is_none_or(|value| value != "off")
    });
    cfg!(debug_assertions) && *IS_ON
}

/// The state of the checks for one call. Empty in a release build.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    request: Option<Box<Request>>,
    /// True if the call needs a session of its own: for a session-level lock, or a stricter level.
    needs_session: bool,
    /// The server's process that serves the connection, if it is known.
    process: Option<u32>,
    /// While the call waits without a limit.
    waiting: Option<Waiting>,
    pub(crate) locks: CallLocks,
    pub(crate) statements: Statements,
}

impl Checks {
    pub(crate) fn new(address: usize, request: &Request, needs_session: bool) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if !is_on() {
            return Self::default();
        }
        let locks = LockSet::new(NEXT.fetch_add(1, Ordering::Relaxed), request);
        Self {
            request: Some(Box::new(request.clone())),
            needs_session,
            locks: CallLocks::new(address, locks),
            ..Self::default()
        }
    }

    /// Records that the locks, or this permit, are held by a body of this depth.
    pub(crate) fn held(&mut self, depth: Option<NonZeroU32>, permit: Option<Key>) {
        self.stop_waiting();
        self.locks.held(depth, permit, self.process);
    }

    pub(crate) fn stop_waiting(&mut self) {
        self.waiting = None;
    }

    pub(crate) fn warn_if_idle(&self, telemetry: Option<&Telemetry>) {
        if let (Some(locks), Some(telemetry)) = (self.locks.set(), telemetry) {
            self.statements.warn_if_idle(locks, telemetry);
        }
    }
}

/// Runs before a lock is asked for, outside of a transaction or inside one of depth `outer`.
pub(crate) async fn before_begin<D: Driver>(
    conn: &mut D,
    checks: &mut Checks,
    outer: Option<NonZeroU32>,
) -> Result<(), Error> {
    let Some(request) = checks.request.as_deref() else {
        return Ok(());
    };
    if outer.is_none()
        && let Err(error) = conn
            .execute(&sql::probe::check_session(checks.needs_session))
            .await
    {
        let lock = request.lock_name();
        match Marker::of(&error) {
            Some(Marker::Standby) => return Err(Error::Standby { lock }),
            Some(Marker::PooledSession) => return Err(Error::PooledSession { lock }),
            Some(Marker::ForeignTransaction) => return Err(Error::ForeignTransaction { lock }),
            // The lock's own message fails too, and its error is classified.
            _ => {}
        }
    }
    let waiting = before_wait(conn, checks, request).await;
    // A deadlock of tasks has two orders, which belong in the record.
    if matches!(waiting, Ok(_) | Err(Error::TaskDeadlock { .. })) {
        note_order(conn, checks, outer, request).await;
    }
    checks.waiting = waiting?;
    checks.process = conn.server_process().await;
    Ok(())
}

/// Fails if the call would wait forever for a lock of its own task, or of a task that waits for
/// this one. Otherwise it counts as waiting until the returned value is dropped.
pub(crate) async fn before_wait<D: Driver>(
    conn: &mut D,
    checks: &Checks,
    request: &Request,
) -> Result<Option<Waiting>, Error> {
    match checks.locks.set() {
        Some(locks) => wait_graph::wait(conn, request, locks).await,
        None => Ok(None),
    }
}

async fn note_order<D: Driver>(
    conn: &mut D,
    checks: &Checks,
    outer: Option<NonZeroU32>,
    request: &Request,
) {
    let address = std::ptr::from_mut(conn).addr();
    let mut left = connection_locks::doubtful(address);
    if !left.is_empty() {
        // Without a transaction nothing is left. A test's transaction keeps locks that the
        // program's would not.
        let may_be = outer.is_some() && matches!(depth(conn), Ok(Some(_))) && conn.is_broken();
        let (held, gone) = if may_be {
            Box::pin(still_held(conn, left)).await
        } else {
            (Vec::new(), left)
        };
        connection_locks::forget(address, &gone);
        left = held;
    }
    if request.budget() != Wait::Never
        && let Some(locks) = checks.locks.set()
    {
        order::asked(Some(address), &left, locks);
    }
}

/// The locks that this session still holds, and those that it does not.
async fn still_held<D: Driver>(
    conn: &mut D,
    doubtful: Vec<Arc<LockSet>>,
) -> (Vec<Arc<LockSet>>, Vec<Arc<LockSet>>) {
    let locks: Vec<_> = doubtful
        .iter()
        .map(|locks| (locks.keys().collect(), locks.mode))
        .collect();
    let answer = conn.query_text(&sql::probe::held_here(&locks)).await;
    // One letter for each lock. A failed transaction gives no answer, but holds no lock either.
    let answer = answer.ok().flatten().unwrap_or_default();
    let mut letters = answer.chars();
    doubtful
        .into_iter()
        .partition(|_| letters.next() == Some('1'))
}

/// Marks the transaction, or savepoint, of this depth. If this fails, the check at the end does not
/// find the mark.
pub(crate) async fn set_mark<D: Driver>(conn: &mut D, checks: &Checks, depth: NonZeroU32) {
    if let Some(locks) = checks.locks.set() {
        drop(conn.execute(&sql::probe::set_mark(depth, locks.id)).await);
    }
}

pub(crate) async fn check_mark<D: Driver>(
    conn: &mut D,
    checks: &Checks,
    depth: NonZeroU32,
) -> QueryResult<()> {
    if let (Some(request), Some(locks)) = (checks.request.as_deref(), checks.locks.set()) {
        let check = sql::probe::check_mark(depth, locks.id, request);
        conn.execute(&check).await?;
    }
    Ok(())
}

/// Returns whether a transaction is open at the server. If the program ended it by SQL, Diesel
/// still counts one.
pub(crate) async fn is_open<D: Driver>(conn: &mut D) -> bool {
    !is_on() || conn.execute(sql::probe::IN_TRANSACTION).await.is_ok()
}

/// Fails if the body of a session-level lock has left a transaction open that Diesel does not know
/// of.
pub(crate) async fn check_no_transaction<D: Driver>(
    conn: &mut D,
    outer: Option<NonZeroU32>,
) -> QueryResult<()> {
    if is_on() && outer.is_none() {
        conn.execute(&sql::probe::check_session(false)).await?;
    }
    Ok(())
}
