//! A standby has its own advisory locks, which the primary does not see: debug builds refuse it in
//! both scopes.

use crate::calls::book;
use advisory_runtime::{Isolation, Mode, Request, Wait, advisory_lock, blocking, session, xact};
use advisory_tests::bookings::run;
use advisory_tests::{Database, Standby, assert_error, debug_checks_are_on, left_out, owns_server};
use diesel::{Connection as _, PgConnection, QueryResult};
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::time::Duration;

#[advisory_lock(key = "room:<room>", name = "room", scope = "session", wait = "never", on_held = Ok(false))]
async fn alone(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<bool> {
    unreachable!("room {room} ran on a standby, on {:p}", conn)
}

fn requests() -> Vec<Request> {
    let mut requests = Vec::new();
    for wait in [
        Wait::Session,
        Wait::Never,
        Wait::For(Duration::from_secs(5)),
        Wait::Forever,
    ] {
        for keys in [vec![7], vec![7, 8]] {
            for mode in [Mode::Exclusive, Mode::Shared] {
                let request = Request::all(keys.clone()).wait(wait);
                requests.push(match mode {
                    Mode::Exclusive => request,
                    Mode::Shared => request.shared(),
                });
            }
        }
    }
    requests
}

#[tokio::test]
async fn a_standby_is_refused_and_the_connection_stays_usable() {
    if !debug_checks_are_on() {
        return;
    }
    if !owns_server() {
        return left_out("standby", "the server is not our own");
    }
    let standby = Standby::start().await;
    let mut conn = AsyncPgConnection::establish(standby.url()).await.unwrap();
    for request in requests() {
        let strict = request.clone().isolation(Isolation::RepeatableRead);
        for refused in [
            xact::begin(&mut conn, request.clone()).await.map(drop),
            xact::begin(&mut conn, strict).await.map(drop),
            session::acquire(&mut conn, request.clone()).await.map(drop),
        ] {
            assert_error!(refused, Standby, "{request:?}");
        }
        run(&mut conn, "SELECT 1").await;
    }
    // `on_held` is for a lock that others hold, not for this.
    for error in [
        alone(&mut conn, 7).await.unwrap_err(),
        book(&mut conn, 7, "Ada").await.unwrap_err(),
    ] {
        assert_error!(error, Standby);
    }
    let held = "SELECT CAST(CASE count(*) WHEN 0 THEN '0' ELSE 'held' END AS int) FROM pg_locks WHERE locktype = 'advisory'";
    run(&mut conn, held).await;
}

#[tokio::test]
async fn a_standby_is_refused_on_blocking_connections() {
    if !debug_checks_are_on() {
        return;
    }
    if !owns_server() {
        return left_out("standby", "the server is not our own");
    }
    let standby = Standby::start().await;
    let conn = &mut PgConnection::establish(standby.url()).unwrap();
    for request in requests() {
        for refused in [
            blocking::xact::begin(conn, request.clone()).map(drop),
            blocking::session::acquire(conn, request.clone()).map(drop),
        ] {
            assert_error!(refused, Standby, "{request:?}");
        }
    }
    // The result of `verify` is about the server: it names no lock.
    let pool = Database::r2d2_at(standby.url(), 2);
    let error = blocking::session::verify(&pool).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("the server is a standby"), "{text}");
}
