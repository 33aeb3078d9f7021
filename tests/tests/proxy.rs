//! The proxy counts, records, cuts and delays as documented.

use std::time::Duration;

use advisory_tests::{Database, Proxy};
use diesel::IntoSql;
use diesel::sql_types::Integer;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use tokio::time::timeout;

async fn through(proxy: &Proxy) -> AsyncPgConnection {
    AsyncPgConnection::establish(proxy.url())
        .await
        .expect("a connection through the proxy")
}

/// A database, a proxy in front of it, and a connection through that; counting starts now.
async fn counted() -> (Database, Proxy, AsyncPgConnection) {
    let db = Database::create().await;
    db.run("CREATE TABLE slots (id int)").await;
    let proxy = Proxy::start(&db).await;
    let conn = through(&proxy).await;
    proxy.reset();
    (db, proxy, conn)
}

#[tokio::test]
async fn a_batch_is_one_round_trip() {
    let (_db, proxy, mut conn) = counted().await;
    conn.batch_execute("SELECT 1").await.unwrap();
    assert_eq!(
        (proxy.round_trips(), proxy.queries()),
        (1, vec!["SELECT 1".to_owned()])
    );
    conn.batch_execute("BEGIN; SELECT 2; COMMIT").await.unwrap();
    assert_eq!(proxy.round_trips(), 2);
    proxy.reset();
    assert_eq!((proxy.round_trips(), proxy.queries()), (0, vec![]));
}

#[tokio::test]
async fn a_cached_statement_is_one_round_trip_and_no_simple_query() {
    let (_db, proxy, mut conn) = counted().await;
    let ask = async |conn: &mut AsyncPgConnection| {
        let question = diesel::select(1.into_sql::<Integer>());
        question.get_result::<i32>(conn).await.unwrap();
    };
    ask(&mut conn).await;
    proxy.reset();
    ask(&mut conn).await;
    assert_eq!((proxy.round_trips(), proxy.queries()), (1, vec![]));
}

#[tokio::test]
async fn start_ups_are_not_round_trips() {
    let (_db, proxy, _conn) = counted().await;
    let (client, _connection) = tokio_postgres_client(&proxy).await;
    assert_eq!(proxy.round_trips(), 0);
    client.batch_execute("SELECT 1").await.unwrap();
    assert_eq!(proxy.round_trips(), 1);
}

#[tokio::test]
async fn a_cut_before_commit_is_a_rollback() {
    let (db, proxy, mut conn) = counted().await;
    proxy.cut_before("COMMIT");
    conn.batch_execute("BEGIN; INSERT INTO slots VALUES (1)")
        .await
        .unwrap();
    conn.batch_execute("COMMIT").await.unwrap_err();
    conn.batch_execute("SELECT 1").await.unwrap_err();
    db.until_quiet().await;
    assert_eq!(db.count("SELECT count(*) FROM slots").await, 0);
    through(&proxy)
        .await
        .batch_execute("BEGIN; COMMIT")
        .await
        .expect("a cut happens once");
}

#[tokio::test]
async fn a_cut_after_commit_loses_only_the_answer() {
    let (db, proxy, mut conn) = counted().await;
    proxy.cut_after_forwarding("COMMIT");
    conn.batch_execute("BEGIN; INSERT INTO slots VALUES (1)")
        .await
        .unwrap();
    conn.batch_execute("COMMIT").await.unwrap_err();
    assert_eq!(db.count("SELECT count(*) FROM slots").await, 1);
}

#[tokio::test]
async fn answers_before_a_cut_arrive() {
    let (db, proxy, conn) = counted().await;
    proxy.cut_after_forwarding("second");
    let (client, connection) = tokio_postgres_client(&proxy).await;
    let sent = tokio::join!(
        client.batch_execute("SELECT 1 AS first"),
        client.batch_execute("SELECT 2 AS second")
    );
    assert!(sent.0.is_ok() && sent.1.is_err(), "{sent:?}");
    connection.await.unwrap().unwrap_err();
    drop(conn);
    db.until_quiet().await;
}

#[tokio::test]
async fn what_is_held_back_arrives_later() {
    let (_db, proxy, mut conn) = counted().await;
    proxy.stop_forwarding();
    let mut call = Box::pin(conn.batch_execute("SELECT 1"));
    timeout(Duration::from_millis(100), &mut call)
        .await
        .unwrap_err();
    assert_eq!(proxy.round_trips(), 0);
    proxy.resume_forwarding();
    call.await.unwrap();
    assert_eq!(proxy.round_trips(), 1);
}

#[tokio::test]
async fn a_cancel_request_gets_through() {
    let (db, proxy, mut conn) = counted().await;
    db.run("SELECT pg_advisory_lock(7)").await;
    let cancel = conn.cancel_token();
    let waiter = tokio::spawn(async move {
        let refused = conn.batch_execute("SELECT pg_advisory_lock(7)").await;
        (refused, conn)
    });
    db.until_waiting(7).await;
    cancel.cancel_query(tokio_postgres::NoTls).await.unwrap();
    let (refused, mut conn) = waiter.await.unwrap();
    let error = refused.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("canceling statement due to user request"),
        "{error}"
    );
    // The proxy holds an error back until its round trip is over, so that continuing at once is a
    // second one.
    assert_eq!(proxy.round_trips(), 1);
    conn.batch_execute("SELECT 1").await.unwrap();
    assert_eq!(proxy.round_trips(), 2);
}

#[tokio::test]
async fn a_session_without_a_process_id_cannot_be_cancelled() {
    let (db, proxy, _conn) = counted().await;
    proxy.hide_cancel_keys();
    let mut conn = through(&proxy).await;
    db.run("SELECT pg_advisory_lock(7)").await;
    let cancel = conn.cancel_token();
    let waiter =
        tokio::spawn(async move { conn.batch_execute("SELECT pg_advisory_lock(7)").await });
    db.until_waiting(7).await;
    cancel.cancel_query(tokio_postgres::NoTls).await.unwrap();
    db.run("SELECT pg_advisory_unlock(7)").await;
    waiter.await.unwrap().unwrap();
    assert_eq!(proxy.cancel_requests(), 1);
}

#[tokio::test]
async fn a_dropped_proxy_closes_its_connections() {
    let (db, proxy, mut conn) = counted().await;
    conn.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(7)")
        .await
        .unwrap();
    drop(proxy);
    conn.batch_execute("SELECT 1").await.unwrap_err();
    db.until_quiet().await;
}

type Driven = tokio::task::JoinHandle<Result<(), tokio_postgres::Error>>;

/// A client that sends without waiting for answers.
async fn tokio_postgres_client(proxy: &Proxy) -> (tokio_postgres::Client, Driven) {
    let connected = tokio_postgres::connect(proxy.url(), tokio_postgres::NoTls).await;
    let (client, connection) = connected.expect("a connection through the proxy");
    (client, tokio::spawn(connection))
}

#[tokio::test]
async fn swallowed_messages_and_new_connections_get_no_answer() {
    let (_db, proxy, mut conn) = counted().await;
    let _queued = proxy.swallow_everything().await;
    let bound = Duration::from_millis(50);
    assert!(
        timeout(bound, conn.batch_execute("SELECT 1"))
            .await
            .is_err()
    );
    let another = AsyncPgConnection::establish(proxy.url());
    assert!(timeout(bound, another).await.is_err());
    let socket = proxy.url().split(['=', ' ']).collect::<Vec<_>>();
    let address = format!("{}:{}", socket[1], socket[3]);
    let raw = tokio::net::TcpStream::connect(address);
    assert!(timeout(bound, raw).await.is_err(), "not even a socket");
}

#[tokio::test]
async fn the_librarys_checks_of_debug_builds_are_not_counted() {
    let (_db, proxy, mut conn) = counted().await;
    conn.batch_execute("SELECT 'advisory:standby'")
        .await
        .unwrap();
    let seen = usize::from(!advisory_tests::debug_checks_are_on());
    assert_eq!((proxy.round_trips(), proxy.queries().len()), (seen, seen));
}
