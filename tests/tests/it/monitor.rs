//! The live view of locks: both key spaces, who holds, who waits, and who blocks whom, and
//! since when.

use advisory_runtime::monitor::{
    self, Activity, Holder, HolderId, Lock, LockHolder, Locks, Names, Scope, State, Waiter,
};
use advisory_runtime::{Key, Mode, Request, Wait, session, xact};
use advisory_tests::bookings::{database, finish, key_of};
use advisory_tests::futures::spawn;
use advisory_tests::monitor::{backend, lock, look, until_waiters, waits};
use advisory_tests::statements::run;
use advisory_tests::{Database, pid_of};
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use std::time::{Duration, Instant};

fn holders(lock: &Lock) -> Vec<(HolderId, Mode)> {
    let holders = lock.holders.iter();
    holders
        .map(|holder| (holder.id.clone(), holder.mode))
        .collect()
}

#[tokio::test]
async fn keys_of_both_spaces_come_back_as_they_were_given() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    let pid = pid_of(&mut conn).await;
    let mut keys: Vec<Key> = [i64::MIN, -1, 0, 1, 42, i64::MAX, 1 << 32, -(1 << 32)]
        .map(Key::from)
        .to_vec();
    keys.extend([(0, 0), (0, 42), (7, -3), (-1, -1), (i32::MIN, i32::MAX)].map(Key::from));
    let all = Request::all(keys.clone());
    let held = xact::begin(&mut conn, all).await.unwrap();
    let seen = look(&db).await;
    keys.sort_unstable();
    let found: Vec<Key> = seen.locks.iter().map(|lock| lock.key).collect();
    assert_eq!(found, keys);
    for lock in &seen.locks {
        assert_eq!(holders(lock), [(HolderId::Backend(pid), Mode::Exclusive)]);
        assert_eq!(lock.waiters, []);
    }
    assert_eq!(seen.backends.len(), 1);
    finish(held).await;
    let seen = look(&db).await;
    assert_eq!((seen.locks.len(), seen.backends.len()), (0, 0));
    assert!(seen.database.starts_with("advisory_"), "{seen:?}");
}

#[tokio::test]
async fn a_holder_is_shown_with_all_that_it_does() {
    let db = database().await;
    let mut conn = db.connect().await;
    let pid = pid_of(&mut conn).await;
    run(&mut conn, "SET application_name = 'booking-service'").await;
    let mut held = xact::begin(&mut conn, key_of(7)).await.unwrap();
    run(held.conn(), "SELECT 'its last word'").await;

    let seen = look(&db).await;
    let shown = backend(&seen, pid);
    assert_eq!(shown.application, "booking-service");
    assert_eq!(shown.comment, None);
    assert_eq!(shown.user.as_deref(), Some(seen.role.as_str()));
    assert_eq!((&shown.waits_for, &shown.blocked_by), (&None, &vec![]));
    let Activity::Visible {
        state,
        query,
        transaction_age: Some(_),
        client,
        ..
    } = &shown.activity
    else {
        panic!("{shown:?}");
    };
    assert_eq!(*state, State::IdleInTransaction);
    assert_eq!(query, "SELECT 'its last word'");
    assert_eq!(*client, None, "a socket");
    assert!(seen.sees_all);
    finish(held).await;
}

#[tokio::test]
async fn waiters_are_blocked_by_holders_and_earlier_waiters() {
    let db = Database::create().await;
    let (mut one, mut other) = (db.connect().await, db.connect().await);
    let mut readers = [pid_of(&mut one).await, pid_of(&mut other).await];
    let shared = || Request::new(5).shared();
    let first = session::acquire(&mut one, shared()).await.unwrap();
    let second = session::acquire(&mut other, shared()).await.unwrap();

    let (mut third, mut last) = (db.connect().await, db.connect().await);
    let (writer, reader) = (pid_of(&mut third).await, pid_of(&mut last).await);
    let writing = waits(third, "SELECT pg_advisory_lock(5)");
    until_waiters(&db, 1).await;
    let reading = waits(last, "SELECT pg_advisory_lock_shared(5)");
    until_waiters(&db, 2).await;

    let seen = look(&db).await;
    let lock = lock(&seen, 5);
    readers.sort_unstable();
    let both = readers.map(|pid| (HolderId::Backend(pid), Mode::Shared));
    assert_eq!(holders(lock), both);
    let [ahead, next] = &lock.waiters[..] else {
        panic!("{lock:?}");
    };
    assert_eq!((ahead.pid, ahead.mode), (writer, Mode::Exclusive));
    assert_eq!(ahead.held_by, readers);
    assert!(ahead.behind.is_empty());
    // The reader is not blocked by a holder, but by the writer ahead of it.
    assert_eq!((next.pid, next.mode), (reader, Mode::Shared));
    assert!(next.held_by.is_empty());
    assert_eq!(next.behind, [writer]);
    assert!(ahead.waited >= next.waited, "{ahead:?} {next:?}");
    let waits_for = &backend(&seen, writer).waits_for;
    assert_eq!(waits_for.as_deref(), Some("advisory"));

    drop((first, second));
    for done in [writing, reading] {
        drop(done.await.unwrap());
    }
}

#[tokio::test]
async fn who_is_in_the_way_of_a_holder_is_shown_too() {
    let db = database().await;
    db.run("INSERT INTO booking VALUES (1, 'Ada')").await;
    let (mut row, mut holder, mut waiter) =
        (db.connect().await, db.connect().await, db.connect().await);
    let (by_row, by_holder) = (pid_of(&mut row).await, pid_of(&mut holder).await);
    let by_waiter = pid_of(&mut waiter).await;
    run(&mut row, "BEGIN; UPDATE booking SET guest = 'Bob'").await;
    run(&mut holder, "BEGIN; SELECT pg_advisory_xact_lock(5)").await;
    let held = waits(holder, "UPDATE booking SET guest = 'Eve'");
    until_waiters(&db, 1).await;
    let waiting = waits(waiter, "SELECT pg_advisory_xact_lock(5)");
    db.until_waiting(5).await;

    let seen = look(&db).await;
    let [Waiter { pid, held_by, .. }] = &lock(&seen, 5).waiters[..] else {
        panic!("{seen:?}");
    };
    assert_eq!((*pid, &held_by[..]), (by_waiter, &[by_holder][..]));
    let stuck = backend(&seen, by_holder);
    assert_eq!(stuck.waits_for.as_deref(), Some("transactionid"));
    assert_eq!(stuck.blocked_by, [by_row]);
    let Activity::Visible { state, .. } = &backend(&seen, by_row).activity else {
        panic!("{seen:?}");
    };
    assert_eq!(*state, State::IdleInTransaction);
    assert_eq!(seen.backends.len(), 3);

    drop(row);
    for done in [held, waiting] {
        drop(done.await.unwrap());
    }
}

#[tokio::test]
async fn another_databases_locks_are_not_shown() {
    let (db, other) = (Database::create().await, Database::create().await);
    let (mut ours, mut theirs) = (db.connect().await, other.connect().await);
    let two = "SELECT pg_advisory_lock(5), pg_advisory_lock(5, 6)";
    run(&mut ours, two).await;
    let two = "SELECT pg_advisory_lock(5), pg_advisory_lock(7)";
    run(&mut theirs, two).await;
    let seen = look(&db).await;
    let keys: Vec<Key> = seen.locks.iter().map(|lock| lock.key).collect();
    assert_eq!(keys, [Key::BigInt(5), Key::IntInt(5, 6)]);
    assert_eq!(lock(&seen, 5).holders.len(), 1);
    assert_eq!(seen.backends[0].pid, pid_of(&mut ours).await);
    assert_eq!(look(&other).await.locks.len(), 2);
}

#[tokio::test]
async fn only_an_idle_holders_lock_is_known_to_be_session_level() {
    let db = Database::create().await;
    let (mut idle, mut open) = (db.connect().await, db.connect().await);
    run(&mut idle, "SELECT pg_advisory_lock(5)").await;
    run(&mut open, "BEGIN").await;
    run(&mut open, "SELECT pg_advisory_xact_lock(6)").await;
    // The statement that requests a lock shows how long it is held.
    let seen = look(&db).await;
    assert_eq!(lock(&seen, 6).holders[0].scope, Some(Scope::Xact));
    run(&mut open, "SELECT 1").await;
    let idle_pid = pid_of(&mut idle).await;
    let active =
        format!("SELECT state FROM pg_stat_activity WHERE pid = {idle_pid} AND state <> 'idle'");
    db.until_none("an idle session", &active).await;
    let seen = look(&db).await;
    assert_eq!(lock(&seen, 5).holders[0].scope, Some(Scope::Session));
    assert_eq!(lock(&seen, 6).holders[0].scope, None);
}

#[tokio::test]
async fn each_look_inside_one_transaction_is_new() {
    let db = Database::create().await;
    let (mut watcher, mut conn) = (db.connect().await, db.connect().await);
    let pid = pid_of(&mut conn).await;
    run(&mut conn, "SELECT pg_advisory_lock(5)").await;
    watcher.begin_test_transaction().await.unwrap();
    monitor::locks(&mut watcher, &Names::none()).await.unwrap();
    run(&mut conn, "SET application_name = 'renamed'").await;
    let seen = monitor::locks(&mut watcher, &Names::none()).await.unwrap();
    assert_eq!(backend(&seen, pid).application, "renamed");
}

#[tokio::test]
async fn a_look_takes_no_lock_and_waits_for_none() {
    let db = database().await;
    let (mut holder, mut watcher) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    run(&mut watcher, "SET lock_timeout = '10s'").await;
    let seen = monitor::locks(&mut watcher, &Names::none()).await.unwrap();
    assert_eq!(seen.locks.len(), 1);
    assert_eq!(db.locks().await.len(), 1);
    drop(held);
}

/// Citus takes advisory locks with each write, and its numbers can be those of a pair. Here pairs
/// are shown as such locks.
#[tokio::test]
async fn an_advisory_lock_of_an_extension_is_not_of_the_program() {
    let db = database().await;
    db.run(
        "SET allow_system_table_mods = on; CREATE OR REPLACE VIEW pg_catalog.pg_locks AS \
         SELECT locktype, database, relation, page, tuple, virtualxid, transactionid, classid, objid, \
         CASE WHEN locktype = 'advisory' AND objsubid = 2 THEN '8'::int2 ELSE objsubid END AS objsubid, \
         virtualtransaction, pid, mode, granted, fastpath, waitstart FROM pg_catalog.pg_lock_status()",
    )
    .await;
    let (mut extension, mut holder, mut bystander) =
        (db.connect().await, db.connect().await, db.connect().await);
    let pids = [pid_of(&mut extension).await, pid_of(&mut holder).await];
    run(&mut extension, "BEGIN; SELECT pg_advisory_xact_lock(1, 2)").await;
    run(&mut holder, "BEGIN; SELECT pg_advisory_xact_lock(5)").await;
    run(&mut bystander, "BEGIN; SELECT pg_advisory_xact_lock(3, 4)").await;
    let held = waits(holder, "SELECT pg_advisory_xact_lock(1, 2)");
    until_waiters(&db, 1).await;

    let seen = look(&db).await;
    let keys: Vec<Key> = seen.locks.iter().map(|lock| lock.key).collect();
    assert_eq!(keys, [Key::BigInt(5)]);
    let stuck = backend(&seen, pids[1]);
    assert_eq!(stuck.waits_for.as_deref(), Some("foreign advisory"));
    assert_eq!(stuck.blocked_by, pids[..1]);
    let mut shown: Vec<i32> = seen.backends.iter().map(|one| one.pid).collect();
    shown.sort_unstable();
    let mut involved = pids;
    involved.sort_unstable();
    assert_eq!(shown, involved);

    drop((extension, bystander));
    drop(held.await.unwrap());
}

/// How long a session, or its transaction, has been open before it acquires a lock.
const BEFORE: Duration = Duration::from_millis(500);
const WAIT_BEFORE: &str = "SELECT pg_sleep(0.5)";

fn holder(seen: &Locks, key: i64) -> &Holder {
    let [holder] = &lock(seen, key).holders[..] else {
        panic!("{seen:?}")
    };
    holder
}

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
    assert_eq!(found.id, HolderId::Backend(pid));
    assert_eq!(found.held_at_least, None);
    assert!(
        matches!(&backend(&seen, pid).activity, Activity::Visible { state, .. } if *state == State::Active)
    );
    assert_eq!(told(&mut conn, 5).await.held_for(), None);
    db.terminate(pid).await;
    running.await.unwrap().unwrap_err();
}
