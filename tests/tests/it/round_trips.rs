//! Round trips of locked calls, counted on the wire.

use advisory_runtime::{Error, Isolation, Request, Wait, advisory_lock, session, xact};
use advisory_tests::bookings::run;
use advisory_tests::{Database, Proxy};
use diesel::QueryResult;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::time::Duration;

#[advisory_lock(key = "job", name = "job", scope = "xact")]
async fn nothing(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

#[advisory_lock(key = "job", name = "job", scope = "xact")]
async fn refused(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    _ = conn;
    Err(diesel::result::Error::NotFound)
}

async fn proxied() -> (Database, Proxy, AsyncPgConnection) {
    let db = Database::create().await;
    let proxy = Proxy::start(&db).await;
    let conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    proxy.reset();
    (db, proxy, conn)
}

#[tokio::test]
async fn begin_and_lock_are_one_round_trip_and_commit_is_the_other() {
    let (_db, proxy, mut conn) = proxied().await;
    nothing(&mut conn).await.unwrap();
    assert_eq!(proxy.round_trips(), 2, "{:#?}", proxy.queries());
    let queries = proxy.queries();
    assert!(
        queries[0].contains("pg_catalog.pg_advisory_xact_lock") && queries[0].ends_with("BEGIN"),
        "{queries:#?}"
    );
    assert!(queries[1].ends_with("COMMIT"), "{queries:#?}");
}

#[tokio::test]
async fn rollback_is_one_round_trip() {
    let (_db, proxy, mut conn) = proxied().await;
    refused(&mut conn).await.unwrap_err();
    assert_eq!(proxy.round_trips(), 2, "{:#?}", proxy.queries());
    assert_eq!(proxy.queries()[1], "ROLLBACK");
}

#[tokio::test]
async fn a_nested_call_adds_two_round_trips() {
    let (_db, proxy, mut conn) = proxied().await;
    conn.transaction::<_, diesel::result::Error, _>(async |conn| nothing(conn).await)
        .await
        .unwrap();
    assert_eq!(proxy.round_trips(), 4, "{:#?}", proxy.queries());
    assert!(proxy.queries()[1].contains(";SAVEPOINT advisory_savepoint_1;"));
    run(&mut conn, "SELECT 1").await;
}

#[tokio::test]
async fn whatever_waits_is_asked_for_in_one_round_trip() {
    let (_db, proxy, mut conn) = proxied().await;
    let seconds = Duration::from_secs(5);
    for request in [
        Request::new(1).shared(),
        Request::new(1).wait(seconds),
        Request::new(1).wait(Wait::Forever),
        Request::all([1, 2, 3]).wait(seconds),
        Request::new(1).isolation(Isolation::RepeatableRead),
        Request::all([1, 2, 3])
            .isolation(Isolation::Serializable)
            .wait(seconds),
        Request::new(1).max_hold(seconds),
    ] {
        proxy.reset();
        let held = xact::begin(&mut conn, request.clone()).await.unwrap();
        assert_eq!(proxy.round_trips(), 1, "{request:?} {:#?}", proxy.queries());
        held.finish(Ok::<_, Error>(())).await.unwrap();
        assert_eq!(proxy.round_trips(), 2, "{request:?} {:#?}", proxy.queries());
    }
    // The first call of a process reads the setting `advisory.pooler`.
    let held = session::acquire(&mut conn, 1).await.unwrap();
    held.finish(Ok::<_, Error>(())).await.unwrap();
    for request in [
        Request::new(1),
        Request::new(1).wait(seconds),
        Request::all([1, 2]),
        Request::all([1, 2]).wait(seconds),
    ] {
        proxy.reset();
        let held = session::acquire(&mut conn, request.clone()).await.unwrap();
        assert_eq!(proxy.round_trips(), 1, "{request:?} {:#?}", proxy.queries());
        held.finish(Ok::<_, Error>(())).await.unwrap();
        assert_eq!(proxy.round_trips(), 2, "{request:?} {:#?}", proxy.queries());
    }
}

/// The query for one key has one text, which a connection prepares once; that of several is
/// prepared by each call, in one round trip with the `BEGIN`. At a stricter level the setting
/// `advisory.pooler` is read before, and the transaction opened afterwards.
#[tokio::test]
async fn a_try_for_one_key_is_one_round_trip_and_a_miss_one_more() {
    let (db, proxy, mut conn) = proxied().await;
    let (one, two) = (Request::new(1), Request::all([1, 2]));
    let strict = one.clone().isolation(Isolation::Serializable);
    let mut holder = db.connect().await;
    let first = Request::new(3).wait(Wait::Never);
    let held = xact::begin(&mut conn, first).await.unwrap();
    held.finish(Ok::<_, Error>(())).await.unwrap();
    for (request, hit, miss) in [(one, 1, 2), (two, 2, 3), (strict, 4, 3)] {
        let request = request.wait(Wait::Never);
        for _ in 0..2 {
            proxy.reset();
            let held = xact::begin(&mut conn, request.clone()).await.unwrap();
            assert_eq!(
                proxy.round_trips(),
                hit,
                "{request:?} {:#?}",
                proxy.queries()
            );
            held.finish(Ok::<_, Error>(())).await.unwrap();
            assert_eq!(
                proxy.round_trips(),
                hit + 1,
                "{request:?} {:#?}",
                proxy.queries()
            );
            let held = session::acquire(&mut holder, 1).await.unwrap();
            proxy.reset();
            let missed = xact::begin(&mut conn, request.clone()).await.unwrap_err();
            assert!(missed.is_busy(), "{missed:?}");
            assert_eq!(
                proxy.round_trips(),
                miss,
                "{request:?} {:#?}",
                proxy.queries()
            );
            held.finish(Ok::<_, Error>(())).await.unwrap();
        }
    }
    let request = Request::all([1, 2]).wait(Wait::Never);
    let held = session::acquire(&mut conn, request.clone()).await.unwrap();
    held.finish(Ok::<_, Error>(())).await.unwrap();
    proxy.reset();
    let held = session::acquire(&mut conn, request).await.unwrap();
    assert_eq!(proxy.round_trips(), 2, "{:#?}", proxy.queries());
    held.finish(Ok::<_, Error>(())).await.unwrap();
    assert_eq!(proxy.round_trips(), 3, "{:#?}", proxy.queries());
}
