//! Behind a pooler in transaction mode: transaction-level locks work fully, and requests that need
//! a session are refused if the pooler is detected.
//!
//! pgbouncer 1.18 does not track prepared statements, whose names are the same in every program, so
//! bodies here use none.

use advisory_runtime::{Error, Isolation, Request, Wait, advisory_lock, blocking, session, xact};
use advisory_tests::bookings::{committed, database, key_of};
use advisory_tests::futures::{dropped, spawn, spawn_blocking};
use advisory_tests::poolers::{self, connect};
use advisory_tests::{Bouncer, Database, assert_error};
use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::sql_types::Text;
use diesel::{Connection as _, PgConnection, QueryResult};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::fmt::Write as _;
use std::time::Duration;

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
async fn plain(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<()> {
    conn.batch_execute(&unless_booked(room)).await
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact", wait = "60s")]
async fn bounded(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<()> {
    conn.batch_execute(&unless_booked(room)).await
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact", mode = "shared")]
async fn fails_shared(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<()> {
    conn.batch_execute(&unless_booked(room)).await?;
    Err(diesel::result::Error::NotFound)
}

fn unless_booked(room: i64) -> String {
    format!(
        "INSERT INTO booking SELECT {room}, 'Ada' WHERE NOT EXISTS (SELECT FROM booking WHERE room = {room})"
    )
}

async fn bouncer(db: &Database, size: u32) -> Option<Bouncer> {
    let settings = format!("pool_mode = transaction\ndefault_pool_size = {size}");
    poolers::bouncer(db, &settings).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_in_transaction_mode_locks_exclude() {
    let db = database().await;
    let Some(bouncer) = bouncer(&db, 3).await else {
        return;
    };
    let mut clients = Vec::new();
    let conns = connect(&bouncer.url(&db), 8).await;
    for (client, mut conn) in (0..).zip(conns) {
        clients.push(spawn(async move {
            for room in 0..40 {
                match (client + room) % 3 {
                    0 => plain(&mut conn, room).await.unwrap(),
                    1 => bounded(&mut conn, room).await.unwrap(),
                    _ => {
                        fails_shared(&mut conn, room).await.unwrap_err();
                    }
                }
            }
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(db.count("SELECT count(*) FROM booking").await, 40);
    db.until_quiet().await;
}

#[tokio::test]
async fn behind_a_pooler_in_transaction_mode_waits_end_readers_share() {
    let db = database().await;
    let Some(bouncer) = bouncer(&db, 3).await else {
        return;
    };
    let mut conns = connect(&bouncer.url(&db), 3).await;
    let [first, second, third] = &mut conns[..] else {
        unreachable!("three were made")
    };
    let reader = xact::begin(first, Request::new(7).shared()).await.unwrap();
    let other = xact::begin(second, Request::all([7, 8]).shared())
        .await
        .unwrap();
    let wait = Duration::from_millis(30);
    for _ in 0..3 {
        let error = xact::begin(third, Request::new(7).wait(wait))
            .await
            .unwrap_err();
        assert_error!(error, TimedOut);
    }
    other.finish(Ok::<_, Error>(())).await.unwrap();
    let (waited, ()) = tokio::join!(
        async {
            let held = xact::begin(third, 7).await?;
            held.finish(Ok::<_, Error>(())).await
        },
        async {
            db.until_waiting(7).await;
            reader.finish(Ok::<_, Error>(())).await.unwrap();
        }
    );
    waited.unwrap();
    db.until_quiet().await;
}

#[advisory_lock(key = "room:<room>", name = "room", wait = "never")]
async fn at_once(conn: &mut AsyncPgConnection, room: i64) -> Result<(), Error> {
    Ok(conn.batch_execute(&unless_booked(room)).await?)
}

/// The pooler does not track prepared statements, and assigns another backend each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_in_transaction_mode_tries_return_at_once() {
    let db = database().await;
    let Some(bouncer) = bouncer(&db, 3).await else {
        return;
    };
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    let mut clients = Vec::new();
    for (client, mut conn) in (0..).zip(connect(&bouncer.url(&db), 6).await) {
        clients.push(spawn(async move {
            for round in 0..40 {
                let room = 100 * (client + 1) + round;
                at_once(&mut conn, room).await.unwrap();
                assert_error!(at_once(&mut conn, 7).await, NotAvailable);
                plain(&mut conn, room).await.unwrap();
            }
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(db.count("SELECT count(*) FROM booking").await, 240);
    held.finish(Ok::<_, Error>(())).await.unwrap();
}

/// A pooler can show process ids like a server's, and not track prepared statements. Then none of
/// that name is there, or another client's, whose effects are undone.
#[tokio::test]
async fn a_try_that_another_statement_answers_is_repeated_by_text() {
    let db = database().await;
    let mut conn = db.connect().await;
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    at_once(&mut conn, 1).await.unwrap();
    let others = [
        "",
        "SELECT 'advisory:shared'",
        "SELECT true",
        "SELECT 'advisory:exclusive' WHERE false",
        "INSERT INTO booking VALUES (99, 'Another')",
    ];
    let name =
        "SELECT name FROM pg_prepared_statements WHERE statement LIKE 'SELECT CASE%:exclusive%'";
    let name: String = sql::<Text>(name).get_result(&mut conn).await.unwrap();
    for (room, other) in (10..).zip(others.into_iter().flat_map(|other| [other; 2])) {
        let mut replace = String::from("DEALLOCATE ALL");
        if !other.is_empty() {
            write!(replace, ";PREPARE {name}(bigint) AS {other}").unwrap();
        }
        conn.batch_execute(&replace).await.unwrap();
        assert_error!(at_once(&mut conn, 7).await, NotAvailable);
        if room % 2 == 0 {
            at_once(&mut conn, room).await.unwrap();
        } else {
            let nested = async |conn: &mut AsyncPgConnection| at_once(conn, room).await;
            conn.transaction(nested).await.unwrap();
        }
        assert_eq!(committed(&db, room).await, 1, "{other}");
    }
    assert_eq!(committed(&db, 99).await, 0);
    held.finish(Ok::<_, Error>(())).await.unwrap();
}

#[tokio::test]
async fn where_the_pooler_is_known_what_needs_a_session_is_refused() {
    let db = database().await;
    db.set("\"advisory.pooler\" = 'transaction'").await;
    let bouncer = bouncer(&db, 2).await;
    let mut urls = vec![db.url().to_owned()];
    urls.extend(bouncer.as_ref().map(|bouncer| bouncer.url(&db)));
    for url in urls {
        let mut conn = AsyncPgConnection::establish(&url).await.unwrap();
        for wait in [
            Wait::Session,
            Wait::For(Duration::from_secs(5)),
            Wait::Forever,
        ] {
            for request in [Request::new(7), Request::all([7, 8]).shared()] {
                let request = request.wait(wait);
                let error = session::acquire(&mut conn, request.clone())
                    .await
                    .unwrap_err();
                assert_error!(error, PooledSession);
                for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
                    let strict = request.clone().isolation(isolation);
                    assert_error!(xact::begin(&mut conn, strict).await, PooledSession);
                }
                let held = xact::begin(&mut conn, request).await.unwrap();
                held.finish(Ok::<_, Error>(())).await.unwrap();
            }
        }
        plain(&mut conn, 7).await.unwrap();
        let url = url.clone();
        let blocking = spawn_blocking(move || {
            let conn = &mut PgConnection::establish(&url).unwrap();
            assert_error!(blocking::session::acquire(conn, 7), PooledSession);
            let mut held = blocking::xact::begin(conn, 7).unwrap();
            held.conn().batch_execute("SELECT 1").unwrap();
            held.finish(Ok::<_, Error>(())).unwrap();
        });
        blocking.await.unwrap();
    }
    assert_eq!(committed(&db, 7).await, 1);
    db.until_quiet().await;
}

/// pgbouncer 1.18 exits if a cancel request's connection is closed before it has forwarded the
/// request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_call_closes_only_its_own_pooler_connection() {
    let db = database().await;
    let Some(bouncer) = bouncer(&db, 3).await else {
        return;
    };
    // No cancel request is sent behind a pooler, so this ends a body's statement.
    db.set("client_connection_check_interval = 1000").await;
    let url = bouncer.url(&db);
    for is_waiting in [true, false, true, false] {
        let mut holder = db.connect().await;
        let held = xact::begin(&mut holder, 7).await.unwrap();
        let mut conn = connect(&url, 1).await.remove(0);
        let call = async {
            let key = if is_waiting { 7 } else { 8 };
            let mut held = xact::begin(&mut conn, key).await.unwrap();
            held.conn().batch_execute("SELECT pg_sleep(60)").await
        };
        let reached = async {
            if is_waiting {
                db.until_waiting(7).await;
            } else {
                db.until_active("pg_sleep(60)").await;
            }
        };
        tokio::select! {
            biased;
            _ = call => panic!("it should be dropped"),
            () = reached => {}
        }
        assert_error!(xact::begin(&mut conn, 9).await, BrokenConnection);
        drop(conn);
        // pgbouncer may keep the backend, which then stays in the queue until its turn, and leaves.
        held.finish(Ok::<_, Error>(())).await.unwrap();
        db.until_quiet().await;
        plain(&mut connect(&url, 1).await.remove(0), 9)
            .await
            .unwrap();
    }
    assert_eq!(committed(&db, 9).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_wait_occupies_the_pooler_at_most_for_its_budget() {
    let db = database().await;
    let Some(bouncer) = bouncer(&db, 2).await else {
        return;
    };
    let url = bouncer.url(&db);
    let key = key_of(7);
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, key).await.unwrap();
    for (wait, stays) in [
        (Wait::For(Duration::from_millis(1500)), false),
        (Wait::Forever, true),
    ] {
        let mut conns = connect(&url, 2).await;
        for conn in &mut conns {
            let call = xact::begin(conn, Request::new(key).wait(wait));
            dropped(call, db.until_waiting(key)).await;
        }
        drop(conns);
        if stays {
            // Shows that the test can fail: without a budget both sessions wait for the holder.
            db.until_waiting(key).await;
            continue;
        }
        db.until_no_waiters(key).await;
        let mut other = connect(&url, 1).await.remove(0);
        other.batch_execute("SELECT 1").await.unwrap();
        let held = xact::begin(&mut other, key_of(8)).await.unwrap();
        held.finish(Ok::<_, Error>(())).await.unwrap();
    }
    held.finish(Ok::<_, Error>(())).await.unwrap();
    db.until_no_waiters(key).await;
}
