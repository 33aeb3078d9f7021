//! The stricter levels: the snapshot is younger than the lock.

use super::super::{
    Conn, begin, bookings, connect, end, execute, functions, insert, run, setting, spawn,
};
use advisory_runtime::{Error, Isolation, Request, Wait};
use advisory_tests::assert_error;
use advisory_tests::bookings::{LEVELS, committed, database, outcome};
use advisory_tests::dropped_call::WAITS;
use std::time::Duration;

fn is_serialization_failure(error: &Error) -> bool {
    use diesel::result::DatabaseErrorKind::SerializationFailure;
    matches!(error, Error::Database(diesel::result::Error::DatabaseError(kind, _)) if matches!(kind, SerializationFailure))
}

/// A SERIALIZABLE call can fail because of an earlier one on its key that PostgreSQL has not yet
/// marked as ended when it releases the advisory lock. Without the lock, many more calls fail.
fn assert_few_serialization_failures(isolation: Isolation, failures: usize, calls: usize) {
    eprintln!("{isolation:?}: {failures} of {calls} calls on one key failed with 40001");
    let limit = match isolation {
        Isolation::Serializable => calls / 50,
        _ => 0,
    };
    assert!(failures <= limit, "{isolation:?}: {failures} of {calls}");
}

const STRICT: [Isolation; 2] = [Isolation::RepeatableRead, Isolation::Serializable];

/// Inserts a booking unless there is one, under the lock on the room.
async fn book_at(conn: &mut Conn, isolation: Isolation, room: i64) -> Result<bool, Error> {
    let mut held = begin(conn, Request::new(room).isolation(isolation)).await?;
    let result = async {
        if bookings(held.conn(), room).await? > 0 {
            return Ok(false);
        }
        insert(held.conn(), room, "Ada").await?;
        Ok(true)
    }
    .await;
    end(held, result.map_err(Error::Database)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_sees_what_the_holder_before_it_wrote_at_every_level() {
    let db = database().await;
    for (room, isolation) in LEVELS.into_iter().enumerate() {
        let room = i64::try_from(room).unwrap();
        let (mut holder, mut conn) = (connect(&db).await, connect(&db).await);
        let mut held = begin(&mut holder, Request::new(room).isolation(isolation))
            .await
            .unwrap();
        insert(held.conn(), room, "Grace").await.unwrap();
        let waiter = spawn(async move { book_at(&mut conn, isolation, room).await });
        db.until_waiting(room).await;
        end(held, Ok::<_, Error>(())).await.unwrap();
        assert!(
            !waiter.await.unwrap().unwrap(),
            "{isolation:?} saw a stale snapshot"
        );
        assert_eq!(committed(&db, room).await, 1);
    }
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_level_is_the_requests_own_whatever_the_roles_default_is() {
    let db = database().await;
    db.run("ALTER TABLE booking ADD level text DEFAULT current_setting('transaction_isolation')")
        .await;
    let mut conn = connect(&db).await;
    for default in ["read committed", "repeatable read", "serializable"] {
        let set = format!("SET default_transaction_isolation = '{default}'");
        run(&mut conn, &set).await;
        functions::committed(&mut conn, 1).await.unwrap();
        functions::repeatable(&mut conn, 2).await.unwrap();
        functions::strict(&mut conn, 3).await.unwrap();
        for (isolation, name) in [
            (Isolation::ReadCommitted, "read committed"),
            (Isolation::RepeatableRead, "repeatable read"),
            (Isolation::Serializable, "serializable"),
        ] {
            for wait in WAITS {
                let request = Request::all([3, 1]).isolation(isolation).wait(wait);
                let mut held = begin(&mut conn, request).await.unwrap();
                let level = setting(held.conn(), "transaction_isolation").await;
                assert_eq!(level, name);
                assert_eq!(db.locks().await.len(), 2);
                end(held, Ok::<_, Error>(())).await.unwrap();
                db.until_no_locks().await;
            }
        }
    }
    // Three calls of each function.
    let levels = "SELECT count(*) FROM booking WHERE (room, level) IN \
         ((1, 'read committed'), (2, 'repeatable read'), (3, 'serializable'))";
    assert_eq!(db.count(levels).await, 9);
}

/// The wait is for session-level locks, which a rollback does not release.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_hand_over_leaves_no_session_level_lock() {
    let db = database().await;
    let (mut holder, mut conn) = (connect(&db).await, connect(&db).await);
    let held = begin(&mut holder, 2).await.unwrap();
    for isolation in STRICT {
        for wait in [Wait::Never, Wait::For(Duration::from_millis(30))] {
            for keys in [vec![2], vec![1, 2, 3], vec![2, 3], vec![1, 2]] {
                let request = Request::all(keys).isolation(isolation).wait(wait);
                let error = begin(&mut conn, request).await.unwrap_err();
                assert!(error.is_busy(), "{error:?}");
                assert_eq!(db.locks().await.len(), 1, "{:?}", db.locks().await);
            }
        }
    }
    end(held, Ok::<_, Error>(())).await.unwrap();
    assert!(
        book_at(&mut conn, Isolation::Serializable, 9)
            .await
            .unwrap()
    );
    db.until_quiet().await;
}

/// A session can hold a lock twice: the caller's own lock stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_level_lock_of_the_callers_own_is_kept() {
    let db = database().await;
    let (mut holder, mut conn) = (connect(&db).await, connect(&db).await);
    run(&mut conn, "SELECT pg_advisory_lock(1)").await;
    let held = begin(&mut holder, 2).await.unwrap();
    for wait in [Wait::Never, Wait::For(Duration::from_millis(30))] {
        let request = Request::all([1, 2])
            .isolation(Isolation::RepeatableRead)
            .wait(wait);
        let error = begin(&mut conn, request).await.unwrap_err();
        assert!(error.is_busy(), "{error:?}");
        assert_eq!(db.locks().await.len(), 2);
    }
    let request = Request::new(1).isolation(Isolation::RepeatableRead);
    let mine = begin(&mut conn, request).await.unwrap();
    end(mine, Ok::<_, Error>(())).await.unwrap();
    assert_eq!(db.locks().await.len(), 2);
    end(held, Ok::<_, Error>(())).await.unwrap();
}

/// The outer snapshot is older than a new lock, and younger than one that was passed to its
/// transaction.
#[tokio::test(flavor = "multi_thread")]
async fn inside_a_stricter_transaction_only_held_locks_are_granted() {
    let db = database().await;
    let mut conn = connect(&db).await;
    for isolation in STRICT {
        let mut outer = begin(&mut conn, Request::all([1, 2]).isolation(isolation))
            .await
            .unwrap();
        let inner = begin(outer.conn(), 1).await.unwrap();
        end(inner, Ok::<_, Error>(())).await.unwrap();
        let inner = begin(outer.conn(), Request::all([1, 2]).shared())
            .await
            .unwrap();
        end(inner, Ok::<_, Error>(())).await.unwrap();
        for stale in [Request::new(3), Request::all([1, 3])] {
            assert_error!(begin(outer.conn(), stale).await, StaleSnapshot);
        }
        insert(outer.conn(), 1, "after the refusals").await.unwrap();
        end(outer, Ok::<_, Error>(())).await.unwrap();
    }
    assert_eq!(committed(&db, 1).await, 2);
    let mut outer = begin(
        &mut conn,
        Request::new(1)
            .shared()
            .isolation(Isolation::RepeatableRead),
    )
    .await
    .unwrap();
    assert_error!(begin(outer.conn(), 1).await, StaleSnapshot);
    end(outer, Ok::<_, Error>(())).await.unwrap();
}

/// Check, then insert: 8 clients × 150 on one key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_has_no_duplicates_and_few_failures_at_any_level() {
    const ROOMS: i64 = 150;
    let db = database().await;
    for isolation in LEVELS {
        let mut clients = Vec::new();
        for _ in 0..8 {
            let mut conn = connect(&db).await;
            clients.push(spawn(async move {
                let (mut made, mut failures) = (0, 0);
                for room in 0..ROOMS {
                    loop {
                        match book_in_turn(&mut conn, isolation, room).await {
                            Ok(rows) => {
                                made += rows;
                                break;
                            }
                            Err(error) if is_serialization_failure(&error) => failures += 1,
                            Err(error) => return Err(error),
                        }
                    }
                }
                Ok::<_, Error>((made, failures))
            }));
        }
        let (mut made, mut failures) = (0, 0);
        for client in clients {
            let (rows, failed) = client.await.unwrap().unwrap();
            made += rows;
            failures += failed;
        }
        assert_few_serialization_failures(isolation, failures, 8 * 150);
        assert_eq!(made, 150, "{isolation:?}");
        let rows = db.count("SELECT count(*) FROM booking").await;
        assert_eq!(rows, ROOMS, "{isolation:?}");
        db.run("TRUNCATE booking").await;
    }
    db.until_quiet().await;
}

/// One key for all rooms, so that every call waits for every other.
async fn book_in_turn(conn: &mut Conn, isolation: Isolation, room: i64) -> Result<usize, Error> {
    let mut held = begin(conn, Request::new(77).isolation(isolation)).await?;
    let result = async {
        if bookings(held.conn(), room).await? > 0 {
            return Ok(0);
        }
        insert(held.conn(), room, "Ada").await
    }
    .await;
    end(held, result.map_err(Error::Database)).await
}

/// With separate keys, calls under SERIALIZABLE can still fail because of concurrent reads. The
/// rate is printed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_keys_have_no_duplicates_and_report_their_failure_rate() {
    let db = database().await;
    db.run("CREATE INDEX ON booking (room)").await;
    for isolation in STRICT {
        let mut clients = Vec::new();
        for client in 0..8 {
            let mut conn = connect(&db).await;
            clients.push(spawn(async move {
                let mut failures = 0;
                for room in 0..150 {
                    // Each starts at another key, so that most calls do not contend.
                    let room = (room + client * 19) % 150;
                    match book_at(&mut conn, isolation, room).await {
                        Ok(_) => {}
                        Err(error) if is_serialization_failure(&error) => failures += 1,
                        Err(error) => return Err(error),
                    }
                }
                Ok(failures)
            }));
        }
        let mut failures = 0;
        for client in clients {
            failures += client.await.unwrap().unwrap();
        }
        eprintln!("{isolation:?}: {failures} of 1200 calls on 150 keys failed with 40001");
        let doubles = "SELECT count(*) FROM (SELECT FROM booking GROUP BY room HAVING count(*) > 1) AS doubles";
        assert_eq!(db.count(doubles).await, 0, "{isolation:?}");
        db.run("TRUNCATE booking").await;
    }
    db.until_quiet().await;
}

/// The wait is for session-level locks, which a rollback does not release.
#[tokio::test(flavor = "multi_thread")]
async fn no_end_of_a_stricter_call_leaves_a_session_level_lock() {
    let db = database().await;
    let mut conn = connect(&db).await;
    for isolation in STRICT {
        for sql in [
            "SELECT 1",
            "SELECT 1 FROM no_such_table",
            "COMMIT",
            "ROLLBACK",
        ] {
            for is_ok in [true, false] {
                let request = Request::new(7).isolation(isolation);
                let mut held = begin(&mut conn, request).await.unwrap();
                assert_eq!(db.locks().await.len(), 1);
                drop(execute(held.conn(), sql).await);
                let result = outcome(is_ok);
                let end = end(held, result).await;
                assert_eq!(end.is_ok(), is_ok && sql == "SELECT 1", "{sql}: {end:?}");
                assert_eq!(db.locks().await, [], "{sql}");
            }
        }
    }
    assert!(book_at(&mut conn, STRICT[0], 7).await.unwrap());
    db.until_quiet().await;
}
