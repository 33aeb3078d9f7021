//! A lock or a try in the middle of a transaction, after a first read. `both/mid_transaction.rs` has
//! what both drivers promise.

use crate::calls::RoomLock;
use advisory_runtime::{Error, LockKey, Request, Wait, advisory_lock, blocking, xact};
use advisory_tests::bookings::{bookings, committed, database, execute, insert, key_of};
use advisory_tests::futures::{dropped, spawn, spawn_blocking};
use advisory_tests::held_keys::keys;
#[cfg(debug_assertions)]
use advisory_tests::lock_order::{edges, order};
use advisory_tests::poolers::{bouncer, connect};
use advisory_tests::settings::idle_bound;
use advisory_tests::{LockedKey, Proxy, assert_error, debug_checks_are_on};
use diesel::connection::Connection as _;
use diesel::result::Error as DieselError;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn reads_after_it_see_the_commit_of_the_previous_holder() {
    let db = database().await;
    let (mut first, mut second) = (db.connect().await, db.connect().await);
    let mut held = xact::begin(&mut first, key_of(7)).await.unwrap();
    insert(held.conn(), 7, "Ada").await.unwrap();
    let waiting = spawn(async move {
        second
            .transaction::<_, Error, _>(async |conn| {
                let before = bookings(conn, 7).await?;
                xact::lock(conn, RoomLock { room: 7 }).await?;
                Ok((before, bookings(conn, 7).await?))
            })
            .await
    });
    db.until_waiting(key_of(7)).await;
    held.finish(Ok::<_, Error>(())).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), (0, 1));
}

#[tokio::test]
async fn a_savepoint_that_is_rolled_back_releases_it() {
    let db = database().await;
    let mut conn = db.connect().await;
    conn.transaction::<_, Error, _>(async |conn| {
        let inner = conn.transaction::<(), Error, _>(async |conn| {
            xact::lock(conn, RoomLock { room: 7 }).await?;
            assert_eq!(db.locks().await.len(), 1);
            Err(DieselError::NotFound.into())
        });
        inner.await.unwrap_err();
        assert_eq!(db.locks().await, []);
        insert(conn, 7, "Ada").await?;
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(committed(&db, 7).await, 1);
}

#[tokio::test]
async fn the_body_of_a_locked_function_takes_another_lock() {
    #[advisory_lock(key = "hotel:<hotel>", name = "hotel")]
    async fn book_first_free(
        conn: &mut AsyncPgConnection,
        hotel: i64,
        db: &advisory_tests::Database,
    ) -> Result<(), Error> {
        xact::lock(conn, Request::all([key_of(hotel), key_of(hotel + 1)])).await?;
        assert_eq!(db.locks().await.len(), 3);
        insert(conn, hotel, "Ada").await?;
        Ok(())
    }
    let db = database().await;
    book_first_free(&mut db.connect().await, 7, &db)
        .await
        .unwrap();
    assert_eq!((committed(&db, 7).await, db.locks().await), (1, vec![]));
}

#[tokio::test]
async fn a_polling_request_ends_and_the_transaction_stays_usable() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    conn.transaction::<_, Error, _>(async |conn| {
        insert(conn, 7, "Ada").await?;
        let request = Request::new(RoomLock { room: 7 }).poll(SHORT / 10);
        let refused = xact::lock(conn, request.clone().wait(SHORT)).await;
        assert_error!(refused, TimedOut { source: None, .. });
        // Between two tries the session's last query names the lock, for the live view.
        let named = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                     AND state = 'idle in transaction' AND query LIKE '/*advisory:room:<room>*/%'";
        assert_eq!(db.count(named).await, 1);
        held.finish(Ok::<_, Error>(())).await?;
        let acquired = xact::lock(conn, request.wait(Wait::Forever)).await?;
        assert_eq!(acquired.key(), key_of(7).into());
        assert_eq!(keys(&db.locks().await), [LockedKey::Bigint(key_of(7))]);
        // With permits it takes one that is free.
        let request = Request::new(8).permits(2).wait(Wait::Never);
        xact::lock(conn, request).await?;
        assert_eq!(db.locks().await.len(), 2);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!((committed(&db, 7).await, db.locks().await), (1, vec![]));
}

#[tokio::test]
async fn shared_ones_are_held_together() {
    let db = database().await;
    let (mut one, mut other) = (db.connect().await, db.connect().await);
    one.transaction::<_, Error, _>(async |one| {
        xact::lock(one, Request::new(key_of(7)).shared()).await?;
        other
            .transaction::<_, Error, _>(async |other| {
                xact::lock(other, Request::new(key_of(7)).shared()).await?;
                assert_eq!(db.locks().await.len(), 2);
                let alone = Request::new(key_of(7)).wait(Wait::Never);
                let missed = xact::lock(other, alone).await.unwrap_err();
                assert!(missed.is_busy(), "{missed:?}");
                Ok(())
            })
            .await
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_lock_and_a_try_are_one_round_trip_and_for_a_permit_three() {
    if debug_checks_are_on() {
        return;
    }
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    db.run("SELECT pg_advisory_lock(17)").await;
    conn.transaction::<_, Error, _>(async |conn| {
        proxy.reset();
        xact::lock(conn, RoomLock { room: 7 }).await?;
        assert_eq!(proxy.round_trips(), 1, "{:#?}", proxy.queries());
        xact::lock(conn, Request::all([1, 2, 3]).wait(SHORT)).await?;
        assert_eq!(proxy.round_trips(), 2, "{:#?}", proxy.queries());
        for (round, key) in (0..).zip([17, 18, 17, 19]) {
            proxy.reset();
            assert_eq!(xact::try_lock(conn, key).await?, key != 17);
            // Prepared once for the connection.
            let expected = if round == 0 { 2 } else { 1 };
            assert_eq!(proxy.round_trips(), expected, "{:#?}", proxy.queries());
        }
        proxy.reset();
        let never = Request::new(17).wait(Wait::Never);
        assert_error!(xact::lock(conn, never).await, NotAvailable);
        assert_eq!(proxy.round_trips(), 1, "{:#?}", proxy.queries());
        let permits = Request::new(8).permits(2).wait(Wait::Never);
        for _ in 0..2 {
            // The query is prepared with the savepoint, and run, and the savepoint is released.
            proxy.reset();
            xact::lock(conn, permits.clone()).await?;
            assert_eq!(proxy.round_trips(), 3, "{:#?}", proxy.queries());
        }
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn max_hold_bounds_an_idle_client_to_the_end_of_the_transaction() {
    let db = database().await;
    let mut conn = db.connect().await;
    let before = idle_bound(&mut conn).await;
    conn.transaction::<_, Error, _>(async |conn| {
        let request = Request::new(7).max_hold(Duration::from_secs(1));
        xact::lock(conn, request).await?;
        assert_eq!(idle_bound(conn).await, 2_000);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(idle_bound(&mut conn).await, before);
}

#[derive(LockKey)]
#[lock_key("mid-a:<id>")]
struct MidA {
    id: i64,
}

#[derive(LockKey)]
#[lock_key("mid-b:<id>")]
struct MidB {
    id: i64,
}

#[cfg(debug_assertions)]
#[tokio::test]
async fn the_order_of_locks_knows_it() {
    let db = database().await;
    let mut conn = db.connect().await;
    let both = conn.transaction::<_, Error, _>(async |conn| {
        xact::lock(conn, MidA { id: 1 }).await?;
        xact::lock(conn, MidB { id: 1 }).await
    });
    both.await.unwrap();
    conn.transaction::<_, Error, _>(async |conn| {
        xact::lock(conn, MidB { id: 1 }).await?;
        let held = xact::begin(conn, MidA { id: 1 }).await?;
        held.finish(Ok(())).await
    })
    .await
    .unwrap();
    if debug_checks_are_on() {
        let known = ["mid-a:<id> > mid-b:<id>", "mid-b:<id> > mid-a:<id>"];
        assert_eq!(edges("mid-"), known);
        for edge in order("mid-").cycles.remove(0) {
            assert!(edge.asked.place.contains("mid_transaction.rs:"), "{edge:?}");
        }
    }
}

#[tokio::test]
async fn a_dropped_wait_closes_the_connection_and_leaves_no_waiter() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    let result = conn.transaction::<(), Error, _>(async |conn| {
        insert(conn, 7, "lost").await?;
        let waiting = xact::lock(conn, key_of(7));
        dropped(waiting, db.until_waiting(key_of(7))).await;
        let error = insert(conn, 7, "lost").await.unwrap_err();
        Err(error.into())
    });
    result.await.unwrap_err();
    db.until_no_waiters(key_of(7)).await;
    assert_error!(xact::begin(&mut conn, 8).await, BrokenConnection);
    held.finish(Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 0);
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
