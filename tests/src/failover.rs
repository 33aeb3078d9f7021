//! A primary and its standby, and clients that look for the primary.

use crate::leases::{key, leases_at, once};
use crate::pauses::pause;
use crate::{OwnServer, left_out, owns_server};
use advisory_runtime::lease::Table;
use diesel::sql_types::BigInt;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::time::{Duration, Instant};

/// How long a failover may take on a busy machine.
pub const GENEROUS: Duration = Duration::from_secs(180);

/// The bits of a token below those of its timeline.
const BITS: u32 = 40;

/// The timeline in which a token was granted.
pub fn timeline_of(token: i64) -> i64 {
    token >> BITS
}

/// A primary with the table of leases; nothing if this process does not own its server.
pub async fn primary() -> Option<OwnServer> {
    if !owns_server() {
        left_out("failover", "the server is not our own");
        return None;
    }
    let server = OwnServer::start().await;
    let mut conn = connect(&server).await;
    Table::new().set_up(&mut conn).await.unwrap();
    Some(server)
}

/// A new connection to a server.
pub async fn connect(server: &OwnServer) -> AsyncPgConnection {
    AsyncPgConnection::establish(server.url()).await.unwrap()
}

/// The number that a query returns.
pub async fn number(conn: &mut AsyncPgConnection, sql: &str) -> i64 {
    let asked = diesel::dsl::sql::<BigInt>(sql).get_result(conn).await;
    asked.unwrap()
}

/// Polls until the condition holds.
pub async fn until(conn: &mut AsyncPgConnection, condition: &str) {
    let since = Instant::now();
    while number(conn, &format!("SELECT count(*) WHERE {condition}")).await == 0 {
        assert!(since.elapsed() < GENEROUS, "{condition}");
        pause().await;
    }
}

/// Waits until the standby has everything that is committed now, and cuts it off from later
/// changes.
pub async fn cut_off(primary: &OwnServer, standby: &OwnServer) {
    let (mut from, mut to) = (connect(primary).await, connect(standby).await);
    // A release is not flushed to the disk by its own commit, and not sent before that.
    let flush = "SELECT pg_logical_emit_message(true, '', '')";
    from.batch_execute(flush).await.unwrap();
    let now = "SELECT (pg_current_wal_flush_lsn() - '0/0')::int8";
    let now = number(&mut from, now).await;
    until(
        &mut to,
        &format!("pg_last_wal_replay_lsn() - '0/0' >= {now}"),
    )
    .await;
    to.batch_execute("ALTER SYSTEM SET primary_conninfo = ''")
        .await
        .unwrap();
    to.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    until(&mut to, "NOT EXISTS (SELECT FROM pg_stat_wal_receiver)").await;
}

/// The token of a grant that is released at once.
pub async fn token(server: &OwnServer, text: &str) -> i64 {
    let granted = once(&leases_at(server.url(), 1), key(text)).await;
    granted.unwrap().get()
}

/// Connects to the primary as soon as there is one.
pub async fn reconnect(url: &str) -> AsyncPgConnection {
    let since = Instant::now();
    loop {
        if let Ok(conn) = AsyncPgConnection::establish(url).await {
            return conn;
        }
        assert!(since.elapsed() < GENEROUS, "no primary");
        pause().await;
    }
}

/// An address of both servers, for connections to the one that accepts writes.
pub fn either(first: &OwnServer, second: &OwnServer) -> String {
    let folder = |server: &OwnServer| {
        let folder = server.file("");
        folder.to_string_lossy().trim_end_matches('/').to_owned()
    };
    format!(
        "host={},{} user=postgres dbname=postgres target_session_attrs=read-write",
        folder(first),
        folder(second)
    )
}

/// The table of bookings.
pub const BOOKING: &str = "CREATE TABLE booking (room int8 NOT NULL, guest text NOT NULL)";
