//! Blocking Diesel: the check of a session before its first session-level lock, and locks that own
//! their connection.

use advisory_runtime::blocking::session;
use advisory_runtime::{Error, OwnedLockError, Request, Wait, advisory_lock};
use advisory_tests::blocking::{execute, pid_of};
use advisory_tests::bookings::{database, key_of};
use advisory_tests::{Database, assert_error};
use diesel::Connection;
use diesel::connection::SimpleConnection;
use diesel::pg::PgConnection;
use std::thread;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn the_probe_says_that_the_pool_must_give_two_connections() {
    let db = database().await;
    let pool = db.impatient_r2d2(Duration::from_millis(50)).await;
    let error = session::verify(&pool).unwrap_err();
    assert_error!(error, Pool);
    let said = error.to_string();
    assert!(
        said.contains("its maximum size must be at least 2"),
        "{said}"
    );
}

/// Its cancel keys are longer, and belong to libpq: the check of a session does not depend on them.
/// Older servers answer with 3.0.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_protocol_3_2_works_like_any_other() {
    let db = database().await;
    let parameters = if db.url().contains('?') { '&' } else { '?' };
    let url = format!("{}{parameters}max_protocol_version=3.2", db.url());
    let connect = || PgConnection::establish(&url).unwrap();
    let (mut first, mut second) = (connect(), connect());
    let pool = Database::r2d2_at(&url, 2);
    session::verify(&pool).unwrap();
    assert_eq!(db.locks().await, []);
    let held = session::acquire(&mut first, key_of(7)).unwrap();
    let never = Request::new(key_of(7)).wait(Wait::Never);
    assert_error!(session::acquire(&mut second, never), NotAvailable);
    drop(held);
    assert_eq!(db.locks().await, []);
}

/// The limit of Clippy's `result_large_err` is 128 bytes.
const _: () = assert!(size_of::<OwnedLockError<PgConnection>>() < 128);

#[tokio::test(flavor = "multi_thread")]
async fn an_owned_lock_moves_to_a_thread_and_returns_its_connection() {
    let db = database().await;
    let mut conn = db.establish();
    let pid = pid_of(&mut conn);
    let mut lock = session::acquire_owned(conn, 7).unwrap();
    lock.check().unwrap();
    let failed = session::acquire_owned(db.establish(), Request::new(7).wait(Wait::Never));
    let failed = failed.unwrap_err();
    assert!(failed.error.is_busy(), "{failed:?}");
    let mut other = failed.connection;
    execute(&mut other, "SELECT 1").unwrap();
    let released = thread::spawn(move || {
        execute(lock.conn(), "INSERT INTO booking VALUES (7, 'Ada')").unwrap();
        lock.finish(Ok::<_, Error>(())).unwrap()
    });
    let (mut conn, ()) = released.join().unwrap();
    assert_eq!(pid_of(&mut conn), pid);
    assert_eq!(db.locks().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_lock_is_released_and_a_pool_never_gets_it_back() {
    let db = database().await;
    drop(session::acquire_owned(db.establish(), 7).unwrap());
    db.until_no_locks().await;
    let pool = db.r2d2(1);
    for open in ["", "BEGIN", "BEGIN;SELECT 1/0"] {
        let mut lock = session::acquire_owned(pool.get().unwrap(), Request::all([7, 8])).unwrap();
        drop(lock.conn().batch_execute(open));
        drop(lock);
        assert_eq!(db.locks().await, [], "{open}");
        let conn = session::acquire_owned(pool.get().unwrap(), 7)
            .unwrap()
            .finish(Ok::<_, Error>(()))
            .unwrap();
        drop(conn);
    }
    let lock = session::acquire_owned(pool.get().unwrap(), 7).unwrap();
    let panicked = thread::spawn(move || {
        let _lock = lock;
        panic!("the thread's own panic");
    });
    assert!(panicked.join().is_err());
    db.until_no_locks().await;
    pool.get().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lock_is_found_by_a_check_and_by_the_release() {
    let db = database().await;
    for how in [
        "SELECT pg_advisory_unlock_all()",
        "SELECT pg_terminate_backend(pg_backend_pid())",
    ] {
        let mut lock = session::acquire_owned(db.establish(), 7).unwrap();
        lock.check().unwrap();
        drop(lock.conn().batch_execute(how));
        assert_error!(lock.check(), LockLost, "{how}");
        assert_error!(lock.finish(Ok::<_, Error>(())), LockLost, "{how}");
    }
    db.until_no_locks().await;
}

#[advisory_lock(key = "room:<room>", name = "room", handle = lock, scope = "session")]
fn checked(conn: &mut PgConnection, room: i64, seen: &mut Vec<bool>) -> Result<(), Error> {
    seen.push(lock.check(conn).is_ok());
    conn.batch_execute("SELECT pg_advisory_unlock_all()")?;
    let lost = matches!(lock.check(conn), Err(Error::LockLost { .. }));
    seen.push(!lost);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_can_check_its_lock() {
    let db = database().await;
    let mut seen = Vec::new();
    assert_error!(checked(&mut db.establish(), 7, &mut seen), LockLost);
    assert_eq!(seen, [true, false]);
}
