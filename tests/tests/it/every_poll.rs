//! A future dropped after each of its polls, from the first to the last: nothing is left, and the connection goes on.

use crate::bookings::{committed, database, execute, insert};
use advisory_runtime::{Connection, Error, Isolation, Key, Request, Wait, session, xact};
use advisory_tests::Database;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Scope {
    Xact,
    /// With statements that the session may have prepared.
    One,
    OneOfSession,
    Nested,
    Strict,
    Session,
}

const SCOPES: [Scope; 6] = [
    Scope::Xact,
    Scope::One,
    Scope::OneOfSession,
    Scope::Nested,
    Scope::Strict,
    Scope::Session,
];

fn request(scope: Scope, wait: Wait) -> Request {
    let request = Request::all([7, 8]).wait(wait);
    match scope {
        Scope::Strict => request.isolation(Isolation::Serializable),
        Scope::One | Scope::OneOfSession => Request::new(7).wait(wait),
        _ => request,
    }
}

/// A locked call with two statements in its body.
async fn call<C: Connection>(conn: &mut C, scope: Scope, wait: Wait) -> Result<(), Error> {
    call_noting(conn, scope, wait, &Cell::new(false)).await
}

/// The same, which notes when its end is asked for.
async fn call_noting<C: Connection>(
    conn: &mut C,
    scope: Scope,
    wait: Wait,
    is_ending: &Cell<bool>,
) -> Result<(), Error> {
    let request = request(scope, wait);
    let mut held = match scope {
        Scope::Session | Scope::OneOfSession => session::acquire(conn, request).await?,
        _ => xact::begin(conn, request).await?,
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

/// The next transaction on the connection commits, and nothing of it is cancelled.
async fn goes_on(conn: &mut AsyncPgConnection, db: &Database, after: &str) {
    let before = committed(db, 1).await;
    conn.transaction::<_, diesel::result::Error, _>(async |conn| {
        execute(conn, "SELECT pg_sleep(0.005)").await?;
        insert(conn, 1, "next").await?;
        execute(conn, "SELECT pg_sleep(0.005)").await
    })
    .await
    .unwrap_or_else(|error| panic!("the next transaction after {after}: {error:?}"));
    assert_eq!(committed(db, 1).await, before + 1, "after {after}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_of_the_callers_own_goes_on_after_a_drop_at_any_poll() {
    let db = database().await;
    let mut conn = db.connect().await;
    for scope in SCOPES {
        call(&mut conn, scope, Wait::Session).await.unwrap();
        db.run("DELETE FROM booking").await;
        for wait in [
            Wait::Session,
            Wait::Never,
            Wait::For(Duration::from_secs(5)),
        ] {
            for polls in 1.. {
                let after = format!("{scope:?}, {wait:?}, dropped after poll {polls}");
                let is_ending = Cell::new(false);
                let is_ready = if scope == Scope::Nested {
                    let mut outer = xact::begin(&mut conn, 99).await.unwrap();
                    insert(outer.conn(), 2, "outer").await.unwrap();
                    let call = call_noting(outer.conn(), scope, wait, &is_ending);
                    let is_ready = is_ready_within(polls, call).await;
                    insert(outer.conn(), 2, "outer").await.unwrap();
                    xact::finish(outer, Ok::<_, Error>(())).await.unwrap();
                    assert_eq!(committed(&db, 2).await, 2, "{after}");
                    is_ready
                } else {
                    let call = call_noting(&mut conn, scope, wait, &is_ending);
                    is_ready_within(polls, call).await
                };
                goes_on(&mut conn, &db, &after).await;
                assert_eq!(db.locks().await, [], "{after}");
                if is_ready {
                    break;
                }
                let commits_itself = matches!(scope, Scope::Session | Scope::OneOfSession);
                if !commits_itself && !is_ending.get() {
                    assert_eq!(committed(&db, 7).await, 0, "{after}");
                }
                db.run("DELETE FROM booking").await;
            }
            db.run("DELETE FROM booking").await;
        }
    }
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_hands_out_a_working_connection_at_once_after_a_drop_at_any_poll() {
    let db = database().await;
    let bb8 = db.bb8(1).await;
    let deadpool = db.deadpool(1);
    let (mut rounds, mut slow) = (0, 0);
    for scope in [Scope::Xact, Scope::Strict, Scope::Session] {
        for polls in 1.. {
            let after = format!("{scope:?} dropped after poll {polls}");
            let mut ready = Vec::new();
            {
                let mut conn = bb8.get().await.unwrap();
                ready.push(is_ready_within(polls, call(&mut conn, scope, Wait::Session)).await);
            }
            let started = Instant::now();
            goes_on(&mut bb8.get().await.unwrap(), &db, &after).await;
            {
                let mut conn = deadpool.get().await.unwrap();
                ready.push(is_ready_within(polls, call(&mut conn, scope, Wait::Session)).await);
            }
            goes_on(&mut deadpool.get().await.unwrap(), &db, &after).await;
            rounds += 1;
            slow += i32::from(started.elapsed() > Duration::from_secs(2));
            db.until_no_locks().await;
            if ready == [true, true] {
                break;
            }
        }
    }
    // A busy machine takes its time now and then; who waits for the clean-up does so always.
    assert!(slow * 2 < rounds, "{slow} of {rounds}");
    db.until_quiet().await;
}

/// What users write: the connection is the pool's, and the function takes it as a plain one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooled_connection_that_is_lent_on_goes_on_too() {
    let db = database().await;
    let pool = db.deadpool(1);
    for scope in SCOPES {
        for polls in 1.. {
            let mut conn = pool.get().await.unwrap();
            let plain: &mut AsyncPgConnection = &mut conn;
            let is_ready = is_ready_within(polls, call(plain, scope, Wait::Session)).await;
            drop(conn);
            let after = format!("{scope:?} dropped after poll {polls}");
            goes_on(&mut pool.get().await.unwrap(), &db, &after).await;
            db.until_no_locks().await;
            if is_ready {
                break;
            }
        }
    }
    db.until_quiet().await;
}

/// Dropped while it waits for a holder, which is where a call spends its time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_waiter_leaves_no_waiter_and_its_connection_goes_on() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    for key in [7, 8] {
        let held = xact::begin(&mut holder, key).await.unwrap();
        for scope in SCOPES {
            if key == 8 && matches!(scope, Scope::One | Scope::OneOfSession) {
                continue;
            }
            for wait in [Wait::Session, Wait::For(Duration::from_secs(30))] {
                let after = format!("{scope:?}, {wait:?}, waiting for {key}");
                tokio::select! {
                    biased;
                    _ = call(&mut conn, scope, wait) => panic!("{after}: it did not wait"),
                    () = db.until_waiting(key) => {}
                }
                goes_on(&mut conn, &db, &after).await;
                let locks = db.locks().await;
                assert!(locks.iter().all(|lock| lock.granted), "{after}: {locks:?}");
                assert_eq!(locks.len(), 1, "{after}: {locks:?}");
            }
        }
        xact::finish(held, Ok::<_, Error>(())).await.unwrap();
    }
    db.until_quiet().await;
}

/// A long statement of the body is cancelled, not waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_statement_of_a_dropped_body_is_cancelled() {
    let db = database().await;
    let mut conn = db.connect().await;
    for scope in SCOPES {
        let after = format!("{scope:?} in a long statement");
        let long = async {
            let mut held = match scope {
                Scope::Session | Scope::OneOfSession => {
                    session::acquire(&mut conn, 7).await.unwrap()
                }
                _ => xact::begin(&mut conn, request(scope, Wait::Session))
                    .await
                    .unwrap(),
            };
            execute(held.conn(), "SELECT pg_sleep(60)").await
        };
        tokio::select! {
            biased;
            _ = long => panic!("{after}: it ended"),
            () = db.until_active("pg_sleep(60)") => {}
        }
        let started = Instant::now();
        goes_on(&mut conn, &db, &after).await;
        // The statement takes twice as long.
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "{after}: {:?}",
            started.elapsed()
        );
        assert_eq!(db.locks().await, [], "{after}");
    }
    db.until_quiet().await;
}

/// Both calls of a chain are dropped at once, the inner before the outer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chain_of_nested_calls_is_dropped_as_a_whole() {
    let db = database().await;
    let mut conn = db.connect().await;
    for polls in 1.. {
        let chain = async {
            let mut outer = xact::begin(&mut conn, Key::BigInt(99)).await?;
            insert(outer.conn(), 2, "outer").await?;
            let inner = call(outer.conn(), Scope::Nested, Wait::Session).await;
            xact::finish(outer, inner).await
        };
        let is_ready = is_ready_within(polls, chain).await;
        goes_on(&mut conn, &db, &format!("poll {polls} of a chain")).await;
        assert_eq!(db.locks().await, [], "after poll {polls}");
        if is_ready {
            break;
        }
        let kept = [committed(&db, 2).await, committed(&db, 7).await];
        assert!(
            kept == [0, 0] || kept == [1, 1],
            "half of a chain: {kept:?}"
        );
        db.run("DELETE FROM booking").await;
    }
    db.until_quiet().await;
}
