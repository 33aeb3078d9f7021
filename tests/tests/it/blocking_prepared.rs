//! A blocking connection is known again from its second call on, wherever it has moved to: its session keeps the statements.

use crate::blocking::{execute, held_by, insert, setting};
use crate::bookings::{committed, database};
use advisory_runtime::blocking::{session, xact};
use advisory_runtime::{Error, Request, Wait};
use advisory_tests::{Bouncer, Proxy, left_out};
use diesel::Connection as _;
use diesel::connection::SimpleConnection;
use diesel::pg::PgConnection;
use diesel::r2d2::{ConnectionManager, Pool};
use std::time::Duration;

fn requests() -> [Request; 4] {
    [
        Request::new(7),
        Request::new(7).shared(),
        Request::new(7).wait(Duration::from_secs(30)),
        Request::new(7).wait(Wait::Never),
    ]
}

/// A locked call; what the body sees of the session.
fn call(conn: &mut PgConnection, is_session: bool, request: &Request) -> Result<String, Error> {
    let mut held = if is_session {
        session::acquire(conn, request.clone())?
    } else {
        xact::begin(conn, request.clone())?
    };
    let conn = held.conn();
    let seen = format!(
        "{} {} {} {}",
        setting(conn, "lock_timeout"),
        setting(conn, "client_connection_check_interval"),
        setting(conn, "application_name"),
        held_by(conn)?
    );
    xact::finish(held, Ok(seen))
}

/// What has been said in locked calls, without their bodies.
fn said(proxy: &Proxy) -> String {
    let said = proxy.queries().concat();
    proxy.reset();
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_call_says_less_and_does_the_same() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    for is_session in [false, true] {
        for request in requests() {
            let mut conn = PgConnection::establish(proxy.url()).unwrap();
            execute(&mut conn, "SET lock_timeout = '77s'").unwrap();
            proxy.reset();
            let seen = call(&mut conn, is_session, &request).unwrap();
            assert!(seen.ends_with(" 1"), "{seen}");
            let first = said(&proxy);
            assert!(
                first.contains("PREPARE ") && first.contains("EXECUTE "),
                "{first}"
            );
            for _ in 0..2 {
                assert_eq!(call(&mut conn, is_session, &request).unwrap(), seen);
                let again = said(&proxy);
                assert!(
                    !again.contains("PREPARE ") && again.contains("EXECUTE "),
                    "{again}"
                );
            }
            assert_eq!(setting(&mut conn, "lock_timeout"), "77s");
            assert_eq!(held_by(&mut conn).unwrap(), 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_known_wherever_it_has_moved_to_and_no_other_is_taken_for_it() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let request = Request::new(7);
    let mut first = PgConnection::establish(proxy.url()).unwrap();
    call(&mut first, false, &request).unwrap();
    let mut second = PgConnection::establish(proxy.url()).unwrap();
    said(&proxy);
    // In the first one's place.
    std::mem::swap(&mut first, &mut second);
    call(&mut first, false, &request).unwrap();
    assert!(said(&proxy).contains("PREPARE "));
    let moved = std::thread::spawn(move || {
        call(&mut second, false, &request).unwrap();
        second
    });
    drop(moved.join().unwrap());
    let again = said(&proxy);
    assert!(
        !again.contains("PREPARE ") && again.contains("EXECUTE "),
        "{again}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_has_lost_its_statements_locks_all_the_same() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    for is_session in [false, true] {
        for request in requests() {
            let mut conn = PgConnection::establish(proxy.url()).unwrap();
            // Diesel's own statements would be lost too, and no query of the program would go through.
            conn.set_prepared_statement_cache_size(diesel::connection::CacheSize::Disabled);
            let seen = call(&mut conn, is_session, &request).unwrap();
            conn.batch_execute("DEALLOCATE ALL").unwrap();
            assert_eq!(call(&mut conn, is_session, &request).unwrap(), seen);
            said(&proxy);
            assert_eq!(call(&mut conn, is_session, &request).unwrap(), seen);
            let again = said(&proxy);
            assert!(!again.contains("EXECUTE "), "{again}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_takes_the_statements_away_commits_nothing_and_leaves_no_lock() {
    let db = database().await;
    let mut conn = db.establish();
    for is_prepared in [true, false] {
        let mut held = xact::begin(&mut conn, 7).unwrap();
        insert(held.conn(), 7, "Ada").unwrap();
        held.conn().batch_execute("DEALLOCATE ALL").unwrap();
        let ended = xact::finish(held, Ok::<_, Error>(()));
        if is_prepared {
            assert!(matches!(ended, Err(Error::RolledBack { .. })), "{ended:?}");
        } else {
            ended.unwrap();
        }
        assert_eq!(committed(&db, 7).await, i64::from(!is_prepared));
        assert!(db.locks().await.is_empty());
        // Diesel's own are lost with ours.
        conn.set_prepared_statement_cache_size(diesel::connection::CacheSize::Disabled);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_pooler_in_transaction_mode_connections_lock_on_whichever_session_they_are_lent() {
    let db = database().await;
    let settings = "pool_mode = transaction\ndefault_pool_size = 3";
    let bouncer = match Bouncer::start(&db, settings).await {
        Ok(bouncer) => bouncer,
        Err(why) => return left_out("pgbouncer", why),
    };
    let pool = Pool::builder()
        .max_size(6)
        .build(ConnectionManager::<PgConnection>::new(bouncer.url(&db)))
        .unwrap();
    let callers: Vec<_> = (0..6)
        .map(|_| {
            let pool = pool.clone();
            std::thread::spawn(move || {
                for round in 0..40 {
                    let mut conn = pool.get().unwrap();
                    let mut held = xact::begin(&mut *conn, 7).unwrap();
                    let add = "INSERT INTO booking SELECT count(*), 'Ada' FROM booking";
                    held.conn().batch_execute(add).unwrap();
                    if round % 4 == 0 {
                        let undone = Error::Database(diesel::result::Error::RollbackTransaction);
                        xact::finish(held, Err::<(), _>(undone)).unwrap_err();
                    } else {
                        xact::finish(held, Ok::<_, Error>(())).unwrap();
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.join().unwrap();
    }
    let rows = db.count("SELECT count(*) FROM booking").await;
    let rooms = db.count("SELECT count(DISTINCT room) FROM booking").await;
    assert_eq!((rows, rooms), (6 * 30, 6 * 30));
    assert!(db.locks().await.is_empty());
}
