//! A try in the middle of a transaction: one query, which acquires the lock or changes nothing.

use crate::calls::RoomLock;
use advisory_runtime::{Error, Isolation, Request, Wait, blocking, xact};
use advisory_tests::bookings::{committed, database, execute, insert, key_of};
use advisory_tests::futures::{spawn, spawn_blocking};
use advisory_tests::held_keys::keys;
use advisory_tests::poolers::{bouncer, connect};
use advisory_tests::{LockedKey, Proxy, assert_error, debug_checks_are_on};
use diesel::connection::Connection as _;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn a_try_takes_a_free_lock_to_the_end_of_the_transaction() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    conn.transaction::<_, Error, _>(async |conn| {
        insert(conn, 1, "before").await?;
        assert!(!xact::try_lock(conn, RoomLock { room: 7 }).await?);
        assert!(xact::try_lock(conn, RoomLock { room: 8 }).await?);
        assert!(xact::try_lock(conn, (3, -4)).await?);
        assert!(xact::try_lock(conn, Request::new(9).shared()).await?);
        // It never waits, whatever the request says.
        for request in [
            Request::new(key_of(7)).wait(Wait::Forever),
            Request::new(key_of(7)).poll(SHORT),
            Request::new(key_of(7)).shared(),
        ] {
            assert!(!xact::try_lock(conn, request).await?);
        }
        let mut locks = keys(&db.locks().await);
        locks.sort();
        let mut expected = [
            LockedKey::Bigint(9),
            LockedKey::Bigint(key_of(7)),
            LockedKey::Bigint(key_of(8)),
            LockedKey::Pair(3, -4),
        ];
        expected.sort();
        assert_eq!(locks, expected);
        insert(conn, 2, "behind").await.map_err(Error::from)
    })
    .await
    .unwrap();
    assert_eq!([committed(&db, 1).await, committed(&db, 2).await], [1, 1]);
    assert_eq!(keys(&db.locks().await), [LockedKey::Bigint(key_of(7))]);
    held.finish(Ok::<_, Error>(())).await.unwrap();
}

#[tokio::test]
async fn a_try_in_a_transaction_is_one_round_trip() {
    if debug_checks_are_on() {
        return;
    }
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, 7).await.unwrap();
    conn.transaction::<_, Error, _>(async |conn| {
        for (round, key) in (0..).zip([7, 8, 7, 9]) {
            proxy.reset();
            assert_eq!(xact::try_lock(conn, key).await?, key != 7);
            // Prepared once for the connection.
            let expected = if round == 0 { 2 } else { 1 };
            assert_eq!(proxy.round_trips(), expected, "{:#?}", proxy.queries());
        }
        proxy.reset();
        let never = Request::new(7).wait(Wait::Never);
        assert_error!(xact::lock(conn, never).await, NotAvailable);
        assert_eq!(proxy.round_trips(), 1, "{:#?}", proxy.queries());
        Ok(())
    })
    .await
    .unwrap();
    held.finish(Ok::<_, Error>(())).await.unwrap();
}

#[tokio::test]
async fn a_try_for_several_keys_takes_all_or_none() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, 7).await.unwrap();
    conn.transaction::<_, Error, _>(async |conn| {
        insert(conn, 1, "before").await?;
        assert!(!xact::try_lock(conn, Request::all([6, 7])).await?);
        assert_eq!(keys(&db.locks().await), [LockedKey::Bigint(7)]);
        assert!(xact::try_lock(conn, Request::all([5, 6])).await?);
        assert_eq!(db.locks().await.len(), 3);
        for expected in [true, true] {
            let taken = xact::try_lock(conn, Request::new(40).permits(2)).await?;
            assert_eq!(taken, expected);
        }
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(committed(&db, 1).await, 1);
    held.finish(Ok::<_, Error>(())).await.unwrap();
}

#[tokio::test]
async fn a_try_is_refused_where_a_lock_would_be() {
    let db = database().await;
    let mut conn = db.connect().await;
    let error = xact::try_lock(&mut conn, 7).await.unwrap_err();
    assert_error!(error, NotInTransaction);
    for level in ["REPEATABLE READ", "SERIALIZABLE", "READ UNCOMMITTED"] {
        conn.transaction::<_, Error, _>(async |conn| {
            execute(conn, &format!("SET TRANSACTION ISOLATION LEVEL {level}")).await?;
            match xact::try_lock(conn, RoomLock { room: 7 }).await {
                Ok(is_taken) => assert!(is_taken && level == "READ UNCOMMITTED"),
                Err(error) => {
                    assert_error!(error, StaleSnapshot);
                    assert_eq!(db.locks().await, []);
                }
            }
            insert(conn, 1, "goes on").await.map_err(Error::from)
        })
        .await
        .unwrap();
    }
    assert_eq!(committed(&db, 1).await, 3);
    // A lock that the transaction has held since before its snapshot is not new.
    let request = Request::new(key_of(7)).isolation(Isolation::Serializable);
    let mut held = xact::begin(&mut conn, request).await.unwrap();
    assert!(xact::try_lock(held.conn(), key_of(7)).await.unwrap());
    assert_error!(xact::try_lock(held.conn(), key_of(8)).await, StaleSnapshot);
    held.finish(Ok::<_, Error>(())).await.unwrap();
    conn.transaction::<_, Error, _>(async |conn| {
        let level = Request::new(7).isolation(Isolation::Serializable);
        assert_error!(xact::try_lock(conn, level).await, InTransaction);
        let none = xact::try_lock(conn, Request::all(Vec::<i64>::new())).await;
        assert_error!(none, NoKeys);
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_try_in_a_failed_transaction_says_so() {
    let db = database().await;
    let mut conn = db.connect().await;
    for _ in 0..2 {
        let result = conn.transaction::<(), Error, _>(async |conn| {
            execute(conn, "SELECT 1 FROM no_such_table")
                .await
                .unwrap_err();
            let error = xact::try_lock(conn, RoomLock { room: 7 })
                .await
                .unwrap_err();
            assert_error!(error, InFailedTransaction);
            Err(error)
        });
        result.await.unwrap_err();
        // The second time the query is prepared already.
        conn.transaction::<_, Error, _>(async |conn| xact::try_lock(conn, 8).await)
            .await
            .unwrap();
    }
    assert_eq!(db.locks().await, []);
}

/// A role that may not call the function.
#[tokio::test]
async fn a_try_that_fails_says_why_and_fails_the_transaction() {
    let db = database().await;
    db.run("REVOKE EXECUTE ON FUNCTION pg_catalog.pg_try_advisory_xact_lock(bigint) FROM PUBLIC")
        .await;
    let mut conn = db.connect().await;
    let result = conn.transaction::<(), Error, _>(async |conn| {
        execute(conn, "SET LOCAL ROLE pg_monitor").await?;
        let error = xact::try_lock(conn, 7).await.unwrap_err();
        assert_error!(error, Database);
        assert!(error.to_string().contains("permission denied"), "{error}");
        execute(conn, "SELECT 1").await.unwrap_err();
        Err(error)
    });
    result.await.unwrap_err();
    insert(&mut conn, 1, "the connection stays usable")
        .await
        .unwrap();
}

#[tokio::test]
async fn a_transaction_that_was_ended_by_sql_is_not_locked() {
    if !debug_checks_are_on() {
        return;
    }
    let db = database().await;
    let mut conn = db.connect().await;
    let result = conn.transaction::<(), Error, _>(async |conn| {
        conn.batch_execute("COMMIT").await?;
        let error = xact::try_lock(conn, 7).await.unwrap_err();
        assert_error!(error, Database);
        Err(error)
    });
    result.await.unwrap_err();
}

/// The pooler does not track prepared statements, and assigns another backend to each transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_in_transaction_mode_a_try_is_right() {
    let db = database().await;
    let settings = "pool_mode = transaction\ndefault_pool_size = 3";
    let Some(bouncer) = bouncer(&db, settings).await else {
        return;
    };
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    let mut clients = Vec::new();
    for (client, mut conn) in (0..).zip(connect(&bouncer.url(&db), 6).await) {
        clients.push(spawn(async move {
            for round in 0..40 {
                let room = 100 * (client + 1) + round;
                conn.transaction::<_, Error, _>(async |conn| {
                    assert!(!xact::try_lock(conn, RoomLock { room: 7 }).await?);
                    assert!(xact::try_lock(conn, RoomLock { room }).await?);
                    let insert = format!("INSERT INTO booking VALUES ({room}, 'Ada')");
                    Ok(conn.batch_execute(&insert).await?)
                })
                .await
                .unwrap();
            }
        }));
    }
    let url = bouncer.url(&db);
    let blocking = spawn_blocking(move || {
        let mut conn = diesel::PgConnection::establish(&url).unwrap();
        for _ in 0..40 {
            conn.transaction::<_, Error, _>(|conn| {
                assert!(!blocking::xact::try_lock(conn, RoomLock { room: 7 })?);
                assert!(blocking::xact::try_lock(conn, RoomLock { room: 8 })?);
                Ok(())
            })
            .unwrap();
        }
    });
    for client in clients {
        client.await.unwrap();
    }
    blocking.await.unwrap();
    assert_eq!(db.count("SELECT count(*) FROM booking").await, 240);
    held.finish(Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_blocking_connection_a_try_is_the_same() {
    let db = database().await;
    let (mut holder, mut conn) = (db.establish(), db.establish());
    assert_error!(blocking::xact::try_lock(&mut conn, 7), NotInTransaction);
    let held = blocking::xact::begin(&mut holder, key_of(7)).unwrap();
    conn.transaction::<_, Error, _>(|conn| {
        assert!(!blocking::xact::try_lock(conn, RoomLock { room: 7 })?);
        assert!(blocking::xact::try_lock(conn, RoomLock { room: 8 })?);
        assert!(blocking::xact::try_lock(conn, (1, 2))?);
        assert_eq!(advisory_tests::blocking::held_by(conn)?, 2);
        advisory_tests::blocking::insert(conn, 8, "Ada")?;
        Ok(())
    })
    .unwrap();
    held.finish(Ok::<_, Error>(())).unwrap();
    assert_eq!((committed(&db, 8).await, db.locks().await), (1, vec![]));
    conn.transaction::<(), Error, _>(|conn| {
        advisory_tests::blocking::execute(conn, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")?;
        let error = blocking::xact::try_lock(conn, RoomLock { room: 7 }).unwrap_err();
        assert_error!(error, StaleSnapshot);
        advisory_tests::blocking::execute(conn, "SELECT 1 FROM no_such_table").unwrap_err();
        let error = blocking::xact::try_lock(conn, RoomLock { room: 7 }).unwrap_err();
        assert_error!(error, InFailedTransaction);
        Err(error)
    })
    .unwrap_err();
}

/// Behind a pooler that does not track prepared statements, and that shows process ids like a
/// server's, the name of the query's statement can belong to another client's statement.
#[tokio::test]
async fn an_answer_of_another_statement_is_not_the_locks() {
    let db = database().await;
    for other in [
        "SELECT true",
        "SELECT 'true'",
        "SELECT 'advisory:shared'",
        "shared",
    ] {
        let mut conn = db.connect().await;
        let result = conn.transaction::<(), Error, _>(async |conn| {
            insert(conn, 1, "lost").await?;
            assert!(xact::try_lock(conn, 8).await?);
            let prepared = "SELECT name || ' ' || statement FROM pg_prepared_statements \
                            WHERE statement LIKE '%pg_try_advisory_xact_lock%'";
            let prepared: String = diesel::dsl::sql::<diesel::sql_types::Text>(prepared)
                .get_result(conn)
                .await?;
            let (name, statement) = prepared.split_once(' ').unwrap();
            let shared = statement
                .replace("xact_lock(", "xact_lock_shared(")
                .replace(":exclusive", ":shared");
            let other = if other == "shared" { &shared } else { other };
            let replace = format!("DEALLOCATE {name}; PREPARE {name}(int8) AS {other}");
            conn.batch_execute(&replace).await?;
            let error = xact::try_lock(conn, 7).await.unwrap_err();
            assert_error!(error, Database, "{other}");
            assert!(error.to_string().contains("prepared statement"), "{error}");
            Err(error)
        });
        result.await.unwrap_err();
        drop(conn);
        // The effects of the other statement are rolled back with the connection.
        db.until_no_locks().await;
    }
    assert_eq!(committed(&db, 1).await, 0);
}
