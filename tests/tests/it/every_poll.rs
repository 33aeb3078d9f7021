//! A future dropped after each of its polls, from the first to the last: its connection is closed, and nothing else is touched.
//!
//! No lock, no waiter and no open transaction is left, and no other session's statement is ever cancelled. `every_poll_pools` has what a
//! pool does then.

use crate::bookings::{book, committed, database, execute, in_transaction, insert};
use advisory_runtime::{Connection, Error, Isolation, Request, Wait, session, xact};
use advisory_tests::{Database, debug_checks_are_on, pid_of};
use diesel::result::Error as DieselError;
use diesel_async::AsyncPgConnection;
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scope {
    Xact,
    One,
    OneOfSession,
    /// A locked call inside another one, both dropped at once.
    Nested,
    Strict,
    Session,
}

pub(crate) const SCOPES: [Scope; 6] = [
    Scope::Xact,
    Scope::One,
    Scope::OneOfSession,
    Scope::Nested,
    Scope::Strict,
    Scope::Session,
];

const WAITS: [Wait; 3] = [
    Wait::Session,
    Wait::Never,
    Wait::For(Duration::from_secs(5)),
];

/// What is waited for comes without this time being over; else it never comes, since nobody but the clean-up brings it about.
pub(crate) const SOON: Duration = Duration::from_secs(30);

impl Scope {
    fn is_session(self) -> bool {
        matches!(self, Self::Session | Self::OneOfSession)
    }

    fn request(self, wait: Wait) -> Request {
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
pub(crate) async fn call<C: Connection>(
    conn: &mut C,
    scope: Scope,
    wait: Wait,
) -> Result<(), Error> {
    call_noting(conn, scope, wait, &Cell::new(false)).await
}

/// The same, which notes when its end is asked for.
async fn call_noting<C: Connection>(
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
    // The commit is the outer call's.
    let inner = lock_once(outer.conn(), Scope::Xact, wait, &Cell::new(false)).await;
    is_ending.set(true);
    xact::finish(outer, inner).await
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
    xact::finish(held, result.map_err(Error::Database)).await
}

/// Polls the future so often, each time after it was woken; `true` when it was ready by then.
pub(crate) async fn is_ready_within<T>(polls: usize, future: impl Future<Output = T>) -> bool {
    let mut future = pin!(future);
    let mut polled = 0;
    poll_fn(|context| {
        if polled == polls {
            return Poll::Ready(false);
        }
        polled += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if polled == polls => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Other sessions of the same server, each in a statement nearly all the time.
pub(crate) struct Bystanders {
    is_over: Arc<AtomicBool>,
    sessions: Vec<JoinHandle<usize>>,
}

impl Bystanders {
    pub(crate) async fn start(db: &Database) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut sessions = Vec::new();
        for _ in 0..3 {
            let (mut conn, is_over) = (db.connect().await, Arc::clone(&is_over));
            sessions.push(tokio::spawn(async move {
                let mut statements = 0;
                while !is_over.load(Ordering::Relaxed) {
                    execute(&mut conn, "SELECT pg_sleep(0.002)").await.unwrap();
                    statements += 1;
                }
                statements
            }));
        }
        Self { is_over, sessions }
    }

    /// # Panics
    ///
    /// When a statement of theirs has failed.
    pub(crate) async fn were_left_alone(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for session in self.sessions {
            assert!(session.await.unwrap() > 0);
        }
    }
}

/// The next transaction on the connection commits, and nothing of it is cancelled.
pub(crate) async fn goes_on(conn: &mut AsyncPgConnection, db: &Database, after: &str) {
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

/// The session has ended, and with it whatever it held, waited for, or had open.
pub(crate) async fn until_ended(db: &Database, pid: i32, after: &str) {
    let session = format!("SELECT state || ': ' || query FROM pg_stat_activity WHERE pid = {pid}");
    db.until_empty(SOON, &format!("the end of the session, {after}"), &session)
        .await;
}

/// Every locked call is refused with an error that says why, and Diesel's own statements find the connection closed.
pub(crate) async fn assert_closed(conn: &mut AsyncPgConnection, after: &str) {
    for scope in SCOPES {
        for wait in WAITS {
            let error = call(conn, scope, wait).await.unwrap_err();
            assert!(
                matches!(error, Error::BrokenConnection { .. }),
                "{scope:?}, {wait:?}, {after}: {error:?}"
            );
        }
    }
    let error = book(conn, 7, "Ada").await.unwrap_err();
    assert!(
        matches!(Error::find(&error).as_deref(), Some(Error::BrokenConnection { lock }) if lock == "room:<room>"),
        "{after}: {error:?}"
    );
    let error = execute(conn, "SELECT 1").await.unwrap_err();
    assert!(
        matches!(error, DieselError::DatabaseError(..)),
        "{after}: {error:?}"
    );
    let begun = in_transaction::<(), DieselError>(conn, async |_| Ok(()));
    assert!(
        matches!(begun.await, Err(DieselError::BrokenTransactionManager)),
        "{after}"
    );
}

/// The first session-level call of a process asks before whether the setting `advisory.pooler` is there.
pub(crate) async fn ask_for_the_pooler(db: &Database) {
    let mut conn = db.connect().await;
    let held = session::acquire(&mut conn, 1).await.unwrap();
    session::release(held, Ok::<_, Error>(())).await.unwrap();
}

/// Whether the call was dropped where it had sent nothing yet but a check of debug builds: its connection is as it was.
async fn is_untouched(conn: &mut AsyncPgConnection) -> bool {
    debug_checks_are_on() && execute(conn, "SELECT 1").await.is_ok()
}

/// How many drops have to close a connection, of each kind of call. Of a call that this thread is kept from polling, the answers can be
/// there within the poll that asks: then it is ready after fewer polls than it has waits, and is made again.
pub(crate) const DROPS: usize = 3;

/// Drops the call after one poll, then after two, until it is ready. How many drops have closed the connection.
async fn drop_at_each_poll(db: &Database, scope: Scope, wait: Wait) -> usize {
    let (mut closed, mut untouched) = (0, 0);
    for polls in 1.. {
        let after = format!("{scope:?}, {wait:?}, dropped after poll {polls}");
        let mut conn = db.connect().await;
        let pid = pid_of(&mut conn).await;
        let is_ending = Cell::new(false);
        let call = call_noting(&mut conn, scope, wait, &is_ending);
        if is_ready_within(polls, call).await {
            goes_on(&mut conn, db, &after).await;
            assert_eq!(db.locks().await, [], "{after}");
            break;
        }
        if is_untouched(&mut conn).await {
            untouched += 1;
            goes_on(&mut conn, db, &after).await;
        } else {
            closed += 1;
            assert_closed(&mut conn, &after).await;
            until_ended(db, pid, &after).await;
        }
        assert_eq!(db.locks().await, [], "{after}");
        if !is_ending.get() {
            assert_eq!(committed(db, 2).await, 0, "{after}");
            if !scope.is_session() {
                assert_eq!(committed(db, 7).await, 0, "{after}");
            }
        }
        db.run("DELETE FROM booking").await;
    }
    assert!(untouched <= 2, "{scope:?}, {wait:?}: {untouched}");
    db.run("DELETE FROM booking").await;
    closed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drop_at_any_poll_closes_the_connection_and_leaves_nothing() {
    let db = database().await;
    ask_for_the_pooler(&db).await;
    let bystanders = Bystanders::start(&db).await;
    for scope in SCOPES {
        for wait in WAITS {
            let mut closed = 0;
            while closed < DROPS {
                closed += drop_at_each_poll(&db, scope, wait).await;
            }
        }
    }
    bystanders.were_left_alone().await;
    db.until_quiet().await;
}

/// The transaction around a nested call goes with it, and is told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nested_call_that_is_dropped_takes_the_outer_one_with_it() {
    let db = database().await;
    for wait in WAITS {
        for polls in 1.. {
            let after = format!("{wait:?}, dropped after poll {polls}");
            let mut conn = db.connect().await;
            let pid = pid_of(&mut conn).await;
            let mut outer = xact::begin(&mut conn, 99).await.unwrap();
            insert(outer.conn(), 2, "outer").await.unwrap();
            let is_ready = is_ready_within(polls, call(outer.conn(), Scope::Xact, wait)).await;
            let is_closed = execute(outer.conn(), "SELECT 1").await.is_err();
            if is_closed {
                insert(outer.conn(), 2, "after the drop").await.unwrap_err();
            }
            let end = xact::finish(outer, Ok::<_, Error>(())).await;
            if is_closed {
                assert!(!is_ready, "{after}");
                let error = end.unwrap_err();
                assert!(
                    matches!(&error, Error::RolledBack { lock, .. } if lock == "99"),
                    "{after}: {error:?}"
                );
                assert_closed(&mut conn, &after).await;
                until_ended(&db, pid, &after).await;
            } else {
                end.unwrap();
                assert!(is_ready || debug_checks_are_on(), "{after}");
            }
            assert_eq!(db.locks().await, [], "{after}");
            let kept = [committed(&db, 2).await, committed(&db, 7).await];
            let expected = [i64::from(!is_closed), i64::from(is_ready)];
            assert_eq!(kept, expected, "{after}");
            db.run("DELETE FROM booking").await;
            if is_ready {
                break;
            }
        }
    }
    db.until_quiet().await;
}

/// Dropped while it waits for a holder, which is where a call spends its time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_waiter_leaves_no_waiter_while_the_holder_goes_on() {
    let db = database().await;
    let bystanders = Bystanders::start(&db).await;
    let mut holder = db.connect().await;
    for key in [7, 8] {
        let held = xact::begin(&mut holder, key).await.unwrap();
        for scope in SCOPES {
            if key == 8 && matches!(scope, Scope::One | Scope::OneOfSession) {
                continue;
            }
            for wait in [Wait::Session, Wait::For(Duration::from_secs(600))] {
                let after = format!("{scope:?}, {wait:?}, waiting for {key}");
                let mut conn = db.connect().await;
                let pid = pid_of(&mut conn).await;
                tokio::select! {
                    biased;
                    _ = call(&mut conn, scope, wait) => panic!("{after}: it did not wait"),
                    () = db.until_waiting(key) => {}
                }
                db.until_no_waiters(key).await;
                assert_closed(&mut conn, &after).await;
                until_ended(&db, pid, &after).await;
                let locks = db.locks().await;
                assert_eq!(locks.len(), 1, "{after}: {locks:?}");
            }
        }
        xact::finish(held, Ok::<_, Error>(())).await.unwrap();
    }
    bystanders.were_left_alone().await;
    db.until_quiet().await;
}

/// Dropped when its message may not have left this process yet, on a thread that has other work to do: the request to cancel is
/// quicker than what it is to cancel.
#[tokio::test]
async fn a_waiter_that_is_dropped_at_once_leaves_no_waiter_either() {
    let db = database().await;
    ask_for_the_pooler(&db).await;
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, 7).await.unwrap();
    // The first poll sends a check of debug builds.
    let polls = if debug_checks_are_on() { 2 } else { 1 };
    for scope in [Scope::One, Scope::OneOfSession, Scope::Strict] {
        for work in [0, 1, 30] {
            let after = format!("{scope:?}, behind {work} ms of work");
            let mut conn = db.connect().await;
            let pid = pid_of(&mut conn).await;
            assert!(!is_ready_within(polls, call(&mut conn, scope, Wait::Session)).await);
            // This thread alone runs the connection.
            let started = Instant::now();
            while started.elapsed() < Duration::from_millis(work) {
                std::hint::spin_loop();
            }
            until_ended(&db, pid, &after).await;
        }
    }
    xact::finish(held, Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
}

/// A long statement of the body is cancelled, not waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_statement_of_a_dropped_body_is_cancelled() {
    let db = database().await;
    for scope in SCOPES {
        let after = format!("{scope:?} in a long statement");
        let mut conn = db.connect().await;
        let pid = pid_of(&mut conn).await;
        let long = async {
            let mut held = if scope.is_session() {
                session::acquire(&mut conn, 7).await.unwrap()
            } else {
                xact::begin(&mut conn, scope.request(Wait::Session))
                    .await
                    .unwrap()
            };
            execute(held.conn(), "SELECT pg_sleep(600)").await
        };
        tokio::select! {
            biased;
            _ = long => panic!("{after}: it ended"),
            () = db.until_active("pg_sleep(600)") => {}
        }
        until_ended(&db, pid, &after).await;
        assert_closed(&mut conn, &after).await;
        assert_eq!(db.locks().await, [], "{after}");
    }
    db.until_quiet().await;
}
