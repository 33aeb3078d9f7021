//! What a call is refused with, and how it ends, where its session keeps the statements, or has lost some of them.

use crate::bookings::{committed, database, execute, insert};
use crate::waits::{SHORT, no_longer_short};
use advisory_runtime::{Error, Request, Wait, session, xact};
use advisory_tests::{Database, Proxy, pid_of};
use diesel::sql_types::{Nullable, Text};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const SCOPES: [bool; 2] = [false, true];

async fn call(
    conn: &mut AsyncPgConnection,
    is_session: bool,
    request: Request,
) -> Result<(), Error> {
    let held = if is_session {
        session::acquire(conn, request).await?
    } else {
        xact::begin(conn, request).await?
    };
    xact::finish(held, Ok(())).await
}

/// A session that has the statements of these requests.
async fn warm(db: &Database, requests: &[Request]) -> AsyncPgConnection {
    let mut conn = db.connect().await;
    for is_session in SCOPES {
        for request in requests {
            call(&mut conn, is_session, request.clone()).await.unwrap();
        }
    }
    conn
}

/// Takes away those of our statements whose name ends so. Not Diesel's own, without which no query of the program goes through.
async fn forget(conn: &mut AsyncPgConnection, end: &str) {
    let names = format!(
        "SELECT string_agg('DEALLOCATE ' || name, ';') FROM pg_prepared_statements WHERE name LIKE 'advisory%{end}'"
    );
    let names: Option<String> = diesel::dsl::sql::<Nullable<Text>>(&names)
        .get_result(conn)
        .await
        .unwrap();
    let names = names.expect("statements of ours");
    conn.batch_execute(&names).await.unwrap();
}

#[tokio::test]
async fn lost_statements_are_no_time_out_whatever_the_budget() {
    let db = database().await;
    for is_session in SCOPES {
        for wait in [Wait::For(Duration::from_millis(1)), Wait::Session] {
            let request = Request::new(7).wait(wait);
            let mut conn = warm(&db, std::slice::from_ref(&request)).await;
            conn.batch_execute("SET lock_timeout = '1ms'; SET statement_timeout = '1min'")
                .await
                .unwrap();
            forget(&mut conn, "").await;
            {
                // What is before it in the session is longer than the budget.
                let slow = pin!(conn.batch_execute("SELECT pg_sleep(0.05)"));
                let sent = slow.poll(&mut Context::from_waker(Waker::noop()));
                assert!(matches!(sent, Poll::Pending));
            }
            let ended = call(&mut conn, is_session, request).await;
            ended.expect("nobody holds the lock");
        }
    }
}

#[tokio::test]
async fn a_transaction_that_diesel_does_not_know_of_is_refused_as_one_and_can_be_ended() {
    let db = database().await;
    for is_session in SCOPES {
        for wait in [Wait::Session, Wait::Never] {
            for case in ["cold", "warm", "lost", "partly"] {
                let request = Request::new(7).wait(wait);
                let mut conn = match case {
                    "cold" => db.connect().await,
                    _ => warm(&db, std::slice::from_ref(&request)).await,
                };
                match case {
                    "lost" => forget(&mut conn, "").await,
                    "partly" => forget(&mut conn, "settings").await,
                    _ => {}
                }
                let pid = pid_of(&mut conn).await;
                conn.batch_execute("BEGIN").await.unwrap();
                let error = call(&mut conn, is_session, request.clone())
                    .await
                    .unwrap_err();
                assert!(
                    matches!(error, Error::ForeignTransaction { .. }),
                    "{is_session} {wait:?} {case}: {error:?}"
                );
                conn.batch_execute("ROLLBACK").await.unwrap();
                assert_eq!(pid_of(&mut conn).await, pid);
                for _ in 0..2 {
                    call(&mut conn, is_session, request.clone()).await.unwrap();
                }
                assert!(db.locks().await.is_empty());
            }
        }
    }
}

#[tokio::test]
async fn a_transaction_that_the_body_leaves_open_is_told_without_the_statements_too() {
    let db = database().await;
    for forgets in [false, true] {
        let mut conn = warm(&db, &[Request::new(7)]).await;
        let mut held = session::acquire(&mut conn, 7).await.unwrap();
        if forgets {
            forget(held.conn(), "").await;
        }
        held.conn().batch_execute("BEGIN").await.unwrap();
        insert(held.conn(), 7, "Ada").await.unwrap();
        let error = session::release(held, Ok::<_, Error>(()))
            .await
            .unwrap_err();
        assert!(
            matches!(error, Error::ForeignTransaction { .. }),
            "{forgets}: {error:?}"
        );
        assert!(db.locks().await.is_empty());
        assert_eq!(committed(&db, 7).await, 0);
        call(&mut conn, true, Request::new(7)).await.unwrap();
    }
}

#[tokio::test]
async fn a_transaction_that_the_body_ends_is_told_without_the_statements_too() {
    let db = database().await;
    for (room, forgets) in [(7, false), (8, true)] {
        let mut conn = warm(&db, &[Request::new(7)]).await;
        let mut held = xact::begin(&mut conn, 7).await.unwrap();
        insert(held.conn(), room, "Ada").await.unwrap();
        held.conn().batch_execute("COMMIT").await.unwrap();
        if forgets {
            forget(held.conn(), "").await;
        }
        let error = xact::finish(held, Ok::<_, Error>(())).await.unwrap_err();
        assert!(
            matches!(error, Error::TransactionEnded { .. }),
            "{forgets}: {error:?}"
        );
        assert_eq!(committed(&db, room).await, 1);
        call(&mut conn, false, Request::new(7)).await.unwrap();
    }
}

#[tokio::test]
async fn a_session_that_has_lost_one_statement_goes_without_from_the_first_error_on() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let of_xact = ["_check", "_settings", "1_lock"];
    let of_session = ["session_settings", "session_lock", "_unlock"];
    for (is_session, ends) in [(false, of_xact), (true, of_session)] {
        for end in ends {
            let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
            call(&mut conn, is_session, Request::new(7)).await.unwrap();
            forget(&mut conn, end).await;
            let ended = call(&mut conn, is_session, Request::new(7)).await;
            if end == "_check" {
                assert!(matches!(ended, Err(Error::RolledBack { .. })), "{ended:?}");
            } else {
                ended.unwrap();
            }
            proxy.reset();
            call(&mut conn, is_session, Request::new(7)).await.unwrap();
            let queries = proxy.queries();
            assert!(
                queries.len() == 2 && !queries.concat().contains("EXECUTE"),
                "{end}: {queries:#?}"
            );
            assert!(db.locks().await.is_empty());
        }
    }
}

#[tokio::test]
async fn every_end_of_a_wait_is_told_apart_by_statements_that_are_prepared() {
    let db = database().await;
    let waits = [
        Wait::Session,
        Wait::Forever,
        Wait::Never,
        Wait::For(Duration::from_secs(9)),
        Wait::For(Duration::from_millis(30)),
    ];
    let requests = waits.map(|wait| Request::new(7).wait(wait));
    let mut conn = warm(&db, &requests).await;
    let mut holder = warm(&db, &requests).await;
    let pid = pid_of(&mut conn).await;
    let held = session::acquire(&mut holder, 7).await.unwrap();
    for is_session in SCOPES {
        let [by_session, forever, never, long, short] = requests.clone();
        let error = call(&mut conn, is_session, never).await.unwrap_err();
        assert!(matches!(error, Error::NotAvailable { .. }), "{error:?}");
        let error = call(&mut conn, is_session, short).await.unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
        execute(&mut conn, "SET lock_timeout = '30ms'")
            .await
            .unwrap();
        let error = call(&mut conn, is_session, by_session.clone())
            .await
            .unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
        execute(&mut conn, "RESET lock_timeout").await.unwrap();
        execute(&mut conn, SHORT).await.unwrap();
        for request in [by_session, forever, long.clone()] {
            let error = call(&mut conn, is_session, request).await.unwrap_err();
            assert!(matches!(error, Error::Cancelled { .. }), "{error:?}");
        }
        no_longer_short(&mut conn).await;
        let (ended, ()) = tokio::join!(call(&mut conn, is_session, long), async {
            db.until_waiting(7).await;
            db.run(&format!("SELECT pg_cancel_backend({pid})")).await;
        });
        let error = ended.unwrap_err();
        assert!(matches!(error, Error::Cancelled { .. }), "{error:?}");
        assert_eq!(db.locks().await.len(), 1);
    }
    session::release(held, Ok::<_, Error>(())).await.unwrap();
    // The outer lock of each is a session-level one, so that the inner is prepared as well.
    let mut mine = session::acquire(&mut holder, 1).await.unwrap();
    let mut theirs = session::acquire(&mut conn, 2).await.unwrap();
    let (first, second) = tokio::join!(
        async move {
            let end = call(mine.conn(), true, Request::new(2)).await;
            session::release(mine, end).await
        },
        async move {
            db.until_waiting(2).await;
            let end = call(theirs.conn(), false, Request::new(1)).await;
            session::release(theirs, end).await
        }
    );
    let deadlocks = [&first, &second]
        .into_iter()
        .filter(|end| matches!(end, Err(Error::Deadlock { .. })))
        .count();
    assert_eq!(deadlocks, 1, "{first:?} {second:?}");
}

#[tokio::test]
async fn whatever_a_program_sets_or_makes_later_the_statements_do_the_same() {
    let db = database().await;
    let requests = [
        Request::new(7),
        Request::new(7).shared().wait(Wait::Never),
        Request::new(7).wait(Duration::from_secs(5)),
        Request::new(7).wait(Wait::Never),
    ];
    for disturbed in [
        "SET plan_cache_mode = force_generic_plan",
        "SET plan_cache_mode = force_custom_plan",
        "SET standard_conforming_strings = off",
        "SET default_transaction_read_only = on",
        "SET default_transaction_isolation = 'serializable'; SET default_transaction_read_only = on; \
         SET default_transaction_deferrable = on",
        "SET client_encoding = 'SJIS'",
        "SET ROLE pg_monitor",
        "SET search_path = ''",
        "DISCARD PLANS",
        "RESET ALL",
        "SET lock_timeout = 1234567",
        "DROP TABLE booking; CREATE TABLE booking(room int8 NOT NULL, guest text NOT NULL)",
    ] {
        let mut conn = warm(&db, &requests).await;
        conn.batch_execute(disturbed).await.unwrap();
        for _ in 0..2 {
            for request in &requests {
                for is_session in SCOPES {
                    let mut held = if is_session {
                        session::acquire(&mut conn, request.clone()).await
                    } else {
                        xact::begin(&mut conn, request.clone()).await
                    }
                    .unwrap();
                    assert_eq!(db.locks().await.len(), 1, "{disturbed}");
                    if !is_session {
                        let level: String = diesel::dsl::sql::<Text>("SHOW transaction_isolation")
                            .get_result(held.conn())
                            .await
                            .unwrap();
                        assert_eq!(level, "read committed", "{disturbed}");
                    }
                    xact::finish(held, Ok::<_, Error>(())).await.unwrap();
                    assert!(db.locks().await.is_empty(), "{disturbed}");
                }
            }
        }
    }
}
