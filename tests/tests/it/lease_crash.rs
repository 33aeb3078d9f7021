//! A server that crashes forgets no grant, no renewal and no kept key, whatever the role's
//! `synchronous_commit` is.
//!
//! An immediate shutdown loses the part of the log that is only in memory. Commits that do not wait
//! for the disk stay there for `wal_writer_delay`.

use advisory_runtime::__private::lease::Steps as _;
use advisory_runtime::lease::{Lease, Request, Table};
use advisory_tests::bookings::execute;
use advisory_tests::leases::key;
use advisory_tests::{OwnServer, left_out, owns_server};
use diesel::dsl::sql;
use diesel::sql_types::BigInt;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::collections::HashSet;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// A server whose sessions do not wait for the disk, and whose log stays in memory for long.
async fn forgetful() -> Option<OwnServer> {
    if !owns_server() {
        left_out("crash", "the server is not our own");
        return None;
    }
    let server = OwnServer::start().await;
    let mut conn = connect(&server).await;
    for set in [
        "wal_writer_delay = '10s'",
        "wal_writer_flush_after = '1GB'",
        "synchronous_commit = off",
        "autovacuum = off",
    ] {
        execute(&mut conn, &format!("ALTER SYSTEM SET {set}"))
            .await
            .unwrap();
    }
    Table::new().set_up(&mut conn).await.unwrap();
    conn.batch_execute("CREATE TABLE counter AS SELECT 0::int8 AS n; CHECKPOINT")
        .await
        .unwrap();
    drop(conn);
    crash(&server).await;
    Some(server)
}

async fn connect(server: &OwnServer) -> AsyncPgConnection {
    AsyncPgConnection::establish(server.url()).await.unwrap()
}

async fn crash(server: &OwnServer) {
    server.stop("immediate").await;
    server.start_again().await;
}

async fn number(conn: &mut AsyncPgConnection, query: &str) -> i64 {
    sql::<BigInt>(query).get_result(conn).await.unwrap()
}

/// The control: without the setting that leases force, a crash loses commits.
async fn count_up(conn: &mut AsyncPgConnection) -> i64 {
    for _ in 0..20 {
        execute(conn, "UPDATE counter SET n = n + 1").await.unwrap();
    }
    number(conn, "SELECT n FROM counter").await
}

#[tokio::test]
async fn no_token_is_issued_twice_when_the_server_crashes() {
    let Some(server) = forgetful().await else {
        return;
    };
    let table = Table::new();
    let (mut tokens, mut forgotten, mut released) = (HashSet::new(), 0, 0);
    for round in 1..=4 {
        let mut conn = connect(&server).await;
        execute(
            &mut conn,
            "UPDATE advisory_lease SET expires_at = '-infinity'",
        )
        .await
        .unwrap();
        let mut last = None;
        for _ in 0..20 {
            let lease = table.acquire(&mut conn, key("k").ttl(HOUR)).await.unwrap();
            assert!(tokens.insert(lease.token()), "{:?} twice", lease.token());
            assert!(table.release(&mut conn, &lease).await.unwrap());
            last = Some(lease);
        }
        let last = last.unwrap();
        let counted = count_up(&mut conn).await;
        drop(conn);
        crash(&server).await;
        let mut conn = connect(&server).await;
        forgotten += counted - number(&mut conn, "SELECT n FROM counter").await;
        released += i64::from(table.holds(&mut conn, &last).await.unwrap());
        let token = number(&mut conn, "SELECT token FROM advisory_lease").await;
        assert_eq!(token, last.token().get(), "round {round}");
    }
    eprintln!(
        "{} tokens over 4 crashes, none twice; forgotten: {forgotten} other commits, {released} releases",
        tokens.len()
    );
    assert!(
        forgotten > 0,
        "no crash forgot anything: this shows nothing"
    );
}

#[tokio::test]
async fn a_renewal_and_a_kept_key_outlive_a_crash() {
    let Some(server) = forgetful().await else {
        return;
    };
    let table = Table::new();
    let mut conn = connect(&server).await;
    let short = |text: &str| key(text).ttl(Duration::from_secs(30));
    let renewed = table.acquire(&mut conn, short("renewed")).await.unwrap();
    let kept = table.acquire(&mut conn, short("kept")).await.unwrap();
    let left = async |conn: &mut AsyncPgConnection, text: &str| {
        let row = table
            .find(conn, Request::text(text))
            .await
            .unwrap()
            .unwrap();
        row.remaining
    };
    let mut forgotten = 0;
    for _ in 0..3 {
        assert!(table.renew(&mut conn, &renewed, HOUR).await.unwrap());
        let counted = count_up(&mut conn).await;
        crash(&server).await;
        conn = connect(&server).await;
        forgotten += counted - number(&mut conn, "SELECT n FROM counter").await;
        assert!(left(&mut conn, "renewed").await > HOUR / 2);
        assert!(table.holds(&mut conn, &renewed).await.unwrap());
    }
    keep_over_a_crash(&server, conn, &table, &kept).await;
    let mut conn = connect(&server).await;
    assert!(left(&mut conn, "kept").await > HOUR / 2);
    assert!(
        forgotten > 0,
        "no crash forgot anything: this shows nothing"
    );
}

async fn keep_over_a_crash(
    server: &OwnServer,
    mut conn: AsyncPgConnection,
    table: &Table,
    lease: &Lease,
) {
    assert!(table.keep(&mut conn, lease, HOUR).await.unwrap());
    drop(conn);
    crash(server).await;
}
