//! The age of a lock: the server does not report it, so there are bounds, and they hold.

use advisory_runtime::monitor::{
    self, Activity, Holder, HolderId, LockHolder, Locks, Scope, State,
};
use advisory_runtime::{Request, Wait, session};
use advisory_tests::bookings::run;
use advisory_tests::futures::spawn;
use advisory_tests::monitor::{backend, lock, look};
use advisory_tests::{Database, pid_of};
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use std::time::{Duration, Instant};

/// How long a session, or its transaction, has been open before it acquires a lock.
const BEFORE: Duration = Duration::from_millis(500);
const WAIT_BEFORE: &str = "SELECT pg_sleep(0.5)";

fn holder(seen: &Locks, key: i64) -> &Holder {
    let [holder] = &lock(seen, key).holders[..] else {
        panic!("{seen:?}")
    };
    holder
}

/// The holder of the lock, as the error of a refused call shows it.
async fn told(conn: &mut AsyncPgConnection, key: i64) -> LockHolder {
    let missed = session::acquire(conn, Request::new(key).wait(Wait::Never)).await;
    let error = missed.unwrap_err();
    let mut holders = monitor::holders(conn, &error).await.unwrap();
    assert_eq!(holders.len(), 1, "{holders:?}");
    holders.remove(0)
}

#[tokio::test]
async fn a_transactions_lock_is_between_its_begin_and_its_last_change() {
    let db = Database::create().await;
    let (mut conn, mut held) = (db.connect().await, db.connect().await);
    run(&mut held, WAIT_BEFORE).await;
    let begun = Instant::now();
    run(&mut held, "BEGIN").await;
    run(&mut held, WAIT_BEFORE).await;
    let taken = Instant::now();
    run(&mut held, "SELECT pg_advisory_xact_lock(5)").await;
    let seen = look(&db).await;
    let found = holder(&seen, 5);
    let at_least = found.held_at_least.unwrap();
    assert!(at_least <= taken.elapsed(), "{found:?}");
    let at_most = found.held_at_most.unwrap();
    assert!(at_most >= BEFORE + at_least, "{found:?}");
    assert!(at_most <= begun.elapsed(), "{found:?}: not the session's");
    assert_eq!(found.scope, Some(Scope::Xact));
    let told = told(&mut conn, 5).await;
    assert!(told.held_for().unwrap() <= taken.elapsed(), "{told:?}");

    // The session may have held it before its transaction began.
    run(&mut held, "SELECT 1").await;
    let seen = look(&db).await;
    let found = holder(&seen, 5);
    assert_eq!(found.scope, None);
    assert!(found.held_at_least.unwrap() <= taken.elapsed(), "{found:?}");
    assert!(found.held_at_most.unwrap() >= BEFORE * 2, "{found:?}");
}

#[tokio::test]
async fn a_session_level_lock_is_at_least_as_old_as_its_idle_time() {
    let db = Database::create().await;
    let (mut conn, mut held) = (db.connect().await, db.connect().await);
    run(&mut held, "SELECT pg_advisory_lock(5)").await;
    let taken = Instant::now();
    run(&mut held, WAIT_BEFORE).await;
    let seen = look(&db).await;
    let found = holder(&seen, 5);
    assert!(found.held_at_least.unwrap() < BEFORE, "{found:?}");
    assert!(found.held_at_most.unwrap() >= BEFORE, "{found:?}");
    assert!(told(&mut conn, 5).await.held_for().unwrap() <= taken.elapsed());

    // Nothing is known about a session that runs a statement: the statement itself may have
    // acquired the lock.
    let pid = pid_of(&mut held).await;
    let running = spawn(async move { held.batch_execute("SELECT pg_sleep(60)").await });
    db.until_active("pg_sleep(60)").await;
    let seen = look(&db).await;
    let found = holder(&seen, 5);
    assert_eq!(
        (&found.id, found.held_at_least),
        (&HolderId::Backend(pid), None)
    );
    assert!(
        matches!(&backend(&seen, pid).activity, Activity::Visible { state, .. } if *state == State::Active)
    );
    assert_eq!(told(&mut conn, 5).await.held_for(), None);
    db.terminate(pid).await;
    running.await.unwrap().unwrap_err();
}
