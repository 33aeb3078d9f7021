//! Locked calls of each scope, for tests that drop them, and other sessions, which a drop must not
//! affect.

use crate::Database;
use crate::bookings::{committed, execute, in_transaction, insert};
use advisory_runtime::{Connection, Error, Isolation, Request, Wait, session, xact};
use diesel::result::Error as DieselError;
use diesel_async::AsyncPgConnection;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

/// How a call locks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scope {
    /// A transaction-level lock on several keys.
    Xact,
    /// A transaction-level lock on one key.
    One,
    /// A session-level lock on one key.
    OneOfSession,
    /// A locked call inside another one, both dropped at once.
    Nested,
    /// A transaction-level lock on several keys, in a serializable transaction.
    Strict,
    /// A session-level lock on several keys.
    Session,
}

/// Each way to lock.
pub const SCOPES: [Scope; 6] = [
    Scope::Xact,
    Scope::One,
    Scope::OneOfSession,
    Scope::Nested,
    Scope::Strict,
    Scope::Session,
];

/// Each way to wait.
pub const WAITS: [Wait; 3] = [
    Wait::Session,
    Wait::Never,
    Wait::For(Duration::from_secs(5)),
];

/// The time limit for waiting: the state occurs earlier or, without the clean-up, never.
pub const SOON: Duration = Duration::from_secs(30);

/// How many drops must close a connection, for each kind of call. If this thread is suspended,
/// answers can arrive within the poll that requests them; the call is then ready after fewer polls
/// than it has waits, and is repeated.
pub const DROPS: usize = 3;

impl Scope {
    /// Returns whether the lock is session-level.
    pub fn is_session(self) -> bool {
        matches!(self, Self::Session | Self::OneOfSession)
    }

    /// The request of such a call.
    pub fn request(self, wait: Wait) -> Request {
        let request = match self {
            Self::One | Self::OneOfSession => Request::new(7),
            _ => Request::all([7, 8]),
        };
        let request = request.wait(wait);
        match self {
            Self::Strict => request.isolation(Isolation::Serializable),
            _ => request,
        }
    }
}

/// A locked call with two statements in its body.
pub async fn call<C: Connection>(conn: &mut C, scope: Scope, wait: Wait) -> Result<(), Error> {
    call_noting(conn, scope, wait, &Cell::new(false)).await
}

/// Like [`call`]; sets `is_ending` when the end is requested.
pub async fn call_noting<C: Connection>(
    conn: &mut C,
    scope: Scope,
    wait: Wait,
    is_ending: &Cell<bool>,
) -> Result<(), Error> {
    if scope != Scope::Nested {
        return lock_once(conn, scope, wait, is_ending).await;
    }
    let mut outer = xact::begin(conn, 99).await?;
    insert(outer.conn().pg(), 2, "outer").await?;
    // The outer call commits.
    let inner = lock_once(outer.conn(), Scope::Xact, wait, &Cell::new(false)).await;
    is_ending.set(true);
    outer.finish(inner).await
}

async fn lock_once<C: Connection>(
    conn: &mut C,
    scope: Scope,
    wait: Wait,
    is_ending: &Cell<bool>,
) -> Result<(), Error> {
    let mut held = if scope.is_session() {
        session::acquire(conn, scope.request(wait)).await?
    } else {
        xact::begin(conn, scope.request(wait)).await?
    };
    let conn = held.conn().pg();
    let result = async {
        insert(conn, 7, "half done").await?;
        execute(conn, "SELECT pg_sleep(0.003)").await.map(drop)
    }
    .await;
    is_ending.set(true);
    held.finish(result.map_err(Error::Database)).await
}

/// Other sessions of the server, each almost always running a statement.
pub struct Bystanders {
    is_over: Arc<AtomicBool>,
    sessions: Vec<JoinHandle<usize>>,
}

impl Bystanders {
    /// Begins their statements.
    pub async fn start(db: &Database) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut sessions = Vec::new();
        for _ in 0..3 {
            let (mut conn, is_over) = (db.connect().await, Arc::clone(&is_over));
            sessions.push(tokio::spawn(async move {
                let mut statements = 0;
                while !is_over.load(Ordering::Relaxed) {
                    execute(&mut conn, "SELECT pg_sleep(0.05)").await.unwrap();
                    statements += 1;
                }
                statements
            }));
        }
        Self { is_over, sessions }
    }

    /// Ends them. None of their statements may have failed.
    pub async fn were_left_alone(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for session in self.sessions {
            assert!(session.await.unwrap() > 0);
        }
    }
}

/// Asserts that the next transaction on the connection commits: none of its statements is
/// cancelled.
pub async fn goes_on(conn: &mut AsyncPgConnection, db: &Database, after: &str) {
    let before = committed(db, 1).await;
    in_transaction::<_, DieselError>(conn, async |conn| {
        execute(conn, "SELECT pg_sleep(0.005)").await?;
        insert(conn, 1, "next").await?;
        execute(conn, "SELECT pg_sleep(0.005)").await
    })
    .await
    .unwrap_or_else(|error| panic!("the next transaction after {after}: {error:?}"));
    assert_eq!(committed(db, 1).await, before + 1, "after {after}");
}

/// Waits until the session has ended, with its locks, waits and transaction.
pub async fn until_ended(db: &Database, pid: i32, after: &str) {
    let session = format!("SELECT state || ': ' || query FROM pg_stat_activity WHERE pid = {pid}");
    db.until_empty(SOON, &format!("the end of the session, {after}"), &session)
        .await;
}

/// Makes the check of the setting `advisory.pooler`, which the first session-level call of a
/// process makes.
pub async fn ask_for_the_pooler(db: &Database) {
    let mut conn = db.connect().await;
    let held = session::acquire(&mut conn, 1).await.unwrap();
    held.finish(Ok::<_, Error>(())).await.unwrap();
}
