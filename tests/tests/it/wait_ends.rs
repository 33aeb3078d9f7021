//! Every end of a wait has its own error, whatever language the server uses; the time limit of a
//! call for several keys.

use crate::calls::assert_closed;
use advisory_runtime::{Error, Isolation, Request, Wait, session, xact};
use advisory_tests::bookings::{database, execute, finish, in_transaction, run};
use advisory_tests::futures::spawn;
use advisory_tests::pauses::pause;
use advisory_tests::{AdvisoryLock, Database, LockedKey, Proxy, assert_error, pid_of};
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

/// Everything else that a call sends must take less time than this.
const SHORT: &str = "SET statement_timeout = '250ms'";

async fn no_longer_short(conn: &mut AsyncPgConnection) {
    while execute(conn, "RESET statement_timeout").await.is_err() {}
}

async fn every_end_of_a_wait_has_its_own_error(db: &Database, prepare: &str) {
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    run(&mut conn, prepare).await;
    run(&mut holder, prepare).await;
    let held = xact::begin(&mut holder, 7).await.unwrap();
    for way in WAYS {
        for keys in [vec![7], vec![6, 7, 8]] {
            let request = Request::all(keys);
            let timed_out = request.clone().wait(Duration::from_millis(30));
            let error = wait_for(&mut conn, way, timed_out).await;
            assert_error!(error, TimedOut, "{way:?}");
            assert!(goes_on(&mut conn).await, "{way:?}");
            assert_eq!(db.locks().await.len(), 1, "{way:?}: the holder's");
            for wait in [
                Wait::Forever,
                Wait::Session,
                Wait::For(Duration::from_secs(9)),
            ] {
                run(&mut conn, SHORT).await;
                let error = wait_for(&mut conn, way, request.clone().wait(wait)).await;
                assert_error!(error, Cancelled, "{way:?}");
                assert_eq!(db.locks().await.len(), 1, "{way:?}: the holder's");
                conn = after_cancelled(db, conn, way, prepare).await;
                no_longer_short(&mut conn).await;
            }
            let pid = pid_of(&mut conn).await;
            let request = request.wait(Duration::from_secs(9));
            let (error, ()) = tokio::join!(wait_for(&mut conn, way, request), async {
                db.until_waiting(7).await;
                db.run(&format!("SELECT pg_cancel_backend({pid})")).await;
            });
            assert_error!(error, Cancelled, "{way:?}");
            assert_eq!(db.locks().await.len(), 1, "{way:?}: the holder's");
            conn = after_cancelled(db, conn, way, prepare).await;
        }
    }
    finish(held).await;
    session_deadlocks_leave_nothing(db, prepare).await;
    // Each holds one lock and requests the other's, with the server's deadlock_timeout of one
    // second.
    let mut mine = xact::begin(&mut holder, 1).await.unwrap();
    let mut theirs = xact::begin(&mut conn, 2).await.unwrap();
    let (first, second) = tokio::join!(
        async move {
            let end = xact::begin(mine.conn(), 2).await.map(drop);
            mine.finish(end).await
        },
        async move {
            db.until_waiting(2).await;
            let end = xact::begin(theirs.conn(), 1).await.map(drop);
            theirs.finish(end).await
        }
    );
    let deadlocks = [&first, &second]
        .into_iter()
        .filter(|end| matches!(end, Err(Error::Deadlock { .. })))
        .count();
    assert_eq!(deadlocks, 1, "{first:?} {second:?}");
    db.until_quiet().await;
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Xact,
    Strict,
    /// In a transaction of Diesel's own, which commits after the refusal.
    Nested,
    Session,
}

const WAYS: [Way; 4] = [Way::Xact, Way::Strict, Way::Nested, Way::Session];

async fn wait_for(conn: &mut AsyncPgConnection, way: Way, request: Request) -> Error {
    let begun = match way {
        Way::Xact => xact::begin(conn, request).await.map(drop),
        Way::Strict => {
            let request = request.isolation(Isolation::Serializable);
            xact::begin(conn, request).await.map(drop)
        }
        Way::Nested => {
            let nested = in_transaction::<_, Error>(conn, async |conn| {
                let refused = xact::begin(conn, request).await.map(drop);
                execute(conn, "SELECT 1").await?;
                Ok(refused)
            });
            nested.await.unwrap()
        }
        Way::Session => session::acquire(conn, request).await.map(drop),
    };
    begun.unwrap_err()
}

async fn goes_on(conn: &mut AsyncPgConnection) -> bool {
    execute(conn, "SELECT 1").await.is_ok()
}

/// A wait that was ended by a cancel request or `statement_timeout` closes the connection if the
/// session may have got the lock nevertheless; a transaction-level wait never does.
async fn after_cancelled(
    db: &Database,
    mut conn: AsyncPgConnection,
    way: Way,
    prepare: &str,
) -> AsyncPgConnection {
    match way {
        Way::Xact | Way::Nested => assert!(goes_on(&mut conn).await, "{way:?}"),
        Way::Strict | Way::Session => {
            assert_closed(&mut conn, "a cancelled wait").await;
            conn = db.connect().await;
            run(&mut conn, prepare).await;
        }
    }
    conn
}

/// A session-level wait that the server ends as a deadlock leaves the connection usable and without
/// its locks, one or several.
async fn session_deadlocks_leave_nothing(db: &Database, prepare: &str) {
    for wanted in [vec![2], vec![2, 3, 4]] {
        let (mut first, mut second) = (db.connect().await, db.connect().await);
        for conn in [&mut first, &mut second] {
            run(conn, prepare).await;
        }
        // The second is never the victim: it checks for a deadlock only after an hour.
        run(&mut second, "SET deadlock_timeout = '1h'").await;
        let mut one = session::acquire(&mut first, 1).await.unwrap();
        let mut two = session::acquire(&mut second, 2).await.unwrap();
        let victim = async {
            db.until_waiting(1).await;
            let refused = session::acquire(one.conn(), Request::all(wanted.clone())).await;
            assert_error!(refused.map(drop), Deadlock);
            assert!(goes_on(one.conn()).await);
            // Its own first lock, the other's, and the other's wait.
            assert_eq!(db.locks().await.len(), 3, "{:?}", db.locks().await);
            one.finish(Ok::<_, Error>(())).await.unwrap();
        };
        let other = async {
            let held = session::acquire(two.conn(), 1).await.unwrap();
            held.finish(Ok::<_, Error>(())).await.unwrap();
            two.finish(Ok::<_, Error>(())).await.unwrap();
        };
        tokio::join!(victim, other);
        assert_eq!(db.locks().await, []);
        assert!(goes_on(&mut first).await && goes_on(&mut second).await);
    }
}

#[tokio::test]
async fn every_end_of_a_wait_has_its_own_error_in_english() {
    let db = database().await;
    every_end_of_a_wait_has_its_own_error(&db, "SET lc_messages = 'C'").await;
}

#[tokio::test]
async fn every_end_of_a_wait_has_its_own_error_in_german() {
    let db = database().await;
    let mut conn = db.connect().await;
    let german = "SET lc_messages = 'de_DE'";
    if execute(&mut conn, german).await.is_err() {
        return advisory_tests::left_out("german", "the server has no German messages");
    }
    let refused = execute(&mut conn, "SELECT no_such_column")
        .await
        .unwrap_err();
    if !refused.to_string().contains("existiert nicht") {
        return advisory_tests::left_out("german", "the server has no German messages");
    }
    every_end_of_a_wait_has_its_own_error(&db, german).await;
}

/// The budget bounds the wait for the lock, not those of the body.
#[tokio::test]
async fn the_body_has_the_sessions_own_lock_timeout() {
    let db = database().await;
    let mut conn = db.connect().await;
    run(&mut conn, "SET lock_timeout = '9s'").await;
    let is_own = "SELECT 1 / (current_setting('lock_timeout') = '9s')::int";
    for keys in [vec![7], vec![6, 7, 8]] {
        for wait in [Wait::For(Duration::from_secs(5)), Wait::Forever] {
            let request = Request::all(keys.clone()).wait(wait);
            let mut held = xact::begin(&mut conn, request.clone()).await.unwrap();
            run(held.conn(), is_own).await;
            xact::lock(held.conn(), request).await.unwrap();
            run(held.conn(), is_own).await;
            held.finish(Ok::<_, Error>(())).await.unwrap();
        }
    }
}

/// The server can grant a session-level lock and report a timeout all the same.
#[tokio::test]
async fn a_lock_that_is_granted_in_spite_of_a_timeout_is_not_left() {
    const ONE: &str = "SELECT pg_advisory_lock(7), pg_sleep(0.05); \
        DO $$ BEGIN RAISE EXCEPTION 'late' USING ERRCODE = '55P03'; END $$";
    const TWO: &str = "SELECT pg_advisory_lock(6), pg_advisory_lock(7), pg_sleep(0.05); \
        DO $$ BEGIN RAISE EXCEPTION 'late' USING ERRCODE = '55P03'; END $$";
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    for (keys, granted, is_usable) in [(vec![7], ONE, true), (vec![6, 7], TWO, false)] {
        let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
        proxy.replace("pg_advisory_lock(", granted);
        let request = Request::all(keys).wait(Duration::from_millis(30));
        let refused = session::acquire(&mut conn, request.clone()).await;
        assert_error!(refused.map(drop), TimedOut);
        db.until_no_locks().await;
        assert_eq!(execute(&mut conn, "SELECT 1").await.is_ok(), is_usable);
        // At a stricter level the session has the keys before the transaction.
        let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
        proxy.replace("pg_advisory_lock(", granted);
        let request = request.isolation(Isolation::RepeatableRead);
        assert_error!(xact::begin(&mut conn, request).await, TimedOut);
        db.until_no_locks().await;
        assert!(execute(&mut conn, "SELECT 1").await.is_err());
    }
}

/// `lock_timeout` counts for each wait: two waits of 1.5 s under a timeout of 2 s would both
/// succeed.
#[tokio::test]
async fn the_budget_is_for_all_keys_together() {
    let db = database().await;
    let (mut first, mut second) = (db.connect().await, db.connect().await);
    let held_first = xact::begin(&mut first, 1).await.unwrap();
    let held_second = xact::begin(&mut second, 2).await.unwrap();
    let mut conn = db.connect().await;
    let started = Instant::now();
    let waiter = spawn(async move {
        let request = Request::all([1, 2]).wait(Duration::from_secs(2));
        xact::begin(&mut conn, request).await.map(drop)
    });
    // Or has waited: a process that is suspended for longer than the budget sees no waiter.
    let waits_or_has = async |key| {
        let waited_for = |lock: &AdvisoryLock| lock.key == LockedKey::Bigint(key) && !lock.granted;
        while !waiter.is_finished() && !db.locks().await.iter().any(waited_for) {
            pause().await;
        }
    };
    waits_or_has(1).await;
    // The subject is the length of the wait, which no state of the server shows.
    while started.elapsed() < Duration::from_millis(1500) {
        pause().await;
    }
    finish(held_first).await;
    waits_or_has(2).await;
    // Another second and a half, in small steps: if the whole machine is suspended, not only the
    // server's clock continues.
    let mut steps = interval(Duration::from_millis(10));
    steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for _ in 0..150 {
        steps.tick().await;
    }
    finish(held_second).await;
    assert_error!(waiter.await.unwrap(), TimedOut);
    db.until_quiet().await;
}
