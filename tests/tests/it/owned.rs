//! Locks that own their connection: stored, moved to a task, checked, lost, released, dropped.
//! While a call waits for one of a pool, its connection is in the pool.

use advisory_runtime::{
    Connection as _, Error, OwnedLockGuard, Pool, Request, Wait, advisory_lock, blocking, session,
    xact,
};
use advisory_tests::bookings::{database, execute, run};
use advisory_tests::dropped_call::until_ended;
use advisory_tests::futures::{dropped, is_ready_within, spawn, spawn_blocking};
use advisory_tests::polls::until_tried;
use advisory_tests::{Database, Proxy, assert_error, pid_of};
use diesel::r2d2;
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use std::time::Duration;
use tokio_postgres::NoTls;

fn never(key: i64) -> Request {
    Request::new(key).wait(Wait::Never)
}

/// The error of the work under the lock, and the value of its `Ok`.
#[tokio::test]
async fn owned_lock_ends_with_the_result_of_its_work() {
    let db = database().await;
    let lock = own(&db, 7).await;
    let failed = lock.finish(Err::<(), _>(Work::Failed("no room"))).await;
    assert_eq!(failed.err(), Some(Work::Failed("no room")));
    db.until_no_locks().await;
    // The error is not replaced by that of a lost lock.
    let mut lock = own(&db, 7).await;
    run(lock.conn(), "SELECT pg_advisory_unlock_all()").await;
    let failed = lock.finish(Err::<(), _>(Work::Failed("no room"))).await;
    assert_eq!(failed.err(), Some(Work::Failed("no room")));
    // After an error the connection is kept if the result is passed on as a value.
    let lock = own(&db, 7).await;
    let result: Result<(), Work> = Err(Work::Failed("no room"));
    let (mut conn, result) = lock.finish(Ok::<_, Error>(result)).await.unwrap();
    assert_eq!(result, Err(Work::Failed("no room")));
    run(&mut conn, "SELECT 1").await;
    db.until_no_locks().await;
}

#[derive(Debug, PartialEq)]
enum Work {
    Failed(&'static str),
    Lock(String),
}

impl From<Error> for Work {
    fn from(error: Error) -> Self {
        Self::Lock(error.to_string())
    }
}

async fn own(db: &Database, request: impl Into<Request>) -> OwnedLockGuard<AsyncPgConnection> {
    let lock = session::acquire_owned(db.connect().await, request).await;
    lock.unwrap()
}

#[tokio::test]
async fn owned_lock_moves_to_a_task_and_gives_its_connection_back() {
    let db = database().await;
    let mut conn = db.connect().await;
    let pid = pid_of(&mut conn).await;
    let mut lock = session::acquire_owned(conn, 7).await.unwrap();
    assert_eq!(lock.info().key(), 7.into());
    assert_eq!(format!("{lock:?}"), "OwnedLockGuard { lock: \"7\", .. }");
    run(lock.conn(), "INSERT INTO booking VALUES (7, 'Ada')").await;
    let task = spawn(async move {
        lock.check().await.unwrap();
        lock.conn()
            .transaction(async |conn| execute(conn, "INSERT INTO booking VALUES (7, 'Ben')").await)
            .await
            .unwrap();
        lock.finish(Ok::<_, Error>(())).await
    });
    let (mut conn, ()) = task.await.unwrap().unwrap();
    assert_eq!(pid_of(&mut conn).await, pid);
    assert_eq!(db.locks().await, []);
    // And again, several keys.
    let lock = session::acquire_owned(conn, Request::all([7, 8]).shared())
        .await
        .unwrap();
    assert_eq!(db.locks().await.len(), 2);
    let (conn, ()) = lock.finish(Ok::<_, Error>(())).await.unwrap();
    drop(own(&db, 8).await.finish(Ok::<_, Error>(())).await.unwrap());
    drop(conn);
    db.until_quiet().await;
}

#[tokio::test]
async fn an_acquisition_that_fails_gives_the_connection_back() {
    let db = database().await;
    let holder = own(&db, 7).await;
    let mut conn = db.connect().await;
    let pid = pid_of(&mut conn).await;
    for (request, is_busy) in [
        (never(7), true),
        (Request::new(7).wait(Duration::from_millis(20)), true),
        (Request::all::<i64>([]), false),
    ] {
        let failed = session::acquire_owned(conn, request).await.unwrap_err();
        assert_eq!(failed.error.is_busy(), is_busy, "{failed:?}");
        assert_eq!(failed.to_string(), failed.error.to_string());
        conn = *failed.connection;
        assert_eq!(pid_of(&mut conn).await, pid);
    }
    run(&mut conn, "BEGIN").await;
    run(&mut conn, "ROLLBACK").await;
    drop(holder.finish(Ok::<_, Error>(())).await.unwrap());
    let through: Result<_, Error> = async { Ok(session::acquire_owned(conn, 7).await?) }.await;
    drop(through.unwrap().finish(Ok::<_, Error>(())).await.unwrap());
    let through: Result<(), diesel::result::Error> = async {
        let _lock = session::acquire_owned(db.connect().await, Request::all::<i64>([])).await?;
        Ok(())
    }
    .await;
    assert_error!(through, NoKeys);
    db.until_quiet().await;
}

#[tokio::test]
async fn a_dropped_lock_closes_its_connection() {
    let db = database().await;
    let mut lock = own(&db, 7).await;
    let pid = pid_of(lock.conn()).await;
    drop(lock);
    until_ended(&db, pid, "a drop").await;

    let deadpool = db.deadpool(1);
    let bb8 = db.bb8(1).await;
    for round in 0..3 {
        let conn = deadpool.get().await.unwrap();
        let mut lock = session::acquire_owned(conn, 7).await.unwrap();
        let pid = pid_of(lock.conn()).await;
        if round == 2 {
            run(lock.conn(), "BEGIN").await;
        }
        drop(lock);
        let mut next = deadpool.get().await.unwrap();
        assert_ne!(pid_of(&mut next).await, pid);
        drop(xact::begin(&mut next, 7).await.unwrap());
        until_ended(&db, pid, "a drop").await;

        let conn = bb8.get_owned().await.unwrap();
        let mut lock = session::acquire_owned(conn, 8).await.unwrap();
        let pid = pid_of(lock.conn()).await;
        drop(lock);
        let mut next = bb8.get().await.unwrap();
        assert_ne!(pid_of(&mut next).await, pid);
        until_ended(&db, pid, "a drop").await;
    }
    db.until_no_locks().await;

    // A release restores them.
    let conn = deadpool.get().await.unwrap();
    let mut lock = session::acquire_owned(conn, 7).await.unwrap();
    let pid = pid_of(lock.conn()).await;
    drop(lock.finish(Ok::<_, Error>(())).await.unwrap());
    assert_eq!(pid_of(&mut deadpool.get().await.unwrap()).await, pid);
    db.until_no_locks().await;
}

#[tokio::test]
async fn a_dropped_acquisition_leaves_no_waiter_and_no_lock() {
    let db = database().await;
    let holder = own(&db, 7).await;
    let waiter = db.connect().await;
    dropped(session::acquire_owned(waiter, 7), db.until_waiting(7)).await;
    db.until_no_waiters(7).await;
    drop(holder.finish(Ok::<_, Error>(())).await.unwrap());
    for polls in 1.. {
        let mut conn = db.connect().await;
        let pid = pid_of(&mut conn).await;
        let is_ready = is_ready_within(polls, async {
            let lock = session::acquire_owned(conn, Request::all([7, 8])).await;
            lock.unwrap().finish(Ok::<_, Error>(())).await.map(drop)
        })
        .await;
        until_ended(&db, pid, &format!("poll {polls}")).await;
        if is_ready {
            break;
        }
    }
    db.until_quiet().await;
}

/// Ends each kind of connection, and waits for `lost`.
#[tokio::test]
async fn lost_resolves_when_the_connection_ends() {
    let db = database().await;
    let (client, connection) = tokio_postgres::connect(db.url(), NoTls).await.unwrap();
    let with_task = AsyncPgConnection::try_from_client_and_connection(client, connection).await;
    let (client, connection) = tokio_postgres::connect(db.url(), NoTls).await.unwrap();
    spawn(connection);
    let without_task = AsyncPgConnection::try_from(client).await.unwrap();
    let conns = [db.connect().await, with_task.unwrap(), without_task];
    for (key, conn) in (1..).zip(conns) {
        let mut lock = session::acquire_owned(conn, key).await.unwrap();
        let pid = pid_of(lock.conn()).await;
        // While the lock is held `lost` waits, and dropping it loses nothing.
        let waits = tokio::time::timeout(Duration::from_millis(20), lock.lost()).await;
        assert!(waits.is_err(), "connection {key}");
        lock.check().await.unwrap();
        let ((), ()) = tokio::join!(lock.lost(), db.terminate(pid));
        lock.lost().await;
        assert_error!(lock.check().await, LockLost);
        assert_error!(lock.finish(Ok::<_, Error>(())).await, LockLost);
    }
    db.until_no_locks().await;
}

#[tokio::test]
async fn lost_sends_nothing_and_notices_a_cut_connection() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    let mut lock = session::acquire_owned(conn, 7).await.unwrap();
    proxy.reset();
    let waits = tokio::time::timeout(Duration::from_millis(100), lock.lost()).await;
    assert!(waits.is_err());
    assert_eq!((proxy.round_trips(), proxy.queries().len()), (0, 0));
    proxy.cut_all();
    lock.lost().await;
    drop(lock);
    db.until_no_locks().await;
}

/// A notification that arrives meanwhile does not end the wait.
#[tokio::test]
async fn lost_is_not_mistaken_about_a_notification() {
    let db = database().await;
    let mut lock = own(&db, 7).await;
    lock.conn().batch_execute("LISTEN news").await.unwrap();
    let pid = pid_of(lock.conn()).await;
    db.run("NOTIFY news").await;
    let waits = tokio::time::timeout(Duration::from_millis(100), lock.lost()).await;
    assert!(waits.is_err());
    let ((), ()) = tokio::join!(lock.lost(), db.terminate(pid));
}

#[tokio::test]
async fn check_says_whether_this_session_holds_every_key() {
    let db = database().await;
    for request in [
        Request::new(7),
        Request::new((7, 8)),
        Request::all([7, 8]),
        Request::all([-7, i64::MIN]).shared(),
    ] {
        let mut lock = own(&db, request).await;
        lock.check().await.unwrap();
        run(lock.conn(), "BEGIN").await;
        lock.check().await.unwrap();
        execute(lock.conn(), "SELECT 1/0").await.unwrap_err();
        assert_error!(lock.check().await, Database);
        run(lock.conn(), "ROLLBACK").await;
        lock.check().await.unwrap();
        run(lock.conn(), "SELECT pg_advisory_unlock_all()").await;
        assert_error!(lock.check().await, LockLost);
        assert_error!(lock.finish(Ok::<_, Error>(())).await, LockLost);
    }
    // One of two keys.
    let mut lock = own(&db, Request::all([7, 8])).await;
    run(lock.conn(), "SELECT pg_advisory_unlock(8)").await;
    assert_error!(lock.check().await, LockLost);
    drop(lock);
    // A lock of another session is not this one's.
    let other = own(&db, 7).await;
    let mut lock = own(&db, 9).await;
    run(lock.conn(), "SELECT pg_advisory_unlock(9)").await;
    drop(other);
    assert!(lock.check().await.is_err());
    drop(lock);
    db.until_no_locks().await;
}

#[tokio::test]
async fn each_of_several_permits_is_checked_and_released() {
    let db = database().await;
    let request = || never(7).permits(2);
    let mut locks = Vec::new();
    for _ in 0..2 {
        locks.push(own(&db, request()).await);
    }
    let refused = session::acquire_owned(db.connect().await, request()).await;
    assert_error!(refused.unwrap_err().error, NotAvailable);
    for lock in &mut locks {
        lock.check().await.unwrap();
    }
    for lock in locks {
        drop(lock.finish(Ok::<_, Error>(())).await.unwrap());
    }
    assert_eq!(db.locks().await, []);
}

#[tokio::test]
async fn a_release_of_a_lock_that_was_held_too_long_says_so() {
    let db = database().await;
    let request = Request::new(7).max_hold(Duration::from_millis(1));
    let mut lock = own(&db, request).await;
    // The server ends the session of a client that stalls for a second.
    drop(execute(lock.conn(), "SELECT pg_sleep(0.01)").await);
    assert_error!(lock.finish(Ok::<_, Error>(())).await, HoldExceeded);
    db.until_no_locks().await;
}

/// Its body loses the lock on request.
#[advisory_lock(key = "room:<room>", name = "room", handle = lock, scope = "session")]
async fn checked(conn: &mut AsyncPgConnection, room: i64, loses: bool) -> Result<(), Error> {
    lock.check(conn).await?;
    if loses {
        conn.batch_execute("SELECT pg_advisory_unlock_all()")
            .await?;
    }
    lock.check(conn).await
}

#[advisory_lock(key = "room:<room>", name = "room", handle = lock)]
async fn checked_xact(conn: &mut AsyncPgConnection, room: i64, loses: bool) -> Result<(), Error> {
    lock.check(conn).await?;
    if loses {
        conn.batch_execute("COMMIT").await?;
    }
    lock.check(conn).await
}

#[tokio::test]
async fn a_body_can_check_its_lock() {
    let db = database().await;
    let mut conn = db.connect().await;
    checked(&mut conn, 7, false).await.unwrap();
    checked_xact(&mut conn, 7, false).await.unwrap();
    assert_error!(checked(&mut conn, 7, true).await, LockLost);
    let mut conn = db.connect().await;
    assert_error!(checked_xact(&mut conn, 7, true).await, LockLost);
    db.until_no_locks().await;
}

const HOUR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(5);

/// Whether the pool's only connection is in the pool, and works.
async fn works<P: Pool>(pool: &P) {
    let one = tokio::time::timeout(Duration::from_secs(20), pool.connection());
    let mut conn = one.await.unwrap().unwrap();
    run(conn.pg(), "SELECT 1").await;
}

async fn between_two_tries<P: Pool + 'static>(db: &Database, pool: &P) {
    let holder = own(db, 7).await;
    let waiting = session::acquire_from(pool, Request::new(7).poll(HOUR));
    dropped(waiting, async {
        until_tried(db).await;
        works(pool).await;
    })
    .await;
    // While the pool has no connection.
    let taken = pool.connection().await.unwrap();
    let mut waiting = Box::pin(session::acquire_from(pool, 8));
    assert!(!is_ready_within(1, waiting.as_mut()).await);
    drop(waiting);
    drop(taken);
    works(pool).await;
    assert_eq!(db.locks().await.len(), 1);
    // It gets the lock when it is free.
    let waiting = session::acquire_from(pool, Request::new(7).poll(SOON));
    let (lock, ()) = tokio::join!(waiting, async {
        until_tried(db).await;
        drop(holder.finish(Ok::<_, Error>(())).await.unwrap());
    });
    let mut lock = lock.unwrap();
    lock.check().await.unwrap();
    assert_eq!(db.locks().await.len(), 1);
    drop(lock.finish(Ok::<_, Error>(())).await.unwrap());
    works(pool).await;
    db.until_no_locks().await;
}

#[tokio::test]
async fn between_two_tries_the_pool_has_the_connection() {
    let db = database().await;
    between_two_tries(&db, &db.deadpool(1)).await;
    between_two_tries(&db, &db.bb8(1).await).await;
}

/// The call is dropped after each of its polls, with the lock free and with the lock held.
async fn dropped_at_each_poll<P: Pool + 'static>(db: &Database, pool: &P) {
    let holder = own(db, 7).await;
    // A refused try has fewer polls than this, and a successful one ends the call.
    for (key, most) in [(7, 16), (8, 60)] {
        let mut was_ready = false;
        for polls in 0..most {
            let mut waiting = Box::pin(session::acquire_from(pool, Request::new(key).poll(SOON)));
            was_ready = is_ready_within(polls, waiting.as_mut()).await;
            drop(waiting);
            works(pool).await;
            db.until_none(
                "a lock that is left",
                "SELECT 'held' FROM pg_locks WHERE locktype = 'advisory' AND objid = 8 AND \
                 database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            )
            .await;
            assert_eq!(db.locks().await.len(), 1);
            if was_ready {
                break;
            }
        }
        assert_eq!(was_ready, key == 8);
    }
    drop(holder);
    db.until_no_locks().await;
}

#[tokio::test]
async fn a_dropped_call_leaves_no_lock_and_a_pool_that_works() {
    let db = database().await;
    dropped_at_each_poll(&db, &db.deadpool(1)).await;
    dropped_at_each_poll(&db, &db.bb8(1).await).await;
}

#[tokio::test]
async fn it_is_owned_and_waits_as_long_as_the_request_says() {
    let db = database().await;
    let pool = db.bb8(2).await;
    let other = pool.clone();
    let task = spawn(async move { session::acquire_from(&other, 7).await });
    let lock = task.await.unwrap().unwrap();
    assert_error!(session::acquire_from(&pool, never(7)).await, NotAvailable);
    let short = Request::new(7).wait(10 * SOON).poll(SOON);
    assert_error!(session::acquire_from(&pool, short.clone()).await, TimedOut);
    let many = session::acquire_from(&pool, Request::all([8, 9]).shared()).await;
    assert_eq!(db.locks().await.len(), 3);
    drop(many.unwrap().finish(Ok::<_, Error>(())).await.unwrap());
    let task = spawn(lock.finish(Ok::<_, Error>(())));
    drop(task.await.unwrap().unwrap());
    db.until_no_locks().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_pool_has_the_connection_between_two_tries() {
    let db = database().await;
    let pool = db.r2d2(1);
    let holder = own(&db, 7).await;
    let (mut waiting, other) = (Vec::new(), pool.clone());
    // Two that wait, on one connection.
    for _ in 0..2 {
        let pool: r2d2::Pool<_> = pool.clone();
        waiting.push(spawn_blocking(move || {
            let lock = blocking::session::acquire_from(&pool, Request::new(7).poll(SOON))?;
            lock.finish(Ok::<_, Error>(())).map(drop)
        }));
    }
    until_tried(&db).await;
    let executed = spawn_blocking(move || {
        advisory_tests::blocking::execute(&mut other.get().unwrap(), "SELECT 1").unwrap();
    });
    executed.await.unwrap();
    drop(holder.finish(Ok::<_, Error>(())).await.unwrap());
    for one in waiting {
        one.await.unwrap().unwrap();
    }
    db.until_no_locks().await;
    let second = db.r2d2(1);
    let missed = spawn_blocking(move || {
        let lock = blocking::session::acquire_from(&pool, 9).unwrap();
        let missed = blocking::session::acquire_from(&second, never(9));
        (missed.map(drop).unwrap_err(), lock)
    });
    let (error, lock) = missed.await.unwrap();
    assert_error!(error, NotAvailable);
    spawn_blocking(move || drop(lock)).await.unwrap();
    db.until_no_locks().await;
}
