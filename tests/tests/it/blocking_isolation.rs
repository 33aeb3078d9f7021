//! Blocking Diesel: the stricter levels, whose snapshot is younger than the lock.

use crate::blocking::{book_unlocked, execute, finish, held_by, insert, setting};
use crate::bookings::{
    assert_few_serialization_failures, committed, database, is_serialization_failure, key_of,
};
use advisory_runtime::blocking::xact;
use advisory_runtime::{Error, Isolation, Request, advisory_lock};
use diesel::QueryResult;
use diesel::pg::PgConnection;
use tokio::task::spawn_blocking;

const LEVELS: [(Isolation, &str); 3] = [
    (Isolation::ReadCommitted, "read committed"),
    (Isolation::RepeatableRead, "repeatable read"),
    (Isolation::Serializable, "serializable"),
];

#[advisory_lock(key = "room:<room>", name = "room", isolation = "read committed")]
fn read_committed(conn: &mut PgConnection, room: i64) -> QueryResult<(bool, String)> {
    Ok((
        book_unlocked(conn, room, "Ada")?,
        setting(conn, "transaction_isolation"),
    ))
}

#[advisory_lock(key = "room:<room>", name = "room", isolation = "repeatable read")]
fn repeatable_read(conn: &mut PgConnection, room: i64) -> QueryResult<(bool, String)> {
    Ok((
        book_unlocked(conn, room, "Ada")?,
        setting(conn, "transaction_isolation"),
    ))
}

#[advisory_lock(key = "room:<room>", name = "room", isolation = "serializable")]
fn serializable(conn: &mut PgConnection, room: i64) -> QueryResult<(bool, String)> {
    Ok((
        book_unlocked(conn, room, "Ada")?,
        setting(conn, "transaction_isolation"),
    ))
}

/// Whether it has booked, and at which level.
fn book_at(
    conn: &mut PgConnection,
    isolation: Isolation,
    room: i64,
) -> QueryResult<(bool, String)> {
    match isolation {
        Isolation::RepeatableRead => repeatable_read(conn, room),
        Isolation::Serializable => serializable(conn, room),
        Isolation::ReadCommitted => read_committed(conn, room),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_sees_what_the_holder_before_it_wrote_at_every_level() {
    let db = database().await;
    for (room, (isolation, name)) in (1..).zip(LEVELS) {
        let (mut holder, mut conn) = (db.establish(), db.establish());
        let request = Request::new(key_of(room)).isolation(isolation);
        let mut held = xact::begin(&mut holder, request).unwrap();
        insert(held.conn(), room, "Grace").unwrap();
        let waiter = spawn_blocking(move || book_at(&mut conn, isolation, room));
        db.until_waiting(key_of(room)).await;
        finish(held);
        let (booked, level) = waiter.await.unwrap().unwrap();
        assert!(!booked, "{isolation:?} saw a stale snapshot");
        assert_eq!(level, name);
        assert_eq!(committed(&db, room).await, 1);
    }
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_level_is_the_functions_own_whatever_the_roles_default_is() {
    let db = database().await;
    let mut conn = db.establish();
    for (_, default) in LEVELS {
        let set = format!("SET default_transaction_isolation = '{default}'");
        execute(&mut conn, &set).unwrap();
        for (isolation, name) in LEVELS {
            let (booked, level) = book_at(&mut conn, isolation, 7).unwrap();
            assert!(booked);
            assert_eq!(level, name, "with a default of {default}");
            assert_eq!(db.locks().await, []);
            db.run("DELETE FROM booking").await;
        }
    }
}

/// The wait is for session-level locks, which a rollback does not release.
#[tokio::test(flavor = "multi_thread")]
async fn no_end_of_a_stricter_call_leaves_a_session_level_lock() {
    #[advisory_lock(key = "room:<room>", name = "room", isolation = "serializable")]
    fn ends(conn: &mut PgConnection, room: i64, sql: &str, is_ok: bool) -> Result<(), Error> {
        assert_eq!(held_by(conn)?, 1);
        drop(execute(conn, sql));
        if is_ok {
            Ok(())
        } else {
            Err(diesel::result::Error::NotFound.into())
        }
    }
    let db = database().await;
    let mut conn = db.establish();
    for sql in [
        "SELECT 1",
        "SELECT 1 FROM no_such_table",
        "COMMIT",
        "ROLLBACK",
    ] {
        for is_ok in [true, false] {
            let end = ends(&mut conn, 7, sql, is_ok);
            assert_eq!(end.is_ok(), is_ok && sql == "SELECT 1", "{sql}: {end:?}");
            assert_eq!(db.locks().await, [], "{sql}");
        }
    }
    assert!(serializable(&mut conn, 7).unwrap().0);
    db.until_quiet().await;
}

/// Check, then insert: 4 threads × 50 on one key.
#[tokio::test(flavor = "multi_thread")]
async fn one_key_has_no_duplicates_and_few_failures_at_any_level() {
    let db = database().await;
    for (isolation, _) in LEVELS {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let mut conn = db.establish();
                spawn_blocking(move || {
                    let (mut made, mut failures) = (0, 0);
                    for room in 0..50 {
                        loop {
                            match book_in_turn(&mut conn, isolation, room) {
                                Ok(is_made) => {
                                    made += i32::from(is_made);
                                    break;
                                }
                                Err(error) if is_serialization_failure(&error) => failures += 1,
                                Err(error) => return Err(error),
                            }
                        }
                    }
                    Ok::<_, Error>((made, failures))
                })
            })
            .collect();
        let (mut made, mut failures) = (0, 0);
        for thread in threads {
            let (rows, failed) = thread.await.unwrap().unwrap();
            made += rows;
            failures += failed;
        }
        assert_few_serialization_failures(isolation, failures, 4 * 50);
        assert_eq!(made, 50, "{isolation:?}");
        let rows = db.count("SELECT count(*) FROM booking").await;
        assert_eq!(rows, 50, "{isolation:?}");
        db.run("TRUNCATE booking").await;
    }
    db.until_quiet().await;
}

/// One key for all rooms, so that every call waits for every other.
fn book_in_turn(conn: &mut PgConnection, isolation: Isolation, room: i64) -> Result<bool, Error> {
    let mut held = xact::begin(conn, Request::new(77).isolation(isolation))?;
    let booked = book_unlocked(held.conn(), room, "Ada");
    held.finish(booked.map_err(Error::Database))
}
